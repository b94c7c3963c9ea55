"""Convolutions of shards with halos become convolutions of the global array.

before: `%c = concatenate(%from.before, %x, %from.behind, dim=1)`, both from permutes of rows of %x
        `%y = convolution(%c, %w, padding=[[0, 0], ...])`, where `%x` is sharded along rows
after:  `%y = convolution(%x.all, %w, padding=[[1, 1], ...])`, whose rows are distributed

The first and the last device receive zeros, which equals padding. Likewise the sum over devices of
filter gradients becomes one convolution of the global arrays.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from shardir import ops
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes
from shardir.ops.contraction.convolution_factors import parse_dims
from shardir.passes.whole_program.collective_rules import (
    REDUCE_RULE,
    distribute_shards,
    gather_shards,
    record_collective,
    reduce_sub_axes,
)
from shardir.passes.whole_program.merger import (
    BatchedValue,
    DeviceMerger,
    MergeRule,
    batch_by_sub_axis,
)
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes


class Halo(NamedTuple):
    """Rows of a device with halos: `low` and `high` rows of dimension `dim` of `rows` from adjacent
    devices.

    `rows` is sharded along `axes`.
    """

    rows: Value
    dim: int
    axes: Axes
    low: int
    high: int


def halo_of(merger: DeviceMerger, value: Value) -> Halo | None:
    """Return the halo that a value consists of, else `None`."""
    op = merger.makers.get(value)
    if op is None or op.spec is not ops.concatenate or not 2 <= len(op.operands) <= 3:
        return None
    dim = op.attrs["dim"]
    for at, x in enumerate(op.operands[:2]):
        sides = [
            _match_neighbor_rows(merger, other, x, dim, 1 if i < at else -1)
            for i, other in enumerate(op.operands)
            if i != at
        ]
        if at == 0 and len(op.operands) == 3:
            continue
        axes = {side_axes for side_axes in sides if side_axes is not None}
        if None not in sides and len(axes) == 1:
            low = sum(o.type.shape[dim] for o in op.operands[:at])
            high = sum(o.type.shape[dim] for o in op.operands[at + 1 :])
            return Halo(x, dim, axes.pop(), low, high)
    return None


def _match_neighbor_rows(
    merger: DeviceMerger, value: Value, x: Value, dim: int, step: int
) -> Axes | None:
    """Return the axes along which a value is the nearest rows of the previous (1) or next (-1)
    device."""
    permute = merger.makers.get(value)
    if (
        permute is None
        or permute.spec is not ops.collective_permute
        or "pairs" not in permute.attrs
    ):
        return None
    axes: Axes = permute.attrs["axes"]
    if merger.sub_axes.levels.far_parts(axes):
        return None
    count = prod(axis.size for axis in axes)
    neighbor_pairs = {(i, i + step) for i in range(count) if 0 <= i + step < count}
    if set(permute.attrs["pairs"]) != neighbor_pairs:
        return None
    (sent,) = permute.operands
    if sent is x:
        return axes
    slice_op = merger.makers.get(sent)
    if slice_op is None or slice_op.spec is not ops.slice_ or slice_op.operands[0] is not x:
        return None
    start = x.type.shape[dim] - sent.type.shape[dim] if step == 1 else 0
    starts = tuple(start if d == dim else 0 for d in range(x.type.rank))
    unit = all(stride == 1 for stride in slice_op.attrs["strides"])
    return axes if unit and tuple(slice_op.attrs["starts"]) == starts else None


def _convolution(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    _, _, to = parse_dims(op.attrs["dims"])
    halos = []
    for halo in _nested_halos(merger, op.operands[0]):
        spatial_index = _plain_spatial_index(op, halo)
        filters = merger.sub_axes_of.get(op.operands[1], ())
        if spatial_index is None or any(
            sub_axis in filters for sub_axis in merger.sub_axes.of(halo.axes)
        ):
            break
        if op.result.type.shape[to.spatial[spatial_index]] * op.attrs["strides"][
            spatial_index
        ] != _row_count(halo):
            break
        halos.append(halo)
    if not halos:
        return batch_by_sub_axis(merger, op)
    result = _convolve_all_rows(merger, op, halos, op.operands[1], deals=True)
    for halo in halos:
        dim = to.spatial[_spatial_index(op, halo)]
        result = distribute_shards(merger, result, dim, merger.sub_axes.of(halo.axes))
    return [result]


def _nested_halos(merger: DeviceMerger, value: Value) -> list[Halo]:
    """Return nested halos along other axes, the outermost first."""
    halos: list[Halo] = []
    while (halo := halo_of(merger, value)) is not None:
        if any(set(halo.axes) & set(other.axes) for other in halos):
            break
        halos.append(halo)
        value = halo.rows
    return halos


def _row_count(halo: Halo) -> int:
    return halo.rows.type.shape[halo.dim]


def _spatial_index(op: Op, halo: Halo) -> int:
    """Return the spatial dimension that has the halo."""
    return parse_dims(op.attrs["dims"])[0].spatial.index(halo.dim)


def _plain_spatial_index(op: Op, halo: Halo) -> int | None:
    """Return the spatial dimension that has the halo if it has no padding or dilation."""
    if halo.dim not in parse_dims(op.attrs["dims"])[0].spatial:
        return None
    spatial_index = _spatial_index(op, halo)
    plain = (
        tuple(op.attrs["padding"][spatial_index]) == (0, 0)
        and op.attrs["lhs_dilation"][spatial_index] == 1
    )
    return spatial_index if plain else None


def _convolve_all_rows(
    merger: DeviceMerger, op: Op, halos: Sequence[Halo], by: Value, *, deals: bool
) -> BatchedValue:
    """Return the convolution of all rows; `deals` if the result has as many rows, to be
    distributed."""
    _, _, to = parse_dims(op.attrs["dims"])
    inside = halos[-1].rows
    gathered, shape = merger.get(inside), list(inside.type.shape)
    padding, full_shape = list(op.attrs["padding"]), list(op.result.type.shape)
    for halo in halos:
        sub_axes, spatial_index = merger.sub_axes.of(halo.axes), _spatial_index(op, halo)
        gathered = gather_shards(merger, gathered, halo.dim, sub_axes)
        shape[halo.dim] *= prod(axis_sizes(sub_axes))
        padding[spatial_index] = (halo.low, halo.high)
        if deals:
            full_shape[to.spatial[spatial_index]] *= prod(axis_sizes(sub_axes))
    x = Value(inside.type.with_shape(shape))
    merger.bind(x, gathered)
    result = Value(op.result.type.with_shape(full_shape), op.result.name)
    attrs = {**op.attrs, "padding": tuple(padding)}
    joined = replace(op, operands=(x, by), results=(result,), attrs=attrs)
    if not merger.union(joined.operands):
        return BatchedValue(_append_convolution(merger, joined), ())
    (batched,) = batch_by_sub_axis(merger, joined)
    return batched


def _append_convolution(merger: DeviceMerger, op: Op) -> Value:
    values = [merger.get(value).value for value in op.operands]
    result: Value = merger.b.emit(op.spec, *values, result=op.result.type, **op.attrs)
    return result


def _all_reduce(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    return _merge_filter_gradient(merger, op) or REDUCE_RULE(merger, op)


def _merge_filter_gradient(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue] | None:
    """Return the filter gradient of all devices as one convolution of the global arrays, else
    `None`."""
    maker = merger.makers.get(op.operands[0])
    if op.attrs["op"] != "add" or maker is None or maker.spec is not ops.convolution:
        return None
    by = maker.operands[1]
    axes = merger.sub_axes.of(op.attrs["axes"])
    _, inner, _ = parse_dims(maker.attrs["dims"])
    halos = _nested_halos(merger, maker.operands[0])
    batched = merger.get(by)
    shape = list(by.type.shape)
    for halo in halos:
        sub_axes, spatial_index = merger.sub_axes.of(halo.axes), _plain_spatial_index(maker, halo)
        if spatial_index is None or not all(sub_axis in axes for sub_axis in sub_axes):
            return None
        rows_of, step = inner.spatial[spatial_index], maker.attrs["rhs_dilation"][spatial_index]
        if shape[rows_of] * step != _row_count(halo):
            return None
        batched = gather_shards(merger, batched, rows_of, sub_axes)
        shape[rows_of] *= prod(axis_sizes(sub_axes))
    if not halos:
        return None
    record_collective(merger, op)
    every = Value(by.type.with_shape(shape))
    merger.bind(every, batched)
    result = _convolve_all_rows(merger, maker, halos, every, deals=False)
    done = {sub_axis for halo in halos for sub_axis in merger.sub_axes.of(halo.axes)}
    rest = tuple(sub_axis for sub_axis in axes if sub_axis not in done)
    return [reduce_sub_axes(merger, result, rest, "add")]


HALO_RULES: dict[str, MergeRule] = {"convolution": _convolution, "all-reduce": _all_reduce}
