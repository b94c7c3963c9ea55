"""Batching of gather and scatter."""

from typing import Any

from shardir.batching import Many, repeated, shifted
from shardir.ir import Value
from shardir.ops.check import Ints
from shardir.ops.indexing import GATHER, SCATTER, Dimensions

_BATCHING = "operand_batching_dims", "indices_batching_dims"


def gather_batch(b: Any, many: Many, x: Value, indices: Value, **dims: Ints) -> Value:
    """Make the new dimension a full window, a dimension of the indices, or a batching dimension of
    both.
    """
    source, places = many.batched
    read = _one_further(GATHER.read(dims), source, places)
    made: Value = b.gather(x, indices, result=many.stated, **_named(GATHER, read))
    return made


def scatter_batch(
    b: Any, many: Many, x: Value, indices: Value, updates: Value, *, op: str, **dims: Ints
) -> Value:
    """Make the new dimension part of both operand and updates."""
    own, places, given = many.batched
    x = x if own else repeated(b, x, many.size)
    updates = updates if given else repeated(b, updates, many.size)
    read = _one_further(SCATTER.read(dims), True, places)
    made: Value = b.scatter(x, indices, updates, op=op, **_named(SCATTER, read))
    return made


def _one_further(dims: Dimensions, operand: bool, indices: bool) -> Dimensions:
    """Return the dimensions after adding a leading dimension to the slices and to operand or
    indices.
    """
    lead = (0,) if operand and indices else ()
    window = shifted(dims.window)
    if not operand:
        return Dimensions(window, *dims[1:4], shifted(dims.indices_batching))
    return Dimensions(
        window if indices else (0, *window),
        shifted(dims.dropped),
        shifted(dims.index_map),
        (*lead, *shifted(dims.operand_batching)),
        (*lead, *(shifted(dims.indices_batching) if indices else dims.indices_batching)),
    )


def _named(names: Dimensions, dims: Dimensions) -> dict[str, Ints]:
    """Return the attributes by name; batching dimensions only if there are any."""
    pairs = zip(names, dims, strict=True)
    return {name: chosen for name, chosen in pairs if chosen or name not in _BATCHING}
