"""Batching of gather and scatter."""

from typing import Any

from shardir.ir.module import Value
from shardir.op_rules.batching import BatchedOp, broadcast_over_batch, increment_dims
from shardir.ops.indexing.layout import GATHER, SCATTER, IndexingDims
from shardir.ops.type_checks import Ints

_BATCHING = "operand_batching_dims", "indices_batching_dims"


def gather_batch(b: Any, many: BatchedOp, x: Value, indices: Value, **dims: Ints) -> Value:
    """Make the new dimension a full window, a dimension of the indices, or a batching dimension of
    both.
    """
    source, places = many.batched
    read = _add_batch_dim(GATHER.from_attrs(dims), source, places)
    made: Value = b.gather(x, indices, result=many.emit_result, **_to_attrs(GATHER, read))
    return made


def scatter_batch(
    b: Any, many: BatchedOp, x: Value, indices: Value, updates: Value, *, op: str, **dims: Ints
) -> Value:
    """Make the new dimension part of both operand and updates."""
    own, places, given = many.batched
    x = x if own else broadcast_over_batch(b, x, many.size)
    updates = updates if given else broadcast_over_batch(b, updates, many.size)
    read = _add_batch_dim(SCATTER.from_attrs(dims), True, places)
    made: Value = b.scatter(x, indices, updates, op=op, **_to_attrs(SCATTER, read))
    return made


def _add_batch_dim(dims: IndexingDims, operand: bool, indices: bool) -> IndexingDims:
    """Return the dimensions after adding a leading dimension to the slices and to operand or
    indices.
    """
    lead = (0,) if operand and indices else ()
    window = increment_dims(dims.window)
    if not operand:
        return IndexingDims(window, *dims[1:4], increment_dims(dims.indices_batching))
    return IndexingDims(
        window if indices else (0, *window),
        increment_dims(dims.dropped),
        increment_dims(dims.index_map),
        (*lead, *increment_dims(dims.operand_batching)),
        (*lead, *(increment_dims(dims.indices_batching) if indices else dims.indices_batching)),
    )


def _to_attrs(names: IndexingDims, dims: IndexingDims) -> dict[str, Ints]:
    """Return the attributes by name; batching dimensions only if there are any."""
    pairs = zip(names, dims, strict=True)
    return {name: chosen for name, chosen in pairs if chosen or name not in _BATCHING}
