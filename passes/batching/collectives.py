"""Batching rules of collectives along the vectorized axis, which become operations on the batch
dimension.

A function that is mapped over a named axis may contain collectives along it: position i along the
axis is element i of the leading dimension. A result that is equal for all, such as a sum, is not
batched.
"""

from collections.abc import Sequence

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Dense
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.op_rules.batching import broadcast_batch_scalars
from shardir.passes.batching.batcher import Batcher, Handler, error

_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "all", "or": "any"}


def _all_reduce(outer: Batcher, op: Op) -> Sequence[Value]:
    b = outer.b
    x, how = outer.get_batched(op.operands[0]), op.attrs["op"]
    if how in ("and", "or") and x.type.dtype != "bool":
        raise error(f"%{op.result.name} = all-reduce combines integers bit by bit", op)
    result = b.emit(OPS[_REDUCTIONS[how]], x, dims=(0,))
    rest = _other_axes(outer, op)
    return [b.all_reduce(result, axes=rest, op=how) if rest else result]


def _vary(outer: Batcher, op: Op) -> Sequence[Value]:
    x, rest = outer.get(op.operands[0]), _other_axes(outer, op)
    return [outer.b.vary(x, axes=rest) if rest else x]


def _other_axes(outer: Batcher, op: Op) -> Axes:
    """Return the axes of an operation besides the vectorized one."""
    return tuple(axis for axis in op.attrs["axes"] if axis.name != outer.axis)


def _all_gather(outer: Batcher, op: Op) -> Sequence[Value]:
    x = outer.get_batched(op.operands[0])
    return [_merge_into_dim(outer, x, op.attrs["dim"])]


def _reduce_scatter(outer: Batcher, op: Op) -> Sequence[Value]:
    x = outer.get_batched(op.operands[0])
    total = outer.b.emit(OPS[_REDUCTIONS[op.attrs["op"]]], x, dims=(0,))
    return [_split_to_front(outer, total, op.attrs["dim"])]


def _all_to_all(outer: Batcher, op: Op) -> Sequence[Value]:
    """Exchange chunks: chunk i of element j becomes chunk j of element i."""
    b, split, concat = outer.b, op.attrs["split"], op.attrs["concat"]
    x = outer.get_batched(op.operands[0])
    pieces = _split_to_front(outer, x, split + 1)  # receiver, sender, ...
    perm = (1, 0, *range(2, pieces.type.rank))
    by_sender = b.transpose(pieces, perm=perm)
    # The receivers remain the batch dimension, and the senders become part of a dimension.
    return [_merge_into_dim(outer, by_sender, concat + 1)]


def _permute(outer: Batcher, op: Op) -> Sequence[Value]:
    b, size = outer.b, outer.size
    if "pairs" not in op.attrs:
        raise error(
            f"%{op.result.name} = collective-permute states axes instead of pairs of positions, "
            "which cannot be vectorized; write the pairs",
            op,
        )
    x = outer.get_batched(op.operands[0])
    sender = dict((target, source) for source, target in op.attrs["pairs"])
    shift = {(source - target) % size for target, source in sender.items()}
    if len(sender) == size and len(shift) == 1:
        return [_rotate(b, x, shift.pop())]
    places = np.array([[sender.get(i, 0)] for i in range(size)], np.int32)
    moved = b.gather(
        x,
        b.constant(value=Dense(places), result=TensorType((size, 1), "i32")),
        result=x.type,
        offset_dims=tuple(range(1, x.type.rank)),
        collapsed_dims=(0,),
        start_index_map=(0,),
    )
    if len(sender) == size:
        return [moved]
    receives_table = Dense(np.array([i in sender for i in range(size)]))
    receives = b.constant(value=receives_table, result=TensorType((size,), "bool"))
    return [
        b.select(broadcast_batch_scalars(b, receives, moved.type), moved, b.full(0, moved.type))
    ]


def _rotate(b: Builder, x: Value, shift: int) -> Value:
    """Return the elements rotated by `shift` along the first dimension."""
    if shift == 0:
        return x
    size, *rest = x.type.shape
    none = (0,) * len(rest)
    parts = [
        b.slice(
            x,
            starts=(start, *none),
            strides=(1,) * x.type.rank,
            result=x.type.with_shape((stop - start, *rest)),
        )
        for start, stop in ((shift, size), (0, shift))
    ]
    rotated: Value = b.concatenate(*parts, dim=0)
    return rotated


def _index(outer: Batcher, op: Op) -> Sequence[Value]:
    return [outer.b.iota(dim=0, result=TensorType((outer.size,), "i32"))]


def _merge_into_dim(outer: Batcher, x: Value, dim: int) -> Value:
    """Return `x` with its first dimension merged into dimension `dim` of the rest, as its major
    part."""
    size, *shape = x.type.shape
    perm = (*range(1, dim + 1), 0, *range(dim + 1, x.type.rank))
    moved = outer.b.transpose(x, perm=perm)
    shape[dim] *= size
    merged: Value = outer.b.reshape(moved, result=x.type.with_shape(shape))
    return merged


def _split_to_front(outer: Batcher, x: Value, dim: int) -> Value:
    """Return `x` with a dimension split into chunks that become a new first dimension."""
    b, shape = outer.b, x.type.shape
    split_shape = (*shape[:dim], outer.size, shape[dim] // outer.size, *shape[dim + 1 :])
    perm = (dim, *(d for d in range(len(split_shape)) if d != dim))
    chunks: Value = b.transpose(b.reshape(x, result=x.type.with_shape(split_shape)), perm=perm)
    return chunks


def _require_single_axis(handler: Handler) -> Handler:
    """Return a handler that refuses collectives along several axes."""

    def handle(outer: Batcher, op: Op) -> Sequence[Value]:
        if len(op.attrs.get("axes", ())) > 1:
            raise error(
                f"%{op.result.name} = {op.name} is along {outer.axis!r} and other axes, which "
                "cannot be vectorized together; write one collective per axis",
                op,
            )
        return handler(outer, op)

    return handle


HANDLERS: dict[str, Handler] = {
    "all-reduce": _all_reduce,
    "all-gather": _require_single_axis(_all_gather),
    "reduce-scatter": _require_single_axis(_reduce_scatter),
    "all-to-all": _require_single_axis(_all_to_all),
    "collective-permute": _require_single_axis(_permute),
    "axis-index": _require_single_axis(_index),
    "vary": _vary,
}
