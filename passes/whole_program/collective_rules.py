"""Collectives become operations on the dimensions of their sub-axes.

A sum over devices is a sum over a dimension, and gathered, exchanged or sliced values are the same
elements in another shape. A value that is replicated along the axes of a collective is broadcast
only where the result needs it: the maximum of equal values is the value itself.
"""

from collections.abc import Sequence
from math import prod

from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.dtypes import DTYPE_INFO, FLOATS, INTEGERS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes
from shardir.ops.type_checks import Ints
from shardir.passes.whole_program.dim_arrangement import (
    arrange_dims,
    number_parts,
    reshape_if_needed,
    slice_rows,
)
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes
from shardir.text.printer import format_axis

DIM_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
BOOL_REDUCTIONS = {
    "add": "any",
    "max": "any",
    "or": "any",
    "mul": "all",
    "min": "all",
    "and": "all",
}


def reduce_sub_axes(
    merger: DeviceMerger, batched: BatchedValue, sub_axes: Axes, op: str
) -> BatchedValue:
    """Return the values of all positions along `sub_axes`, reduced."""
    b = merger.b
    value, own = batched
    same = tuple(sub_axis for sub_axis in sub_axes if sub_axis not in own)
    if same and op in ("add", "mul") and value.type.dtype != "bool":
        count = prod(axis_sizes(same))
        if op == "add" and is_sum_exact_product(count, value.type.dtype):
            value = b.mul(value, b.full(count, value.type))
        else:
            own = merger.sub_axes.union(own, sub_axes)
            value = merger.widen(batched, own)
    dims = tuple(i for i, sub_axis in enumerate(own) if sub_axis in sub_axes)
    left = tuple(sub_axis for sub_axis in own if sub_axis not in sub_axes)
    if not dims:
        return BatchedValue(value, left)
    if value.type.dtype == "bool":
        return BatchedValue(b.emit(OPS[BOOL_REDUCTIONS[op]], value, dims=dims), left)
    if op in DIM_REDUCTIONS:
        return BatchedValue(b.emit(OPS[DIM_REDUCTIONS[op]], value, dims=dims), left)
    return BatchedValue(_reduce_bitwise(merger, value, dims, op), left)


def is_sum_exact_product(count: int, dtype: str) -> bool:
    """Return whether a sum of equal values equals a product to the bit.

    The count must be a number of the dtype, since it is a constant of the product.
    """
    if dtype in INTEGERS:
        return count <= DTYPE_INFO[dtype].max_integer
    is_power_of_two = count & (count - 1) == 0
    return dtype in FLOATS and is_power_of_two and count <= DTYPE_INFO[dtype].max_finite


def _reduce_bitwise(merger: DeviceMerger, value: Value, dims: Sequence[int], op: str) -> Value:
    """Return the bitwise reduction of integers by repeated halving."""
    b = merger.b
    remaining_dims = [d for d in range(value.type.rank) if d not in dims]
    split = [(size,) for size in value.type.shape]
    order: list[Ints] = [tuple(dims), *((d,) for d in remaining_dims)]
    result = arrange_dims(b, value, split, order)
    shape = result.type.shape[1:]
    while (count := result.type.shape[0]) > 1:
        half = count // 2
        pairs = b.emit(
            OPS[op], slice_rows(b, result, 0, 0, half), slice_rows(b, result, 0, half, half)
        )
        odd = [slice_rows(b, result, 0, 2 * half, 1)] if count % 2 else []
        result = b.concatenate(pairs, *odd, dim=0) if odd else pairs
    return reshape_if_needed(b, result, shape)


def gather_shards(
    merger: DeviceMerger, batched: BatchedValue, dim: int, sub_axes: Axes
) -> BatchedValue:
    """Return the shards of all positions along `sub_axes`, concatenated along `dim`."""
    own = merger.sub_axes.union(batched.sub_axes, sub_axes)
    value = merger.widen(batched, own)
    left = tuple(sub_axis for sub_axis in own if sub_axis not in sub_axes)
    order: list[Ints] = [(own.index(sub_axis),) for sub_axis in left]
    joined = tuple(map(own.index, sub_axes))
    count = len(own)
    order += [(*joined, d) if d == dim + count else (d,) for d in range(count, value.type.rank)]
    return BatchedValue(
        arrange_dims(merger.b, value, [(n,) for n in value.type.shape], order), left
    )


