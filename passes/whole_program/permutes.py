"""`collective-permute`: reordered rows of a dimension, in as few slices as possible.

A shift becomes one or two slices, a swap of adjacent positions a reversed dimension. Only
permutations without structure are gathered. A permute with named axes renames dimensions.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import Dense
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.op_rules.batching import broadcast_batch_scalars
from shardir.ops.type_checks import Ints
from shardir.passes.whole_program.collective_rules import record_collective
from shardir.passes.whole_program.dim_arrangement import (
    arrange_dims,
    concatenate_rows,
    reshape_if_needed,
    slice_rows,
)
from shardir.passes.whole_program.merger import BatchedValue, DeviceMerger, MergeRule
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes

MAX_PERMUTE_SLICES = 16
"""Maximum number of concatenated slices; permutations with more are gathered."""


def _permute(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    record_collective(merger, op)
    batched = merger.get(op.operands[0])
    if "pairs" not in op.attrs:
        source, target = (merger.sub_axes.of(op.attrs[name]) for name in ("source", "target"))
        return [_rename_axes(merger, batched, source, target)]
    sub_axes = merger.sub_axes.of(op.attrs["axes"])
    sender = {to: of for of, to in op.attrs["pairs"]}
    return [
        _permute_positions(
            merger, batched, sub_axes, [sender.get(i) for i in range(prod(axis_sizes(sub_axes)))]
        )
    ]


# Pairs of positions along the same axes


def _permute_positions(
    merger: DeviceMerger, batched: BatchedValue, sub_axes: Axes, senders: Sequence[int | None]
) -> BatchedValue:
    """Return the value that each position along `sub_axes` receives; zeros without a sender."""
    b = merger.b
    if all(of is None for of in senders):
        type = batched.value.type.with_shape(batched.value.type.shape[len(batched.sub_axes) :])
        return BatchedValue(b.full(0, type), ())
    if not any(sub_axis in batched.sub_axes for sub_axis in sub_axes) and None not in senders:
        return batched
    own = merger.sub_axes.union(batched.sub_axes, sub_axes)
    value = merger.widen(batched, own)
    if list(senders) == list(range(len(senders))):
        return BatchedValue(value, own)
    rest = [sub_axis for sub_axis in own if sub_axis not in sub_axes]
    places = (*map(own.index, sub_axes), *map(own.index, rest), *range(len(own), value.type.rank))
    dim_sizes: list[Ints] = [(n,) for n in value.type.shape]
    order: list[Ints] = [
        places[: len(sub_axes)],
        *((position,) for position in places[len(sub_axes) :]),
    ]
    moved = permute_rows(b, arrange_dims(b, value, dim_sizes, order), senders)
    dim_sizes = [axis_sizes(sub_axes), *((n,) for n in moved.type.shape[1:])]
    back: list[Ints] = [(places.index(d),) for d in range(len(places))]
    return BatchedValue(arrange_dims(b, moved, dim_sizes, back), own)


def permute_rows(b: Builder, x: Value, senders: Sequence[int | None]) -> Value:
    """Return row `senders[i]` of `x` as row i; zeros for `None`."""
    runs = _runs(senders)
    swapped = _swapped_digits(senders) if len(runs) > 2 else ()
    if swapped:
        count = len(senders)
        binary = reshape_if_needed(b, x, (*(2,) * (count.bit_length() - 1), *x.type.shape[1:]))
        return reshape_if_needed(b, b.reverse(binary, dims=swapped), x.type.shape)
    if len(runs) > MAX_PERMUTE_SLICES:
        return _gather_rows(b, x, senders)
    return concatenate_rows(b, [_slice_run(b, x, *run) for run in runs])


def _slice_run(b: Builder, x: Value, start: int | None, step: int, count: int) -> Value:
    if start is None:
        result: Value = b.full(0, x.type.with_shape((count, *x.type.shape[1:])))
    elif step >= 1:
        result = slice_rows(b, x, 0, start, count, step)
    else:
        last = start + (count - 1) * step
        result = b.reverse(slice_rows(b, x, 0, last, count, -step), dims=(0,))
    return result


def _runs(senders: Sequence[int | None]) -> list[tuple[int | None, int, int]]:
    """Return senders as runs: the first, the step to the next, the number."""
    runs: list[tuple[int | None, int, int]] = []
    for i, of in enumerate(senders):
        start, step, count = runs[-1] if runs else (None, 1, 0)
        if of is None or start is None:
            goes_on = of is start and count > 0
        elif count > 1:
            goes_on = of == start + count * step
        else:
            step = of - start
            beyond = senders[i + 1] if i + 1 < len(senders) else None
            goes_on = abs(step) == 1 or beyond == of + step
        if goes_on:
            runs[-1] = (start, step, count + 1)
        else:
            runs.append((of, 1, 1))
    return runs


def _swapped_digits(senders: Sequence[int | None]) -> tuple[int, ...]:
    """Return the binary digits of the position that differ between sender and receiver.

    Empty unless the same digits differ for all positions.
    """
    count, first = len(senders), senders[0]
    if first is None or count & (count - 1):
        return ()
    if any(of is None or of ^ i != first for i, of in enumerate(senders)):
        return ()
    digits = count.bit_length() - 1
    return tuple(d for d in range(digits) if first >> (digits - 1 - d) & 1)


def _gather_rows(b: Builder, x: Value, senders: Sequence[int | None]) -> Value:
    count = len(senders)
    places = np.array([[of or 0] for of in senders], np.int32)
    moved: Value = b.gather(
        x,
        b.constant(value=Dense(places), result=TensorType((count, 1), "i32")),
        result=x.type,
        offset_dims=tuple(range(1, x.type.rank)),
        collapsed_dims=(0,),
        start_index_map=(0,),
    )
    if None not in senders:
        return moved
    receives_table = Dense(np.array([of is not None for of in senders]))
    receives = b.constant(value=receives_table, result=TensorType((count,), "bool"))
    moved = b.select(broadcast_batch_scalars(b, receives, moved.type), moved, b.full(0, moved.type))
    return moved


# Positions along some axes to positions along others


def _rename_axes(
    merger: DeviceMerger, batched: BatchedValue, source: Axes, target: Axes
) -> BatchedValue:
    """Return the value in which position c along `target` holds that of position c along `source`.

    Along axes of `target` alone, the sender's position is that of the receiver along the axes of
    `source` alone.
    """
    left = tuple(sub_axis for sub_axis in source if sub_axis not in target)
    free = tuple(sub_axis for sub_axis in target if sub_axis not in source)
    groups = [*_align_axes(source, target), *_align_axes(free, left)]
    value, own = batched
    wide = own
    for old, _ in groups:
        if any(sub_axis in own for sub_axis in old):
            wide = merger.sub_axes.union(wide, old)
    value = merger.widen(batched, wide)
    moving = [(old, new) for old, new in groups if any(sub_axis in own for sub_axis in old)]
    gone = {sub_axis for old, _ in moving for sub_axis in old}
    all_sub_axes = merger.sub_axes.in_mesh_order(
        [
            *(sub_axis for sub_axis in wide if sub_axis not in gone),
            *(a for _, new in moving for a in new),
        ]
    )
    # Each group is temporarily one dimension of its positions.
    stay = [sub_axis for sub_axis in wide if sub_axis not in gone]
    order = [tuple(map(wide.index, old)) for old, _ in moving]
    order += [(wide.index(sub_axis),) for sub_axis in stay]
    order += [(d,) for d in range(len(wide), value.type.rank)]
    counted = arrange_dims(merger.b, value, [(n,) for n in value.type.shape], order)
    split = [axis_sizes(new) for _, new in moving]
    split += [(n,) for n in counted.type.shape[len(moving) :]]
    now = [*(sub_axis for _, new in moving for sub_axis in new), *stay]
    back = [(now.index(sub_axis),) for sub_axis in all_sub_axes]
    back += [(d,) for d in range(len(now), len(now) + value.type.rank - len(wide))]
    return BatchedValue(arrange_dims(merger.b, counted, split, back), all_sub_axes)


def _align_axes(source: Axes, target: Axes) -> list[tuple[Axes, Axes]]:
    """Return the smallest groups of axes with equal numbers of positions, from the major ones on.

    Source and target have equal numbers of positions, and no axis has size 1.
    """
    groups: list[tuple[Axes, Axes]] = []
    old, new = list(source), list(target)
    while old:
        some, others = [old.pop(0)], [new.pop(0)]
        while prod(axis_sizes(tuple(some))) != prod(axis_sizes(tuple(others))):
            if prod(axis_sizes(tuple(some))) < prod(axis_sizes(tuple(others))):
                some.append(old.pop(0))
            else:
                others.append(new.pop(0))
        groups.append((tuple(some), tuple(others)))
    return groups


PERMUTE_RULES: dict[str, MergeRule] = {
    "collective-permute": _permute,
    "collective-permute-start": _permute,
}
