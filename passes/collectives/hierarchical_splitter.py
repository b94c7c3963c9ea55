"""Split the collectives of a program into those within processes and those between.

The rule of a collective appends its replacement; the last operation gets its results. For an
asynchronous collective, the part between processes is awaited later if it is the last one.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from shardir import ops
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.builder import Builder, substitute
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Axes
from shardir.ir.types import COMPLEX, FLOATS
from shardir.ops.communication.async_collectives import START_OPS, is_started, kind_of
from shardir.passes.whole_program.dim_arrangement import slice_rows

ORDERED_REDUCTIONS = {"add": "sum", "mul": "prod"}
"""Reductions whose results depend on the order, and their operations along a dimension."""
POSITION_OPERATIONS = (ops.all_slice, ops.axis_index)
"""Operations that depend only on the position of a device."""

SplitRule = Callable[["CollectiveSplitter", Op], Value]
"""Appends the replacement of an operation; returns the replacement of its result."""


class CollectiveSplitter:
    """Emits a block into the builder `b`."""

    def __init__(
        self, b: Builder, levels: ProcessLevels, small: int, rules: Mapping[str, SplitRule]
    ) -> None:
        self.b, self.levels, self.small, self.rules = b, levels, small, rules

    def block(self, block: Block) -> Block:
        """Return the block with its collectives split."""
        inner = CollectiveSplitter(self.b.inner(), self.levels, self.small, self.rules)
        new: dict[Value, Value] = {}
        there: set[Value] = set()
        for op in block.ops:
            if any(value in new for value in op.uses()):
                (op,) = substitute(Block((), (op,), ()), new).ops
            if op.spec is ops.done and op.operands[0] in there:
                new[op.result] = op.operands[0]
            elif not inner.split(op):
                there.add(op.result)
        returns = tuple(new.get(value, value) for value in block.returns)
        return Block(block.params, tuple(inner.b.ops), returns)

    def split(self, op: Op) -> bool:
        """Append an operation; return whether a `done` that takes its result remains."""
        b, rule = self.b, self.rules.get(kind_of(op))
        if op.blocks:
            op = replace(op, blocks=tuple(map(self.block, op.blocks)))
        if rule is None or not self.needs_split(op):
            b.append(op)
            return True
        b.loc, b.why = op.loc, op.why
        start = len(b.ops)
        result = rule(self, op)
        if len(b.ops) == start:
            b.reshape(result, result=result.type)
        last = b.ops[-1]
        started = is_started(op) and self.is_between(last)
        spec = START_OPS[last.spec] if started else last.spec
        b.ops[-1] = replace(last, spec=spec, results=op.results)
        return started

    def needs_split(self, op: Op) -> bool:
        """Return whether an operation involves both levels, or the position of a process."""
        far, near = self.split_levels(crossed_axes(op.attrs))
        return bool(far) and (bool(near) or op.spec in POSITION_OPERATIONS)

    def is_between(self, op: Op) -> bool:
        """Return whether an operation is a collective between processes."""
        axes = op.attrs.get("axes", ())
        return op.spec in START_OPS and bool(self.levels.far_parts(axes))

    def name(self, op: Op, run: Axes) -> str:
        """Return the name of the part of a collective along axes of one level."""
        level = "between_processes" if self.levels.is_far(run[0]) else "within_process"
        return f"{op.result.name}.{level}"

    # Building blocks of the rules

    def gather(self, op: Op, x: Value, dim: int) -> Value:
        """Gather the shards along all axes of `op`, the minor ones first."""
        for run in reversed(self.levels.group_by_level(op.attrs["axes"])):
            x = self.b.all_gather(x, dim=dim, axes=run, name=self.name(op, run))
        return x

    def slice_run(self, x: Value, dim: int, run: Axes) -> Value:
        """Slice each device's shard along a run of axes of one level."""
        if self.levels.position_of_process is None or not self.levels.is_far(run[0]):
            result: Value = self.b.all_slice(x, dim=dim, axes=run, name=f"{x.name}.shard")
            return result
        size = x.type.shape[dim] // prod(axis.size for axis in run)
        return slice_rows(self.b, x, dim, self.levels.position(run) * size, size)

    def combine_in_device_order(self, op: Op, x: Value) -> Value | None:
        """Return the operands of all devices combined in device order.

        Returns `None` if the order does not matter, or if a process would receive more than `small`
        bytes.
        """
        kind, axes, type = op.attrs["op"], op.attrs["axes"], x.type
        if kind not in ORDERED_REDUCTIONS or type.dtype not in (*FLOATS, *COMPLEX):
            return None
        far, near = (prod(axis.size for axis in each) for each in self.split_levels(axes))
        if (far - 1) * near * type.nbytes > self.small:
            return None
        row = self.b.reshape(x, result=type.with_shape((1, *type.shape)), name=f"{x.name}.row")
        parts = self.gather(op, row, 0)
        result: Value = self.b.emit(
            OPS[ORDERED_REDUCTIONS[kind]], parts, dims=(0,), name=f"{op.result.name}.all"
        )
        return result

    def split_levels(self, axes: Axes) -> tuple[Axes, Axes]:
        """Return the sub-axes between processes and those within."""
        return self.levels.far_parts(axes), self.levels.near_parts(axes)

    def combine_between_processes(
        self, op: Op, x: Value, combine: Callable[[Value], Value]
    ) -> Value:
        """Apply `combine` between processes to the values reduced within processes.

        16-bit floating-point sums are kept in f32 in between.
        """
        near, kind, type = self.split_levels(op.attrs["axes"])[1], op.attrs["op"], x.type
        wide = kind in ORDERED_REDUCTIONS and type.dtype in NARROW_FLOATS
        if wide:
            x = self.b.convert(x, result=type.with_dtype("f32"), name=f"{x.name}.wide")
        result = combine(self.b.all_reduce(x, axes=near, op=kind, name=self.name(op, near)))
        if wide:
            result = self.b.convert(result, result=result.type.with_dtype(type.dtype))
        return result
