"""`dynamic_update_slice` at device-dependent offsets: one update per position.

The offset of each position is known at compile time, so no scatter is needed: each position writes
at a fixed offset.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, Axis
from shardir.ir.types import TensorType
from shardir.passes.whole_program.device_positions import (
    MAX_WINDOWS,
    append_batched,
    drop_constant_axes,
    known_offsets,
    unstack,
)
from shardir.passes.whole_program.dim_arrangement import reshape_if_needed, slice_rows
from shardir.passes.whole_program.merger import (
    Array,
    BatchedValue,
    DeviceMerger,
    MergeRule,
    batch_by_sub_axis,
)
from shardir.passes.whole_program.mesh_sub_axes import axis_sizes


def _update(merger: DeviceMerger, op: Op) -> Sequence[BatchedValue]:
    x, update, *starts = op.operands
    found = known_offsets(merger, starts, x.type.shape, update.type.shape)
    if found is None or not any(merger.sub_axes_of.get(start) for start in starts):
        return append_batched(merger, op)
    places = [drop_constant_axes(*start) for start in found]
    atoms = merger.atoms.union(*(atoms for _, atoms in places))
    if prod(axis_sizes(atoms)) > MAX_WINDOWS:
        return batch_by_sub_axis(merger, op)
    own = merger.atoms.union(merger.union([x, update]), atoms)
    values = [merger.broadcast_to(x, own), merger.broadcast_to(update, own)]
    return [_update_each_position(merger, values, own, places, atoms)]


def _update_each_position(
    merger: DeviceMerger,
    values: Sequence[Value],
    own: Axes,
    places: Sequence[tuple[Array, Axes]],
    atoms: Axes,
) -> BatchedValue:
    b, rest = merger.b, [atom for atom in own if atom not in atoms]
    parts = []
    for position in np.ndindex(*axis_sizes(atoms)):
        at = dict(zip(atoms, position, strict=True))
        pieces = [_at_position(merger, value, own, at) for value in values]
        where = [int(numbers[tuple(at[atom] for atom in along)]) for numbers, along in places]
        starts = [b.full(n, TensorType((), "i32")) for n in (*(0 for _ in rest), *where)]
        part = b.dynamic_update_slice(*pieces, *starts)
        parts.append(reshape_if_needed(b, part, (1, *part.type.shape)))
    stacked = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return BatchedValue(unstack(merger, stacked, atoms, rest, own), own)


def _at_position(merger: DeviceMerger, value: Value, own: Axes, at: dict[Axis, int]) -> Value:
    """Return the part of a value at one position along some of its sub-axes."""
    for i, atom in enumerate(own):
        if atom in at:
            value = slice_rows(merger.b, value, i, at[atom], 1)
    kept = [n for i, n in enumerate(value.type.shape) if i >= len(own) or own[i] not in at]
    return reshape_if_needed(merger.b, value, kept)


DYNAMIC_UPDATE_RULES: dict[str, MergeRule] = {"dynamic_update_slice": _update}
