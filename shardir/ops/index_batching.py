"""Gathers and scatters, each many times at once."""

from typing import Any

from shardir.batching import Many, repeated, shifted
from shardir.ir import Value
from shardir.ops.check import Ints
from shardir.ops.indexing import GATHER, SCATTER, Dimensions

_BATCHING = "operand_batching_dims", "indices_batching_dims"


def gather_batch(b: Any, many: Many, x: Value, indices: Value, **dims: Ints) -> Value:
    """The new dimension is a window that is whole, a dimension of the indices, or both paired."""
    source, places = many.batched
    read = _one_further(GATHER.read(dims), source, places)
    made: Value = b.gather(x, indices, result=many.stated, **_named(GATHER, read))
    return made


def scatter_batch(
    b: Any, many: Many, x: Value, indices: Value, updates: Value, *, op: str, **dims: Ints
) -> Value:
    """Everything is written to a place of its own, so operand and updates both have it."""
    own, places, given = many.batched
    x = x if own else repeated(b, x, many.size)
    updates = updates if given else repeated(b, updates, many.size)
    read = _one_further(SCATTER.read(dims), True, places)
    made: Value = b.scatter(x, indices, updates, op=op, **_named(SCATTER, read))
    return made


def _one_further(dims: Dimensions, operand: bool, indices: bool) -> Dimensions:
    """The dimensions where the slices have a new one in front, and operand or indices too."""
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
    """Attributes by name; batching dimensions only where there are any."""
    pairs = zip(names, dims, strict=True)
    return {name: chosen for name, chosen in pairs if chosen or name not in _BATCHING}
