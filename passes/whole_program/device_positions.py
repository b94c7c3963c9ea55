"""Values that depend on the device position, as arrays over all positions.

The position of a device is an iota over the dimensions of its sub-axes. Offsets of slices that
depend on positions alone are known here, and the slices of all devices are the parts of a
dimension, or a sequence of its windows; no gather is needed.

A `dynamic_update_slice` at device-dependent offsets becomes one update per position. The offset of
each position is known at compile time, so no scatter is needed: each position writes at a fixed
offset.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Axes, Axis
from shardir.ir.types import TensorType
from shardir.ops.type_checks import Ints
from shardir.passes.whole_program.collective_rules import distribute_shards, record_collective
from shardir.passes.whole_program.dim_arrangement import arrange_dims, reshape_if_needed, slice_rows
from shardir.passes.whole_program.merger import (
    Array,
    BatchedValue,
    DeviceMerger,
    MergeRule,
    batch_by_sub_axis,
    merge_error,
)
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes

MAX_WINDOWS = 64
"""Maximum number of windows that are sliced individually."""


def _axis_index(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    b, sub_axes = merger.b, merger.sub_axes.of(op.attrs["axes"])
    count = prod(axis_sizes(sub_axes))
    if not sub_axes:
        result = b.full(0, TensorType((), "i32"))
        merger.numbers[result] = np.zeros((), np.int32)
        return [BatchedValue(result, ())]
    line = b.iota(dim=0, result=TensorType((count,), "i32"))
    own = merger.sub_axes.in_mesh_order(sub_axes)
    order = [(sub_axes.index(sub_axis),) for sub_axis in own]
    result = arrange_dims(b, line, [axis_sizes(sub_axes)], order)
    numbers = np.arange(count, dtype=np.int32).reshape(axis_sizes(sub_axes))
    merger.numbers[result] = numbers.transpose([i for (i,) in order])
    return [BatchedValue(result, own)]


def _dynamic_slice(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    x, *starts = op.operands
    offsets = known_offsets(merger, starts, x.type.shape, op.result.type.shape)
    if offsets is None or not any(merger.sub_axes_of.get(start) for start in starts):
        return append_batched(merger, op)
    return [_slice_windows(merger, merger.get(x), offsets, op.result.type.shape)]


def append_batched(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Append the operation unchanged, or batched per sub-axis if an operand differs."""
    if merger.union(op.operands):
        return batch_by_sub_axis(merger, op)
    values = (merger.get(value).value for value in op.operands)
    stated = op.results[0].type if len(op.results) == 1 else tuple(v.type for v in op.results)
    return [BatchedValue(merger.b.emit(op.spec, *values, result=stated, **op.attrs), ())]


def known_offsets(
    merger: DeviceMerger, starts: Sequence[Value], full_shape: Sequence[int], size: Sequence[int]
) -> list[tuple[Array, Axes]] | None:
    """Return for each dimension the offsets over sub-axes, clamped as by `dynamic_slice`; `None` if
    unknown."""
    result: list[tuple[Array, Axes]] = []
    for start, n, m in zip(starts, full_shape, size, strict=True):
        value, sub_axes = merger.get(start)
        numbers = merger.known_elements(value)
        if n == m:
            numbers, sub_axes = np.zeros((), np.int64), ()
        if numbers is None:
            return None
        inside = [min(max(int(number), 0), n - m) for number in numbers.flat]
        result.append((np.array(inside, np.int64).reshape(numbers.shape), sub_axes))
    return result


def _slice_windows(
    merger: DeviceMerger, batched: BatchedValue, starts: Sequence[Any], shape: Sequence[int]
) -> BatchedValue:
    """Return the window of each position, dimension by dimension."""
    for dim, ((numbers, sub_axes), size) in enumerate(zip(starts, shape, strict=True)):
        batched = _slice_window(merger, batched, dim, *drop_constant_axes(numbers, sub_axes), size)
    return _widen_in_processes(merger, batched, starts)


