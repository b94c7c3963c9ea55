"""What the way back needs of the way forward.

The operations of a gradient use values that the program computed on its way forward. Where both
ways are one block they just do; where they are two (the body of a loop and that of its reverse),
such values must be handed over. Values that cost next to nothing are made again instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shardir.build import Names
from shardir.ir import Block, Op, Value
from shardir.passes.program import acts_inside

CHEAP = ("constant", "iota", "broadcast", "reshape", "convert", "axis-index")
"""Operations that are repeated rather than have their result kept, if their operands are."""


@dataclass(frozen=True, slots=True)
class Handover:
    """`saved` are handed over, `again` makes the rest anew; `new` maps to what it makes."""

    saved: tuple[Value, ...]
    again: tuple[Op, ...]
    new: dict[Value, Value]


def live(ops: Sequence[Op], returns: Iterable[Value]) -> tuple[Op, ...]:
    """The operations that `returns` depend on, and those that are there for more than that."""
    needed = set(returns)
    kept = []
    for op in reversed(ops):
        if acts_inside(op) or any(value in needed for value in op.results):
            kept.append(op)
            needed.update(op.uses())
    return tuple(reversed(kept))


def hand_over(forward: Block, back: Block, names: Names) -> Handover:
    """What `back` uses of `forward`."""
    defined = set(forward.values())
    used = [value for value in back.captures() if value in defined]
    cheap: dict[Value, Op] = {}
    for op in forward.ops:
        if op.name in CHEAP and all(v in cheap or v not in defined for v in op.operands):
            cheap[op.result] = op
    wanted = [cheap[value] for value in used if value in cheap]
    repeated = live([*cheap.values()], [op.result for op in wanted])
    new: dict[Value, Value] = {}
    again = []
    for op in repeated:
        new[op.result] = replace(op.result, name=names.fresh(op.result.name))
        operands = tuple(new.get(v, v) for v in op.operands)
        again.append(replace(op, operands=operands, results=(new[op.result],)))
    return Handover(tuple(v for v in used if v not in cheap), tuple(again), new)
