"""`dynamic_update_slice` at device-dependent offsets: one update per position.

The offset of each position is known at compile time, so no scatter is needed: each position writes
at a fixed offset.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from shardir.ir import Op, Value
from shardir.passes.merging.arrange import reshaped, rows
from shardir.passes.merging.atoms import sizes
from shardir.passes.merging.merger import Array, Merger, Rule, Spread, atom_by_atom
from shardir.passes.merging.places import WINDOWS, alike, known, narrowed, unstacked
from shardir.placement import Axes, Axis
from shardir.types import TensorType


def _update(merger: Merger, op: Op) -> Sequence[Spread]:
    x, update, *starts = op.operands
    found = known(merger, starts, x.type.shape, update.type.shape)
    if found is None or not any(merger.along.get(start) for start in starts):
        return alike(merger, op)
    places = [narrowed(*start) for start in found]
    atoms = merger.atoms.union(*(atoms for _, atoms in places))
    if prod(sizes(atoms)) > WINDOWS:
        return atom_by_atom(merger, op)
    own = merger.atoms.union(merger.union([x, update]), atoms)
    values = [merger.whole(x, own), merger.whole(update, own)]
    return [_written(merger, values, own, places, atoms)]


def _written(
    merger: Merger,
    values: Sequence[Value],
    own: Axes,
    places: Sequence[tuple[Array, Axes]],
    atoms: Axes,
) -> Spread:
    b, rest = merger.b, [atom for atom in own if atom not in atoms]
    parts = []
    for position in np.ndindex(*sizes(atoms)):
        at = dict(zip(atoms, position, strict=True))
        pieces = [_alone(merger, value, own, at) for value in values]
        where = [int(numbers[tuple(at[atom] for atom in along)]) for numbers, along in places]
        starts = [b.full(n, TensorType((), "i32")) for n in (*(0 for _ in rest), *where)]
        part = b.dynamic_update_slice(*pieces, *starts)
        parts.append(reshaped(b, part, (1, *part.type.shape)))
    stacked = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return Spread(unstacked(merger, stacked, atoms, rest, own), own)


def _alone(merger: Merger, value: Value, own: Axes, at: dict[Axis, int]) -> Value:
    """Return the part of a value at one position along some of its sub-axes."""
    for i, atom in enumerate(own):
        if atom in at:
            value = rows(merger.b, value, i, at[atom], 1)
    kept = [n for i, n in enumerate(value.type.shape) if i >= len(own) or own[i] not in at]
    return reshaped(merger.b, value, kept)


RULES: dict[str, Rule] = {"dynamic_update_slice": _update}