def _widen_in_processes(
    merger: DeviceMerger, batched: BatchedValue, offsets: Sequence[tuple[Array, Axes]]
) -> BatchedValue:
    """Return the value with all sub-axes of the offsets in the program of one process.

    Along a sub-axis, the offsets of one process can be equal and those of another differ, but
    collectives between processes need values of the same shape.
    """
    if merger.sub_axes.levels.position_of_process is None:
        return batched
    own = merger.sub_axes.union(batched.sub_axes, *(sub_axes for _, sub_axes in offsets))
    return BatchedValue(merger.widen(batched, own), own)


def drop_constant_axes(numbers: Array, sub_axes: Axes) -> tuple[Array, Axes]:
    """Return the numbers without the sub-axes along which they are equal."""
    for i in reversed(range(len(sub_axes))):
        first = numbers.take(0, axis=i)
        if (numbers == np.expand_dims(first, i)).all():
            numbers, sub_axes = first, (*sub_axes[:i], *sub_axes[i + 1 :])
    return numbers, sub_axes


def _slice_window(
    merger: DeviceMerger, batched: BatchedValue, dim: int, starts: Array, sub_axes: Axes, size: int
) -> BatchedValue:
    b = merger.b
    value, own = batched
    at = len(own) + dim
    if not sub_axes:
        return BatchedValue(slice_rows(b, value, at, int(starts), size), own)
    tiles = _contiguous_axes(starts, sub_axes, size)
    first, count = int(starts.min()), starts.size
    if tiles:
        return distribute_shards(
            merger, BatchedValue(slice_rows(b, value, at, first, count * size), own), dim, tiles
        )
    # Each window is sliced from the value of its own position.
    parts = []
    for position in np.ndindex(*axis_sizes(sub_axes)):
        part = value
        for sub_axis, i in zip(sub_axes, position, strict=True):
            if sub_axis in own:
                part = slice_rows(b, part, own.index(sub_axis), i, 1)
        part = slice_rows(b, part, at, int(starts[position]), size)
        shape = [
            n for i, n in enumerate(part.type.shape) if i >= len(own) or own[i] not in sub_axes
        ]
        parts.append(reshape_if_needed(b, part, (1, *shape)))
    stacked = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    rest = [sub_axis for sub_axis in own if sub_axis not in sub_axes]
    all_sub_axes = merger.sub_axes.union(own, sub_axes)
    return BatchedValue(unstack(merger, stacked, sub_axes, rest, all_sub_axes), all_sub_axes)


def unstack(
    merger: DeviceMerger, stacked: Value, sub_axes: Axes, rest: Sequence[Axis], own: Axes
) -> Value:
    """Return a value stacked along all of `sub_axes` with a dimension for each of `own`."""
    split = [axis_sizes(sub_axes), *((n,) for n in stacked.type.shape[1:])]
    now = [*sub_axes, *rest]
    order: list[Ints] = [(now.index(sub_axis),) for sub_axis in own]
    order += [(d,) for d in range(len(now), len(sub_axes) + stacked.type.rank - 1)]
    return arrange_dims(merger.b, stacked, split, order)


def _contiguous_axes(starts: Array, sub_axes: Axes, size: int) -> Axes:
    """Return the sub-axes, major first, along which the windows are contiguous; none if they are
    not."""
    base = int(starts.flat[0])
    strides = [
        int(starts[tuple(int(i == j) for j in range(len(sub_axes)))]) - base
        for i in range(len(sub_axes))
    ]
    grid = base + sum(
        (s * np.arange(a.size).reshape([-1 if i == j else 1 for j in range(len(sub_axes))])
         for i, (s, a) in enumerate(zip(strides, sub_axes, strict=True))), np.int64(0)
    )  # fmt: skip
    order = sorted(range(len(sub_axes)), key=lambda i: -strides[i])
    reach = size
    for i in reversed(order):
        if strides[i] != reach:
            return ()
        reach *= sub_axes[i].size
    return tuple(sub_axes[i] for i in order) if np.array_equal(grid, starts) else ()


