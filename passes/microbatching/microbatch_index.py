"""Operations that depend on the microbatch: the number of an iteration replaces a position.

before: `%i = axis-index(axes=[data, microbatch])`, `%y = all-slice(%x, dim=0, axes=[microbatch])`
after:  `%d = axis-index(axes=[data])`, `%i = add(mul(%d, 2), %microbatch)`, and
        `%y = dynamic_slice(%x, mul(%microbatch, 4), ...)`
"""

from collections.abc import Iterator
from dataclasses import replace

from shardir import ops
from shardir.errors import PipelineError
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Axes, Axis
from shardir.ops.communication.collectives import axis_index

AXES_ATTRIBUTES = ("axes", "source", "target")
_INDEXED = (axis_index, ops.all_slice)
"""Operations that depend on the position along the axis, and send nothing."""


def crosses(op: Op, name: str) -> bool:
    """Return whether an operation names a mesh axis, without the operations in its blocks."""
    return any(axis.name == name for axis in _axes_of(op))


def depends_on_index(op: Op, name: str) -> bool:
    """Return whether an operation, or one in its blocks, depends on the position along an axis and
    sends nothing."""
    return any(each.spec in _INDEXED and crosses(each, name) for each in _walk(op))


def split_axes(op: Op, axis: Axis) -> Axes:
    """Return the other axes of an operation that names the whole axis, as the minor one."""
    axes: Axes = op.attrs["axes"]
    if axes[-1] != axis:
        raise refuse(op, axis.name)
    return axes[:-1]


def refuse(op: Op, name: str) -> PipelineError:
    """Return the error for an operation that a loop over microbatches cannot contain."""
    result = f" of %{op.results[0].name}" if op.results else ""
    origin = f" ({op.loc})" if op.loc is not None else ""
    return PipelineError(
        f"accumulate-microbatches cannot run {op.name}{result} along the axis {name!r} in a loop"
        f"{origin}; write the loop over microbatches with lax.scan"
    )


def index_operation(b: Builder, op: Op, axis: Axis, index: Value) -> Op:
    """Return an operation in which the position along an axis is a number, `index`; append the
    operations that it needs."""
    if op.blocks:
        blocks = tuple(_index_block(b, block, axis, index) for block in op.blocks)
        return replace(op, blocks=blocks)
    if not crosses(op, axis.name):
        return op
    others = split_axes(op, axis)
    b.loc, b.why = op.loc, op.why
    if op.spec is axis_index:
        return _index_position(b, op, others, axis, index)
    return _index_slice(b, op, others, index)


def _index_block(b: Builder, block: Block, axis: Axis, index: Value) -> Block:
    inner = b.inner()
    for op in block.ops:
        inner.append(index_operation(inner, op, axis, index))
    return inner.block(block.params, block.returns)


def _index_position(b: Builder, op: Op, others: Axes, axis: Axis, index: Value) -> Op:
    if not others:
        return Op(ops.reshape, (index,), op.results, {}, (), op.loc, op.why)
    outer = b.axis_index(axes=others)
    start = b.mul(outer, b.full(axis.size, outer.type))
    return Op(ops.add, (start, index), op.results, {}, (), op.loc, op.why)


def _index_slice(b: Builder, op: Op, others: Axes, index: Value) -> Op:
    (value,), dim = op.operands, op.attrs["dim"]
    if others:
        value = b.all_slice(value, dim=dim, axes=others)
    zero = b.full(0, index.type)
    start = b.mul(index, b.full(op.result.type.shape[dim], index.type))
    starts = [start if d == dim else zero for d in range(value.type.rank)]
    return Op(ops.dynamic_slice, (value, *starts), op.results, {}, (), op.loc, op.why)


def _axes_of(op: Op) -> Iterator[Axis]:
    for name in AXES_ATTRIBUTES:
        axes = op.attrs.get(name, ())
        if isinstance(axes, tuple):
            yield from (axis for axis in axes if isinstance(axis, Axis))


def _walk(op: Op) -> Iterator[Op]:
    yield op
    for block in op.blocks:
        yield from block.walk()
