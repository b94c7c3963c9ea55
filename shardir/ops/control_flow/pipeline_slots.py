"""The names of the values that the fragments of a `staged-pipeline` take and give (its slots)."""

import re
from collections.abc import Mapping, Sequence

from shardir.errors import count_noun
from shardir.ir.module import Block
from shardir.ir.types import TensorType
from shardir.ops.control_flow.block_types import Types, types_of

LOSS = "loss"
"""The name of the loss of a microbatch among the values that a fragment gives."""


ARGUMENT_SLOT = re.compile(r"argument \d+(?:\[\d+:\d+(?:,\d+:\d+)*\])?", re.ASCII)
"""The name of an operand, or of the part of it with some ranges of its leading dimensions."""

Window = tuple[slice, ...]
"""The part of an operand that a fragment takes: a range of each leading dimension; empty: all."""


def argument_slot(number: int, window: Window = ()) -> str:
    """Return the name of an operand, or of a part, among the values that a fragment takes."""
    ranges = ",".join(f"{part.start}:{part.stop}" for part in window)
    return f"argument {number}[{ranges}]" if window else f"argument {number}"


def gradient_slot(argument: str) -> str:
    """Return the name of a term of the gradient of an argument among those that a fragment
    gives."""
    return argument.replace("argument", "gradient", 1)


def slot_number(slot: str, word: str) -> int | None:
    """Return the number of an `argument`, `gradient` or `auxiliary` slot; `None` for other
    names."""
    first, _, rest = slot.partition(" ")
    number = rest.partition("[")[0]
    return int(number) if first == word and number.isdigit() else None


def slot_window(slot: str) -> Window:
    """Return the part of the operand that an `argument` or `gradient` slot names."""
    ranges = slot.partition("[")[2].removesuffix("]")
    parts = [part.split(":") for part in ranges.split(",") if part]
    return tuple(slice(int(start), int(stop)) for start, stop in parts)


def auxiliary_slot(number: int) -> str:
    """Return the name of an auxiliary result among the values that a fragment gives."""
    return f"auxiliary {number}"


# The names of values contain no spaces, so that they differ from all names below.
def received_cotangent(name: str) -> str:
    """Return the name under which a stage takes the cotangent of a value that it sent."""
    return f"cotangent {name}"


def given_cotangent(name: str) -> str:
    """Return the name under which a stage gives the cotangent of a value that it received."""
    return f"sent cotangent {name}"


def saved_residual(name: str) -> str:
    """Return the name of a value that a forward pass keeps for the backward pass of its stage."""
    return f"saved {name}"


def kept_value(name: str) -> str:
    """Return the name of a value that an input gradient keeps for the weight gradient."""
    return f"kept {name}"


class StageSlots:
    """The types of the values that each stage of a `staged-pipeline` has.

    `operands` are the types of one microbatch of the operands, and `fragments` the name, the block,
    and the values taken and given, by stage and letter of the pass.
    """

    def __init__(
        self,
        operands: Types,
        fragments: Mapping[tuple[int, str], tuple[str, Block, Sequence[str], Sequence[str]]],
    ) -> None:
        self._operands = operands
        self._fragments = fragments
        self._stages = range(1 + max(stage for stage, _ in fragments))
        self._known: list[dict[str, TensorType]] = [{} for _ in self._stages]

    def check(self, forward: Sequence[Sequence[str]], backward: Sequence[Sequence[str]]) -> None:
        """Raise `TypeError` if a fragment takes, or a stage sends, a value that its stage lacks."""
        for word, lists in (("forward", forward), ("backward", backward)):
            if len(lists) not in (0, len(self._stages) - 1):
                raise TypeError(
                    f"{word} has {count_noun(len(lists), 'list')} of values; there is one for "
                    f"each stage but one, which is {len(self._stages) - 1}"
                )
        for stage in self._stages:
            self._run(stage, "F")
            for name in forward[stage] if forward and stage + 1 < len(self._stages) else ():
                self._send(stage, name, stage + 1, name)
        for stage in reversed(self._stages):
            for kind in "BIW":
                self._run(stage, kind)
            for name in backward[stage - 1] if backward and stage else ():
                self._send(stage, given_cotangent(name), stage - 1, received_cotangent(name))

    def _run(self, stage: int, kind: str) -> None:
        if (stage, kind) not in self._fragments:
            return
        name, block, taken, given = self._fragments[stage, kind]
        for slot, param in zip(taken, block.params, strict=True):
            type = self._type(stage, slot)
            if type is None:
                raise TypeError(
                    f'fragment {name} takes "{slot}", which no fragment before it gives'
                )
            if type != param.type:
                raise TypeError(f'fragment {name} takes "{slot}" as {param.type}, and it is {type}')
        self._known[stage].update(zip(given, types_of(block.returns), strict=True))

    def _send(self, stage: int, slot: str, to: int, received: str) -> None:
        if slot not in self._known[stage]:
            raise TypeError(f'stage {stage} sends "{slot}", which none of its fragments gives')
        self._known[to][received] = self._known[stage][slot]

    def _type(self, stage: int, slot: str) -> TensorType | None:
        """Return the type of a value that a fragment takes; `None` if the stage lacks it."""
        if not ARGUMENT_SLOT.fullmatch(slot):
            return self._known[stage].get(slot)
        number = slot_number(slot, "argument")
        if number is None or number >= len(self._operands):
            return None
        type, window = self._operands[number], slot_window(slot)
        sizes = (part.stop - part.start for part in window)
        return type.with_shape((*sizes, *type.shape[len(window) :]))


def fragment_place(name: str) -> tuple[int, str]:
    """Return the stage and the letter of the pass that a fragment names; raise `TypeError` for
    another text."""
    stage, letter = name[:-1], name[-1:]
    if not (stage.isdecimal() and letter and letter in "FBIW"):
        raise TypeError(
            f'the fragment "{name}" is not a stage and its pass, such as 0F, 1B, 1I or 1W'
        )
    return int(stage), letter
