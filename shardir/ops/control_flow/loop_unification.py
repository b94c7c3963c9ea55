"""The loops to which dimensions of values map, if a block is computed by one loop nest.

Operands of an elementwise operation map to the same loops; a broadcast adds loops, and a reduction
removes some. Dimensions of size 1 map to no loop.
"""

from collections.abc import Sequence, Set

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Dense, OpSpec
from shardir.ir.types import TensorType
from shardir.ops.communication.annotations import (
    checkpoint_name,
    propagation_barrier,
    reshard,
    sharding_constraint,
)
from shardir.ops.control_flow.block_types import Types, check_types, only_block
from shardir.ops.control_flow.pipelines import pipeline_stage
from shardir.ops.elementwise.bitcast import bitcast
from shardir.ops.elementwise.select_and_clamp import clamp, select
from shardir.ops.random.random_bits import random_fold_in, random_hash
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape
from shardir.ops.type_checks import join_with_and

LoopMapping = tuple[int, ...]
"""The loop for each dimension of a value that is not of size 1."""
_ANNOTATIONS = (
    sharding_constraint,
    reshard,
    propagation_barrier,
    checkpoint_name,
    pipeline_stage,
)
_HASHES = (random_fold_in, random_hash)
"""Hashes run twenty rounds on pairs of words; separate loops compute them faster."""
_REGISTER_DTYPES = ("f32", "i32", "u32", "f64", "i64", "u64")
"""Element types whose representation in registers equals that in memory."""


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


class LoopUnification:
    """A union-find structure over the dimensions of values of a block that map to the same loop.

    `others` are the operations of the block whose results `map_result` does not map.
    """

    def __init__(self, params: Sequence[Value], others: Sequence[OpSpec]) -> None:
        self.mappings: dict[Value, LoopMapping] = {}
        self.parent: list[int] = []
        self.others = others
        for param in params:
            self.add_value(param)

    def check_operands(self, op: Op) -> None:
        """Raise `TypeError` if an operation of the block uses a value of the blocks around it."""
        for value in op.operands:
            if value not in self.mappings:
                raise TypeError(
                    f"its block uses %{value.name}: {value.type} of the blocks around it; pass it "
                    "as an operand"
                )

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
        """Map the result of an operation to loops, except of one of `others`."""
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
                f"{join_with_and([spec.name for spec in self.others])}"
            )


def check_nest_block(operands: Types, blocks: Sequence[Block]) -> Block:
    """Return the block of an operation that is one loop nest over its operands; raise `TypeError`
    if it has another number of blocks, or the block takes other types or yields nothing."""
    block = only_block(blocks)
    check_types("its block takes", block.params, operands)
    if not block.returns:
        raise TypeError("its block yields nothing; it has at least one result")
    return block


def live_values(block: Block) -> Set[Value]:
    """Return the values on which the results of a block depend."""
    live = set(block.returns)
    for op in reversed(block.ops):
        if any(result in live for result in op.results):
            live.update(op.operands)
    return live