def distribute_shards(
    merger: DeviceMerger, batched: BatchedValue, dim: int, sub_axes: Axes
) -> BatchedValue:
    """Return for each position along `sub_axes` its shard of dimension `dim`.

    If the value differs along some of them already, each position takes the shard of its own value.
    """
    value, own = batched
    if any(sub_axis in own for sub_axis in sub_axes):
        return _distribute_own_shards(merger, batched, dim, sub_axes)
    all_sub_axes = merger.sub_axes.union(own, sub_axes)
    split: list[Ints] = [(n,) for n in value.type.shape]
    at = len(own) + dim
    split[at] = (*axis_sizes(sub_axes), value.type.shape[at] // prod(axis_sizes(sub_axes)))
    parts = number_parts(split)
    position_of = dict(zip(own, range(len(own)), strict=True)) | dict(
        zip(sub_axes, parts[at], strict=False)
    )
    rest = [each if d != dim else each[-1:] for d, each in enumerate(parts[len(own) :])]
    order = [*((position_of[sub_axis],) for sub_axis in all_sub_axes), *rest]
    return BatchedValue(arrange_dims(merger.b, value, split, order), all_sub_axes)


def _distribute_own_shards(
    merger: DeviceMerger, batched: BatchedValue, dim: int, sub_axes: Axes
) -> BatchedValue:
    """Return the shards of a value that differs along some of `sub_axes`: for each position its
    own."""
    value, own = batched
    shared = tuple(sub_axis for sub_axis in sub_axes if sub_axis in own)
    b, all_sub_axes = merger.b, merger.sub_axes.union(own, sub_axes)
    at = len(own) + dim
    split: list[Ints] = [(n,) for n in value.type.shape]
    split[at] = (*axis_sizes(sub_axes), value.type.shape[at] // prod(axis_sizes(sub_axes)))
    parts = number_parts(split)
    inside = dict(zip(sub_axes, parts[at], strict=False))
    outside = {sub_axis: parts[i][0] for i, sub_axis in enumerate(own)}
    rest = [each if d != dim else each[-1:] for d, each in enumerate(parts[len(own) :])]
    others = [sub_axis for sub_axis in all_sub_axes if sub_axis not in shared]
    order = [
        *((outside[sub_axis],) for sub_axis in shared),
        *((inside[sub_axis],) for sub_axis in shared),
        *((outside.get(sub_axis, inside.get(sub_axis, -1)),) for sub_axis in others),
        *rest,
    ]  # fmt: skip
    square = arrange_dims(b, value, split, order)
    count = prod(axis_sizes(shared))
    shard_shape = square.type.shape[2 * len(shared) :]
    flat = reshape_if_needed(b, square, (count * count, *shard_shape))
    steps = (count + 1, *(1 for _ in shard_shape))
    to = value.type.with_shape((count, *shard_shape))
    line = b.slice(flat, starts=(0,) * (1 + len(shard_shape)), strides=steps, result=to)
    now = (*shared, *others)
    dim_sizes = [axis_sizes(shared), *((n,) for n in shard_shape)]
    back = [(now.index(sub_axis),) for sub_axis in all_sub_axes]
    back += [(d,) for d in range(len(now), len(now) + len(rest))]
    return BatchedValue(arrange_dims(b, line, dim_sizes, back), all_sub_axes)


def record_collective(merger: DeviceMerger, op: Op) -> None:
    """Record the name of the collective in the `why` of the operations that replace it."""
    what = collective_title(op, merger.sub_axes.mesh)
    merger.b.why = f"{what}: {op.why}" if op.why else what


def collective_title(op: Op, mesh: Mesh) -> str:
    """Return the name of a replaced collective: `all-gather %h along data`."""
    along = ", ".join(format_axis(axis, mesh) for axis in crossed_axes(op.attrs))
    return f"{op.name.removesuffix('-start')} %{op.result.name} along {along}"


def _all_reduce(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    return [reduce_sub_axes(merger, merger.get(op.operands[0]), sub_axes, op.attrs["op"])]


def _all_gather(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    return [gather_shards(merger, merger.get(op.operands[0]), op.attrs["dim"], sub_axes)]


def _all_slice(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    return [distribute_shards(merger, merger.get(op.operands[0]), op.attrs["dim"], sub_axes)]


def _reduce_scatter(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    total = reduce_sub_axes(merger, merger.get(op.operands[0]), sub_axes, op.attrs["op"])
    return [distribute_shards(merger, total, op.attrs["dim"], sub_axes)]


def _all_to_all(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Exchange chunks: chunk i of position j becomes chunk j of position i."""
    record_collective(merger, op)
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    split_dim, concat = op.attrs["split"], op.attrs["concat"]
    batched = merger.get(op.operands[0])
    own = merger.sub_axes.union(batched.sub_axes, sub_axes)
    value = merger.widen(batched, own)
    count = len(own)
    split: list[Ints] = [(n,) for n in value.type.shape]
    at = count + split_dim
    split[at] = (*axis_sizes(sub_axes), value.type.shape[at] // prod(axis_sizes(sub_axes)))
    parts = number_parts(split)
    receiver = dict(zip(sub_axes, parts[at], strict=False))
    senders = tuple(own.index(sub_axis) for sub_axis in sub_axes)
    order: list[Ints] = [(receiver.get(sub_axis, own.index(sub_axis)),) for sub_axis in own]
    for d, each in enumerate(parts[count:]):
        piece = each[-1:] if d == split_dim else each
        order.append((*senders, *piece) if d == concat else piece)
    return [BatchedValue(arrange_dims(merger.b, value, split, order), own)]


def _same(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    return [merger.get(op.operands[0])]


REDUCE_RULE: MergeRule = _all_reduce
EXCHANGE_RULES: dict[str, MergeRule] = {
    "all-reduce": _all_reduce,
    "all-gather": _all_gather,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": _all_to_all,
}
COLLECTIVE_RULES: dict[str, MergeRule] = {
    **EXCHANGE_RULES,
    **{f"{name}-start": rule for name, rule in EXCHANGE_RULES.items()},
    "all-slice": _all_slice,
    "done": _same,
    "vary": _same,
}
