"""Fused operations: one loop nest over the elements, without intermediate arrays.

`fused` applies its block. The block may contain what one loop nest computes:

- elementwise operations, `broadcast`, `iota`, scalar constants, `reshape` that only adds or
  removes dimensions of size 1, and `bitcast` between numbers of 32 or of 64 bits;
- the reductions `sum`, `prod`, `max`, `min`, `any` and `all`.

Every dimension of a value (except those of size 1) maps to one loop of the nest: operands of an
elementwise operation have equal mappings, a broadcast adds loops, a reduction removes some. No
value maps two dimensions to one loop (that would be a transpose; pass the operand twice, as two
parameters).

All reductions remove the same loops and have operands of one shape that map to all loops. The nest
thus has two levels: all loops, and the loops that no reduction removes. Reduced values may be
broadcast to the full nest again, as in a softmax. A returned value maps to all loops of one of the
two levels; values of the full nest that are reduced or returned have equal mappings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import define_op
from shardir.ir.types import TensorType
from shardir.ops.control_flow.block_types import Types, types_of
from shardir.ops.control_flow.derivative_regions import block_edges
from shardir.ops.control_flow.loop_unification import (
    LoopMapping,
    LoopUnification,
    check_nest_block,
    live_values,
    non_unit_dims,
    non_unit_sizes,
)
from shardir.ops.reductions.reduce import all_, any_, max_, min_, prod, sum_

REDUCTIONS = (sum_, prod, max_, min_, any_, all_)


@dataclass(frozen=True, slots=True)
class FusedLoopNest:
    """The loop nest of a block: the extent of each loop, and the loops that reductions remove."""

    extents: tuple[int, ...]
    reduced_loops: frozenset[int]
    mappings: Mapping[Value, LoopMapping]
    """The loops of each value of the block."""


def build_loop_nest(block: Block) -> FusedLoopNest:
    """Return the loop nest of a block; raise `TypeError` if the block is not one loop nest."""
    joined, live = LoopUnification(block.params, REDUCTIONS), live_values(block)
    reductions: list[tuple[Op, LoopMapping]] = []
    for op in block.ops:
        joined.check_operands(op)
        if op.spec in REDUCTIONS:
            ended = joined.map_reduction(op)
            if ended and op.result in live:
                reductions.append((op, ended))
        else:
            joined.map_result(op)
    _unify_reduced(block, joined, [op for op, _ in reductions])
    return _make_nest(block, joined, reductions)


def _unify_reduced(block: Block, joined: LoopUnification, reductions: Sequence[Op]) -> None:
    """Unify the loops of reduced values, and of returned values of the same shape.

    The elementwise operations need not unify them: a value may be broadcast along a loop that no
    other operation identifies.
    """
    taken = [op.operands[0] for op in reductions]
    values = taken or sorted(block.returns, key=lambda value: -len(non_unit_dims(value.type)))
    for value in (*taken, *block.returns):
        if non_unit_sizes(value.type) == non_unit_sizes(values[0].type):
            joined.unify(joined.mappings[value], joined.mappings[values[0]])


def _make_nest(
    block: Block, joined: LoopUnification, reductions: list[tuple[Op, LoopMapping]]
) -> FusedLoopNest:
    numbers: dict[int, int] = {}
    extents: list[int] = []
    lies: dict[Value, LoopMapping] = {}
    used = live_values(block)
    for value, axes in joined.mappings.items():
        mapping = []
        for dim, axis in zip(non_unit_dims(value.type), axes, strict=True):
            root = joined.root(axis)
            if root not in numbers and value in used:
                numbers[root] = len(extents)
                extents.append(value.type.shape[dim])
            mapping.append(numbers.get(root, -1))
        if len(set(mapping)) != len(mapping) and -1 not in mapping:
            raise TypeError(
                f"%{value.name}: {value.type} maps two dimensions to one loop; transpose "
                "an operand outside, or pass it twice"
            )
        lies[value] = tuple(mapping)
    every = frozenset(range(len(extents)))
    reduced = frozenset[int]()
    for number, (op, ended) in enumerate(reductions):
        own = frozenset(numbers[joined.root(axis)] for axis in ended)
        x = op.operands[0]
        if frozenset(lies[x]) != every:
            raise TypeError(
                f"%{op.result.name} = {op.name} reduces %{x.name}: {x.type}, which maps to "
                "only some loops; reduce it outside"
            )
        if number and own != reduced:
            first = reductions[0][0]
            raise TypeError(
                f"%{first.result.name} = {first.name} and %{op.result.name} = {op.name} remove "
                "different loops; reduce one of them outside"
            )
        reduced = own
    for value in block.returns:
        if frozenset(lies[value]) not in (every, every - reduced):
            raise TypeError(
                f"it yields %{value.name}: {value.type}, which maps to only some loops; "
                "compute it outside"
            )
    return FusedLoopNest(tuple(extents), reduced, lies)


def _fused_type(*operands: TensorType, result: object, blocks: tuple[Block, ...]) -> Types:
    block = check_nest_block(operands, blocks)
    build_loop_nest(block)
    return types_of(block.returns)


fused = define_op("fused", type=_fused_type, edges=block_edges, blocks=1, is_loop_nest=True)
"""The block, applied to the operands."""