def _random(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    """Return all random numbers of a key, of which each device takes its shard."""
    keys, *starts = op.operands
    kind = op.name.removesuffix("_at")
    shape: tuple[int, ...] = op.attrs["shape"]
    outer = keys.type.rank
    piece = op.result.type.shape[outer:]
    b = merger.b
    value, own = merger.get(keys)
    offsets: Any = []
    for start in starts:
        number, sub_axes = (
            merger.known_elements(merger.get(start).value),
            merger.get(start).sub_axes,
        )
        if number is None:
            raise merge_error(op, "has an offset that is unknown at compile time")
        offsets.append((number.astype(np.int64), sub_axes))
    # Shards may extend past the end, where their content is undefined.
    ends = [max(n, int(s.max()) + m) for n, (s, _), m in zip(shape, offsets, piece, strict=True)]
    full_type = op.result.type.with_shape((*value.type.shape, *shape))
    full_value = b.emit(
        OPS[kind], value, result=full_type, scheme=op.attrs.get("scheme", "partitionable")
    )
    batched = BatchedValue(
        _extend_by_repetition(b, full_value, [0] * value.type.rank, shape, ends), own
    )
    for dim, ((numbers, sub_axes), size) in enumerate(zip(offsets, piece, strict=True)):
        batched = _slice_window(
            merger, batched, outer + dim, *drop_constant_axes(numbers, sub_axes), size
        )
    return [_widen_in_processes(merger, batched, offsets)]


def _extend_by_repetition(
    b: Builder, x: Value, lead: Sequence[int], shape: Sequence[int], ends: Sequence[int]
) -> Value:
    """Return the value extended by repeating its first rows where it ends too early."""
    for dim, (size, end) in enumerate(zip(shape, ends, strict=True)):
        missing, at = end - size, len(lead) + dim
        if missing and size:
            parts = [x]
            while missing > 0:
                parts.append(slice_rows(b, x, at, 0, min(missing, size)))
                missing -= size
            x = b.concatenate(*parts, dim=at)
    return x


POSITION_RULES: dict[str, MergeRule] = {
    "axis-index": _axis_index,
    "dynamic_slice": _dynamic_slice,
    "random_bits_at": _random,
    "random_split_at": _random,
}


def _update(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    x, update, *starts = op.operands
    offsets = known_offsets(merger, starts, x.type.shape, update.type.shape)
    if offsets is None or not any(merger.sub_axes_of.get(start) for start in starts):
        return append_batched(merger, op)
    places = [drop_constant_axes(*start) for start in offsets]
    sub_axes = merger.sub_axes.union(*(sub_axes for _, sub_axes in places))
    if prod(axis_sizes(sub_axes)) > MAX_WINDOWS:
        return batch_by_sub_axis(merger, op)
    alike = merger.sub_axes.levels.position_of_process is not None
    own = merger.sub_axes.union(merger.union(op.operands if alike else [x, update]), sub_axes)
    values = [merger.broadcast_to(x, own), merger.broadcast_to(update, own)]
    return [_update_each_position(merger, values, own, places, sub_axes)]


def _update_each_position(
    merger: DeviceMerger,
    values: Sequence[Value],
    own: Axes,
    places: Sequence[tuple[Array, Axes]],
    sub_axes: Axes,
) -> BatchedValue:
    b, rest = merger.b, [sub_axis for sub_axis in own if sub_axis not in sub_axes]
    parts = []
    for position in np.ndindex(*axis_sizes(sub_axes)):
        at = dict(zip(sub_axes, position, strict=True))
        pieces = [_at_position(merger, value, own, at) for value in values]
        where = [
            int(numbers[tuple(at[sub_axis] for sub_axis in along)]) for numbers, along in places
        ]
        starts = [b.full(n, TensorType((), "i32")) for n in (*(0 for _ in rest), *where)]
        part = b.dynamic_update_slice(*pieces, *starts)
        parts.append(reshape_if_needed(b, part, (1, *part.type.shape)))
    stacked = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return BatchedValue(unstack(merger, stacked, sub_axes, rest, own), own)


def _at_position(merger: DeviceMerger, value: Value, own: Axes, at: dict[Axis, int]) -> Value:
    """Return the part of a value at one position along some of its sub-axes."""
    for i, sub_axis in enumerate(own):
        if sub_axis in at:
            value = slice_rows(merger.b, value, i, at[sub_axis], 1)
    shape = [n for i, n in enumerate(value.type.shape) if i >= len(own) or own[i] not in at]
    return reshape_if_needed(merger.b, value, shape)


DYNAMIC_UPDATE_RULES: dict[str, MergeRule] = {"dynamic_update_slice": _update}
