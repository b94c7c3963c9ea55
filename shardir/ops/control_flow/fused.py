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

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Dense, OpSpec, define_op
from shardir.ir.types import TensorType
from shardir.ops.communication.annotations import (
    checkpoint_name,
    data_flow_edge,
    propagation_barrier,
    reshard,
    sharding_constraint,
)
from shardir.ops.control_flow.derivative_regions import block_edges
from shardir.ops.control_flow.pipelines import pipeline_stage
from shardir.ops.elementwise.bitcast import bitcast
from shardir.ops.elementwise.elementwise import clamp, select
from shardir.ops.random.random_bits import random_fold_in, random_hash
from shardir.ops.reductions.reduce import all_, any_, max_, min_, prod, sum_
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape

Types = tuple[TensorType, ...]
LoopMapping = tuple[int, ...]
"""The loop for each dimension of a value that is not of size 1."""

REDUCTIONS = (sum_, prod, max_, min_, any_, all_)
_ANNOTATIONS = (
    sharding_constraint,
    reshard,
    propagation_barrier,
    data_flow_edge,
    checkpoint_name,
    pipeline_stage,
)
_HASHES = (random_fold_in, random_hash)
"""Hashes run twenty rounds on pairs of words; separate loops compute them faster."""
_REGISTER_DTYPES = ("f32", "i32", "u32", "f64", "i64", "u64")
"""Element types whose representation in registers equals that in memory."""


@dataclass(frozen=True, slots=True)
class FusedLoopNest:
    """The loop nest of a block: the extent of each loop, and the loops that reductions remove."""

    extents: tuple[int, ...]
    reduced_loops: frozenset[int]
    mappings: Mapping[Value, LoopMapping]
    """The loops of each value of the block."""


def is_pointwise(spec: OpSpec) -> bool:
    """Return whether an operation computes each element only from elements of its operands."""
    return spec.elementwise and not spec.spmd and spec not in (*_ANNOTATIONS, *_HASHES)


def non_unit_dims(type: TensorType) -> tuple[int, ...]:
    """Return the dimensions that are not of size 1."""
    return tuple(dim for dim, size in enumerate(type.shape) if size != 1)


def non_unit_sizes(type: TensorType) -> tuple[int, ...]:
    """Return the sizes that are not 1."""
    return tuple(size for size in type.shape if size != 1)


def is_unit_reshape(op: Op) -> bool:
    """Return whether a reshape only adds or removes dimensions of size 1."""
    return non_unit_sizes(op.operands[0].type) == non_unit_sizes(op.result.type)


def is_same_width_bitcast(op: Op) -> bool:
    """Return whether a bitcast reinterprets each number as another one of the same width."""
    return op.spec is bitcast and all(
        value.type.dtype in _REGISTER_DTYPES and value.type.shape == op.result.type.shape
        for value in op.tensors
    )


def live_values(block: Block) -> Set[Value]:
    """Return the values on which the results of a block depend."""
    live = set(block.returns)
    for op in reversed(block.ops):
        if any(result in live for result in op.results):
            live.update(op.operands)
    return live


def build_loop_nest(block: Block) -> FusedLoopNest:
    """Return the loop nest of a block; raise `TypeError` if the block is not one loop nest."""
    joined, live = _LoopUnification(), live_values(block)
    reductions: list[tuple[Op, LoopMapping]] = []
    for param in block.params:
        joined.add_value(param)
    for op in block.ops:
        for value in op.operands:
            if value not in joined.mappings:
                raise TypeError(
                    f"its block uses %{value.name}: {value.type} of the blocks around it; pass it "
                    "as an operand"
                )
        if op.spec in REDUCTIONS:
            ended = joined.map_reduction(op)
            if ended and op.result in live:
                reductions.append((op, ended))
        else:
            joined.map_result(op)
    _unify_reduced(block, joined, [op for op, _ in reductions])
    return _make_nest(block, joined, reductions)


def _unify_reduced(block: Block, joined: "_LoopUnification", reductions: Sequence[Op]) -> None:
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
    block: Block, joined: "_LoopUnification", reductions: list[tuple[Op, LoopMapping]]
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


class _LoopUnification:
    """A union-find structure over the dimensions of values that map to the same loop."""

    def __init__(self) -> None:
        self.mappings: dict[Value, LoopMapping] = {}
        self.parent: list[int] = []

    def root(self, axis: int) -> int:
        while self.parent[axis] != axis:
            self.parent[axis] = self.parent[self.parent[axis]]
            axis = self.parent[axis]
        return axis

    def new_loop(self) -> int:
        self.parent.append(len(self.parent))
        return len(self.parent) - 1

    def add_value(self, value: Value) -> None:
        self.mappings[value] = tuple(self.new_loop() for _ in non_unit_dims(value.type))

    def unify(self, a: LoopMapping, b: LoopMapping) -> None:
        for one, other in zip(a, b, strict=True):
            self.parent[self.root(one)] = self.root(other)

    def map_reduction(self, op: Op) -> LoopMapping:
        """Map the result of a reduction to loops; return the loops that it removes."""
        x, dims = op.operands[0], op.attrs["dims"]
        along = dict(zip(non_unit_dims(x.type), self.mappings[x], strict=True))
        self.mappings[op.result] = tuple(axis for dim, axis in along.items() if dim not in dims)
        return tuple(axis for dim, axis in along.items() if dim in dims)

    def map_result(self, op: Op) -> None:
        """Map the result of an operation that is not a reduction to loops."""
        if op.spec is broadcast:
            x, y = op.operands[0], op.result
            along = dict(zip(non_unit_dims(x.type), self.mappings[x], strict=True))
            source = {target: along.get(dim) for dim, target in enumerate(op.attrs["dims"])}
            axes = (source.get(dim) for dim in non_unit_dims(y.type))
            self.mappings[y] = tuple(self.new_loop() if axis is None else axis for axis in axes)
        elif (op.spec is reshape and is_unit_reshape(op)) or is_same_width_bitcast(op):
            self.mappings[op.result] = self.mappings[op.operands[0]]
        elif op.spec is iota or op.spec is constant:
            if isinstance(op.attrs.get("value"), Dense):
                raise TypeError(
                    f"its constant %{op.result.name} is an array; pass it as an operand"
                )
            self.add_value(op.result)
        elif is_pointwise(op.spec):
            self.add_value(op.result)
            for value in op.operands:
                scalar = op.spec in (select, clamp) and not value.type.shape
                if not scalar:
                    self.unify(self.mappings[value], self.mappings[op.result])
        else:
            raise TypeError(
                f"cannot hold %{op.results[0].name if op.results else ''} = {op.name}; it takes "
                "elementwise operations, broadcast, iota, constants of one number, reshape that "
                "adds or drops dimensions of size 1, bitcast of 32 or 64 bits to as many, and "
                "sum, prod, max, min, any and all"
            )


def _fused_type(*operands: TensorType, result: object, blocks: tuple[Block, ...]) -> Types:
    if len(blocks) != 1:
        raise TypeError(f"has one block, got {len(blocks)}")
    (block,) = blocks
    takes = tuple(value.type for value in block.params)
    if takes != operands:
        expected, got = (", ".join(map(str, types)) for types in (operands, takes))
        raise TypeError(f"its block takes ({got}), expected ({expected})")
    if not block.returns:
        raise TypeError("its block yields nothing; it has at least one result")
    build_loop_nest(block)
    return tuple(value.type for value in block.returns)


fused = define_op("fused", type=_fused_type, edges=block_edges, blocks=1, is_loop_nest=True)
"""The block, applied to the operands."""
