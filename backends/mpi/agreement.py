"""Before a program runs for the first time, all of its processes make sure that it is the same.

Each sends digests of what makes the program. Where they differ, the texts are compared as well,
so that the error names the part that differs and shows both.
"""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np

from shardir.backends.base import Link
from shardir.errors import ShardirError
from shardir.ir import Module
from shardir.text.printer import show, show_mesh

DIGEST = 16
SENT = 2000
"""Characters of a part of a program that a process tells others at any time."""
SHOWN = 160
"""Characters of a text that an error shows."""


PLURAL = ("owners of the devices", "arguments", "results", "operations")
"""The parts of a program that are several things."""


class DisagreementError(ShardirError, RuntimeError):
    """Processes that are about to run different programs as one."""


@dataclass(frozen=True)
class Identity:
    """What makes a program, part by part, each as text."""

    name: str
    parts: tuple[tuple[str, str], ...]

    @cached_property
    def brief(self) -> "Identity":
        """The same, short enough to be sent at any time."""
        parts = ((field, _cut(text)) for field, text in self.parts)
        return Identity(self.name, tuple(parts))

    @cached_property
    def digest(self) -> str:
        """The same for the same program, in every process."""
        return _digest(self.parts).hex()


def identity_of(
    module: Module, owners: tuple[int, ...], compiler: str, checks_inputs: bool = True
) -> Identity:
    """What makes a per-device program on the devices of these processes, what compiles it, and
    whether each of its runs compares inputs."""
    function = module.main
    head, _, body = show(module).partition(") -> (")
    arguments = head.partition("func ")[2].partition("(")[2]
    parts = (
        ("mesh", " ".join(map(show_mesh, module.meshes))),
        ("owners of the devices", str(list(owners))),
        ("arguments", " ".join(arguments.split()).removesuffix(",")),
        ("results", body.partition("\n")[0].removesuffix(") {")),
        ("operations", "\n".join(line.strip() for line in body.splitlines()[1:])),
        ("compiler", compiler),
        ("setting check_replicated_inputs", str(checks_inputs)),
    )
    return Identity(function.name, parts)


def agree(identity: Identity, processes: tuple[int, ...], link: Link) -> None:
    """Return when all of `processes` are about to run this program, else `DisagreementError`."""
    what = f"the start of {identity.name}"
    row = b"".join(_digest(part) for part in identity.parts)
    rows = link.gather(row, what, processes)
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1, DIGEST)
    same = (table == table[0]).all((0, 2))
    if same.all():
        return
    # All processes see the same table, so all of them go on to compare the same part.
    place = int(np.argmin(same))
    field, text = identity.parts[place]
    texts = [each.decode() for each in link.gather(text.encode(), f"{what}: {field}", processes)]
    odd = next(i for i, each in enumerate(texts) if each != texts[0])
    who = link.who(processes[0]), link.who(processes[odd])
    raise DisagreementError(_told(identity.name, field, who, (texts[0], texts[odd])))


def difference(mine: Identity, other: Identity, who: tuple[str, str]) -> str:
    """What differs between programs of one name in two processes, both `brief`; empty: nothing."""
    if mine.name == other.name:
        for (field, one), (_, two) in zip(mine.parts, other.parts, strict=True):
            if one != two:
                return _told(mine.name, field, who, (one, two))
    return ""


def _told(name: str, field: str, who: tuple[str, str], texts: tuple[str, str]) -> str:
    first, other = _shown(*texts)
    verb = "differ" if field in PLURAL else "differs"
    return (
        f"the processes disagree about {name}: its {field} {verb}; "
        f"{who[0]} has {first}, and {who[1]} has {other}; "
        "every process must run the same program, on arrays of the same shapes and shardings"
    )


def _cut(text: str) -> str:
    """A text as a whole, or its beginning and its digest if it is long."""
    return text if len(text) <= SENT else f"{text[:SENT]} and more, {_digest(text).hex()}"


def _digest(part: object) -> bytes:
    return blake2b(repr(part).encode(), digest_size=DIGEST).digest()


def _shown(one: str, other: str) -> tuple[str, str]:
    """Two texts, or what is around their first difference if they are long."""
    if max(len(one), len(other)) <= SHOWN:
        return repr(one), repr(other)
    same = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    start = max(0, same - SHOWN // 4)
    return repr(one[start : start + SHOWN]), repr(other[start : start + SHOWN])
