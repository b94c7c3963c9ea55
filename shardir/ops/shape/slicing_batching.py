"""Batching of slices, updates and padding.

With unbatched starts, the batch dimension is sliced completely. With batched starts, a slice
becomes a gather of one window per batch entry, and an update becomes a scatter.
"""

from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.module import Value
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType
from shardir.op_rules.batching import BatchedOp, broadcast_batch_scalars, broadcast_over_batch
from shardir.ops.shape.slicing_partitioning import PadAttributes
from shardir.ops.type_checks import Ints


def pad_batch(
    b: Builder, many: BatchedOp, x: Value, value: Value, *, attributes: PadAttributes
) -> Value:
    """Pad with an arbitrary element and fill in batched padding values afterwards."""
    old_attrs = attributes.to_attrs()
    attrs = {name: (0, *numbers) for name, numbers in old_attrs.items()}
    old, _ = many.op.operands
    if not many.batched[0]:
        x = broadcast_over_batch(b, x, many.size)
    result: Value
    if not many.batched[1]:
        result = b.pad(x, value, **attrs)
        return result
    padded = b.pad(x, b.full(0, value.type.with_shape(())), **attrs)
    flags = TensorType(old.type.shape, "bool")
    outside = b.full(False, flags.with_shape(()))
    inside = b.pad(b.full(True, flags), outside, **old_attrs)
    inside = broadcast_over_batch(b, inside, many.size)
    result = b.select(inside, padded, broadcast_batch_scalars(b, value, padded.type))
    return result


def dynamic_slice_batch(b: Builder, many: BatchedOp, x: Value, *starts: Value) -> Value:
    result: Value
    if not any(many.batched[1:]):
        result = b.dynamic_slice(x, _zero_start(b, starts), *starts, result=many.emit_result)
        return result
    windows = tuple(range(many.op.result.type.rank))
    result = b.gather(
        x,
        _index_vectors(b, many, starts, many.batched[1:]),
        result=many.emit_result,
        offset_dims=tuple(d + 1 for d in windows),
        collapsed_dims=(),
        **_index_attrs(windows, "start_index_map", many.batched[0]),
    )
    return result


def dynamic_update_slice_batch(
    b: Builder, many: BatchedOp, x: Value, update: Value, *starts: Value
) -> Value:
    x, update = (
        value if batched else broadcast_over_batch(b, value, many.size)
        for value, batched in zip((x, update), many.batched, strict=False)
    )
    result: Value
    if not any(many.batched[2:]):
        result = b.dynamic_update_slice(x, update, _zero_start(b, starts), *starts)
        return result
    # A scatter drops out-of-bounds elements, whereas an update clamps its start.
    room = [n - m for n, m in zip(x.type.shape[1:], update.type.shape[1:], strict=True)]
    starts = tuple(_clamp_start(b, start, limit) for start, limit in zip(starts, room, strict=True))
    windows = tuple(range(len(starts)))
    result = b.scatter(
        x,
        _index_vectors(b, many, starts, many.batched[2:]),
        update,
        update_window_dims=tuple(d + 1 for d in windows),
        inserted_window_dims=(),
        op=Symbol("set"),
        **_index_attrs(windows, "scatter_dims", True),
    )
    return result


def _zero_start(b: Builder, starts: tuple[Value, ...]) -> Value:
    """Return the start index of the batch dimension."""
    zero: Value = b.full(0, starts[0].type if starts else TensorType((), "i32"))
    return zero


def _index_vectors(
    b: Builder, many: BatchedOp, starts: tuple[Value, ...], batched: tuple[bool, ...]
) -> Value:
    """Return the starts of each slice as an index vector."""
    one = TensorType((many.size, 1), starts[0].type.dtype)
    parts = [
        b.reshape(start, result=one) if own else b.broadcast(start, dims=(), result=one)
        for start, own in zip(starts, batched, strict=True)
    ]
    vectors: Value = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=1)
    return vectors


def _index_attrs(windows: Ints, index_map: str, batching: bool) -> dict[str, Ints]:
    """Return the attributes that map index vectors to dimensions."""
    if not batching:
        return {index_map: windows}
    return {
        index_map: tuple(d + 1 for d in windows),
        "operand_batching_dims": (0,),
        "indices_batching_dims": (0,),
    }


def _clamp_start(b: Builder, start: Value, limit: int) -> Value:
    """Return starts clamped so that the update is in bounds."""
    scalar = start.type.with_shape(())
    reach = min(limit, DTYPE_INFO[start.type.dtype].max_integer)
    inside: Value = b.clamp(b.full(0, scalar), start, b.full(reach, scalar))
    return inside
