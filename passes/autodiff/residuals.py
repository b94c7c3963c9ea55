"""Residuals: values of the forward computation that the backward computation uses.

If both are in one block, the backward operations refer to the forward values directly. If they are
in two blocks (the body of a loop and that of its reverse), residuals must be passed between them.
Values of negligible cost are recomputed instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Op, Value
from shardir.passes.rewriting import has_nested_effect

RECOMPUTED_OPERATIONS = (
    specs.constant,
    specs.iota,
    specs.broadcast,
    specs.reshape,
    specs.convert,
    specs.axis_index,
)
"""Operations that are recomputed instead of saved if their operands are available."""


@dataclass(frozen=True, slots=True)
class ResidualSet:
    """Residuals of a block: `saved` values, and operations `recompute` for the others.

    `new` maps each recomputed value to the result of its copy.
    """

    saved: tuple[Value, ...]
    recompute: tuple[Op, ...]
    new: dict[Value, Value]


def eliminate_dead_operations(ops: Sequence[Op], returns: Iterable[Value]) -> tuple[Op, ...]:
    """Return the operations that `returns` depend on, and those with effects."""
    needed = set(returns)
    live_ops = []
    for op in reversed(ops):
        if has_nested_effect(op) or any(value in needed for value in op.results):
            live_ops.append(op)
            needed.update(op.uses())
    return tuple(reversed(live_ops))


def find_residuals(forward: Block, back: Block, names: UniqueNames) -> ResidualSet:
    """Return the residuals: the values of `forward` that `back` uses."""
    defined = set(forward.values())
    used = [value for value in back.captures() if value in defined]
    cheap: dict[Value, Op] = {}
    for op in forward.ops:
        if op.spec in RECOMPUTED_OPERATIONS and all(
            v in cheap or v not in defined for v in op.operands
        ):
            cheap[op.result] = op
    cheap_ops = [cheap[value] for value in used if value in cheap]
    repeated = eliminate_dead_operations([*cheap.values()], [op.result for op in cheap_ops])
    new: dict[Value, Value] = {}
    again = []
    for op in repeated:
        new[op.result] = replace(op.result, name=names.fresh(op.result.name))
        operands = tuple(new.get(v, v) for v in op.operands)
        again.append(replace(op, operands=operands, results=(new[op.result],)))
    return ResidualSet(tuple(v for v in used if v not in cheap), tuple(again), new)
