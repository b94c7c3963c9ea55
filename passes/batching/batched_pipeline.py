"""Batching rule of pipelines: each stage computes its part of the loss of every batch element.

The batch dimension is the first one of the loss, of gradients and of shared operands. An operand
that is divided into microbatches has it second, since microbatches are parts of the first one.
"""

from collections.abc import Sequence

from shardir.ir.builder import as_values
from shardir.ir.module import Op, Value
from shardir.ir.sharding import OPEN_DIM, Sharding
from shardir.ops.control_flow.pipelines import (
    PipelineAttributes,
    auxiliary_results,
    pipeline,
)
from shardir.passes.batching.batcher import Batcher, Handler


def _batch_pipeline(outer: Batcher, op: Op) -> Sequence[Value]:
    attributes = PipelineAttributes.of(op)
    (body,) = op.blocks
    inner = outer.inner()
    operands, params = [], []
    for i, (x, param) in enumerate(zip(op.operands, body.params, strict=True)):
        if i in attributes.batched and outer.is_batched(x):
            operands.append(_swap(outer, outer.get(x), _divided_sharding(x.sharding)))
            part = param.type.with_shape(_swap_sizes((outer.size, *param.type.shape)))
            params.append(inner.b.param(part, param.name))
            inner.bind(_swap(inner, params[-1]), param)
            continue
        # The gradient of a shared operand differs between the batch elements.
        has_own = outer.is_batched(x) or i in attributes.wrt
        operands.append(outer.get_batched(x) if has_own else outer.get(x))
        params.append(inner.param(param, has_own))
    inner.run(body.ops)
    block = inner.b.block(params, [inner.get_batched(value) for value in body.returns])
    batched = [x.type.rank > old.type.rank for x, old in zip(operands, op.operands, strict=True)]
    mapped = attributes.mapped if attributes.mapped_dims else range(len(operands))
    attrs = {
        **op.attrs,
        "mapped_dims": attributes.mapped_dims + 1,
        "mapped": tuple(i for i in mapped if batched[i] and i not in attributes.batched),
    }
    loss, *rest = as_values(outer.b.emit(pipeline, *operands, blocks=(block,), **attrs))
    count = len(auxiliary_results(op))
    # The auxiliary results of microbatches are stacked along the first dimension.
    return [loss, *(_swap(outer, x) for x in rest[:count]), *rest[count:]]


def _swap(at: Batcher, x: Value, sharding: Sharding | None = None) -> Value:
    """Return a value with its first two dimensions in the other order."""
    perm = (1, 0, *range(2, x.type.rank))
    made: Value = at.b.transpose(x, perm=perm, name=x.name, sharding=sharding)
    return made


def _swap_sizes(shape: Sequence[int]) -> tuple[int, ...]:
    first, second, *rest = shape
    return (second, first, *rest)


def _divided_sharding(sharding: Sharding | None) -> Sharding | None:
    """Return the sharding of an operand that is divided into microbatches, with a batch dimension
    second."""
    if sharding is None:
        return None
    first, *rest = sharding.dims
    return Sharding(sharding.mesh, (first, OPEN_DIM, *rest))


HANDLERS: dict[str, Handler] = {"pipeline": _batch_pipeline}
