"""Checks, before the first run of a program, that all of its processes have the same program.

Each process sends digests of the parts of the program. If a digest differs, the texts of the part
are compared, and the error shows the part and both texts.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from shardir.backends.base import ProcessLink
from shardir.errors import ShardirError
from shardir.ir.module import Module
from shardir.text.printer import print_mesh, print_module

PART_DIGEST_BYTES = 16
MAX_SENT_CHARACTERS = 2000
"""Maximum characters of a part of a program that a status message contains."""
MAX_SHOWN_CHARACTERS = 160
"""Maximum characters of a text that an error shows."""


PLURAL_PARTS = ("owners of the devices", "arguments", "results", "operations")
"""The parts of a program whose names are plural."""


class DisagreementError(ShardirError, RuntimeError):
    """Processes are about to run different programs together."""


@dataclass(frozen=True)
class ProgramIdentity:
    """The text of a program, by parts."""

    name: str
    parts: tuple[tuple[str, str], ...]

    @cached_property
    def brief(self) -> "ProgramIdentity":
        """The same identity, shortened to the size of a status message."""
        parts = ((field, _abbreviate(text)) for field, text in self.parts)
        return ProgramIdentity(self.name, tuple(parts))

    @cached_property
    def digest(self) -> str:
        """A digest that is equal for equal programs in every process."""
        return _digest(self.parts).hex()


def identity_of(
    module: Module, owners: tuple[int, ...], compiler: str, checks_inputs: bool = True
) -> ProgramIdentity:
    """Return the identity of a per-device program: the program, the processes of its devices, its
    compiler, and whether each of its runs compares inputs."""
    function = module.main
    head, _, body = print_module(module).partition(") -> (")
    arguments = head.partition("func ")[2].partition("(")[2]
    parts = (
        ("mesh", " ".join(map(print_mesh, module.meshes))),
        ("owners of the devices", str(list(owners))),
        ("arguments", " ".join(arguments.split()).removesuffix(",")),
        ("results", body.partition("\n")[0].removesuffix(") {")),
        ("operations", "\n".join(line.strip() for line in body.splitlines()[1:])),
        ("compiler", compiler),
        ("setting check_replicated_inputs", str(checks_inputs)),
    )
    return ProgramIdentity(function.name, parts)


def check_agreement(
    identity: ProgramIdentity, processes: tuple[int, ...], link: ProcessLink
) -> None:
    """Return if all of `processes` are about to run this program; raise `DisagreementError` if
    not."""
    what = f"the start of {identity.name}"
    row = b"".join(_digest(part) for part in identity.parts)
    rows = link.gather(row, what, processes)
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1, PART_DIGEST_BYTES)
    same = (table == table[0]).all((0, 2))
    if same.all():
        return
    # All processes see the same table, so that all of them compare the same part.
    place = int(np.argmin(same))
    field, text = identity.parts[place]
    texts = [each.decode() for each in link.gather(text.encode(), f"{what}: {field}", processes)]
    odd = next(i for i, each in enumerate(texts) if each != texts[0])
    names = link.process_name(processes[0]), link.process_name(processes[odd])
    raise DisagreementError(
        _disagreement_message(identity.name, field, names, (texts[0], texts[odd]))
    )


def describe_difference(
    mine: ProgramIdentity, other: ProgramIdentity, names: tuple[str, str]
) -> str:
    """Return how programs of one name in two processes differ, both `brief`; empty if they do
    not."""
    if mine.name == other.name:
        for (field, one), (_, two) in zip(mine.parts, other.parts, strict=True):
            if one != two:
                return _disagreement_message(mine.name, field, names, (one, two))
    return ""


def _disagreement_message(
    name: str, field: str, names: tuple[str, str], texts: tuple[str, str]
) -> str:
    first, other = _show_difference(*texts)
    verb = "differ" if field in PLURAL_PARTS else "differs"
    return (
        f"the processes disagree about {name}: its {field} {verb}; "
        f"{names[0]} has {first}, and {names[1]} has {other}; "
        "every process must run the same program, on arrays of the same shapes and shardings"
    )


def _abbreviate(text: str) -> str:
    """Return a text, or its beginning and its digest if it is long."""
    return (
        text
        if len(text) <= MAX_SENT_CHARACTERS
        else f"{text[:MAX_SENT_CHARACTERS]} and more, {_digest(text).hex()}"
    )


def _digest(part: object) -> bytes:
    return blake2b(repr(part).encode(), digest_size=PART_DIGEST_BYTES).digest()


def _show_difference(one: str, other: str) -> tuple[str, str]:
    """Return two texts, or the parts around their first difference if they are long."""
    if max(len(one), len(other)) <= MAX_SHOWN_CHARACTERS:
        return repr(one), repr(other)
    same = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    start = max(0, same - MAX_SHOWN_CHARACTERS // 4)
    return repr(one[start : start + MAX_SHOWN_CHARACTERS]), repr(
        other[start : start + MAX_SHOWN_CHARACTERS]
    )
