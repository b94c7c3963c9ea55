"""Batching rule of `manual_computation`: each device computes its shard of every batch element."""

from collections.abc import Sequence

from shardir.ir.builder import as_values
from shardir.ir.module import Op, Value
from shardir.ir.sharding import Axes, count_positions
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.passes.batching.batcher import Batcher, Handler


def _batch_manual(outer: Batcher, op: Op) -> Sequence[Value]:
    """Return the results of a batched manual computation.

    The batch dimension is unsharded along the manual axes unless `Batcher.front` states axes for
    it.
    """
    (body,) = op.blocks
    front = _batch_axes(outer, op)
    inner = outer.inner(count_positions(front))
    params = [
        inner.param(param, outer.is_batched(value))
        for param, value in zip(body.params, op.operands, strict=True)
    ]
    inner.run(body.ops)
    returns = [inner.get(value) for value in body.returns]
    ins = [
        (front, *dim_axes) if outer.is_batched(value) else dim_axes
        for value, dim_axes in zip(op.operands, op.attrs["in_axes"], strict=True)
    ]
    outs = [
        (front, *dim_axes) if inner.is_batched(value) else dim_axes
        for value, dim_axes in zip(body.returns, op.attrs["out_axes"], strict=True)
    ]
    result = outer.b.emit(
        manual_computation,
        *map(outer.get, op.operands),
        blocks=(inner.b.block(params, returns),),
        **{**op.attrs, "in_axes": tuple(ins), "out_axes": tuple(outs)},
    )
    return as_values(result)


def _batch_axes(outer: Batcher, op: Op) -> Axes:
    """Return the axes that shard the batch dimension.

    There are none if one of them already shards another dimension, if the batch size is not
    divisible, or if the body contains collectives over the batch axis.
    """
    if outer.batch_axes is None or outer.is_along(op):
        return ()
    front = outer.batch_axes(op.attrs["axes"])
    used = {
        axis
        for dim_axes in (*op.attrs["in_axes"], *op.attrs["out_axes"])
        for dim in dim_axes
        for axis in dim
    }
    free = all(axis not in used for axis in front)
    return front if free and outer.size % count_positions(front) == 0 else ()


HANDLERS: dict[str, Handler] = {"manual_computation": _batch_manual}
