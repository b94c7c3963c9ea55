"""Reverse-mode rule of pipelines.

The schedule of a pipeline computes forward and backward passes in turn, so the operation returns
the gradients together with the loss. They are the residuals: the backward computation multiplies
them by the cotangent of the loss.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from shardir.ir.builder import Builder, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.derivative_regions import custom_jvp, custom_vjp
from shardir.ops.control_flow.pipelines import PipelineAttributes
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.pullback import Cotangents, Handler, Pullback, error
from shardir.passes.autodiff.regions import instantiate_rule


def _pull_pipeline(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    attributes = PipelineAttributes.of(op)
    if attributes.wrt:
        raise error(
            f"%{op.results[0].name} = pipeline has no second derivative; differentiate the loss "
            "without sd.pipeline",
            op,
        )
    wrt = tuple(i for i, x in enumerate(op.operands) if x in outer.active)
    for i in wrt:
        if i in attributes.batched:
            raise error(
                f"%{op.results[0].name} = pipeline has no gradient with respect to "
                f"%{op.operands[i].name}, which is divided into microbatches; differentiate with "
                "respect to the arguments that all microbatches share",
                op,
            )
        if attributes.mapped_dims and i not in attributes.mapped:
            raise error(
                f"%{op.results[0].name} = pipeline has no gradient with respect to "
                f"%{op.operands[i].name}, which all elements of a vmap share; call vmap of the "
                "gradient and add the results, or call vmap inside of the loss",
                op,
            )
    b = outer.b
    op = _with_traced_rules(op, wrt, b)
    operands = [op.operands[i] for i in wrt]
    gradients = [Value(x.type, b.names.fresh(f"{x.name}.grad")) for x in operands]
    cotangent, *auxiliary = cotangents
    if any(each is not None for each in auxiliary):
        raise error(
            f"%{op.results[0].name} = pipeline has no gradient of its auxiliary results; add what "
            "is to be differentiated to the loss, or pass has_aux=True to value_and_grad",
            op,
        )
    assert cotangent is not None
    for x, gradient in zip(operands, gradients, strict=True):
        outer.accumulate(x, _scale(b, gradient, cotangent))
    return replace(op, results=(*op.results, *gradients), attrs={**op.attrs, "wrt": wrt})


def _with_traced_rules(op: Op, wrt: Sequence[int], b: Builder) -> Op:
    """Return the pipeline with blocks for the custom derivative rules that its gradient needs.

    Rules are traced here, because the passes that differentiate the stages run after the trace.
    """
    (block,) = op.blocks
    traced = _trace_rules(block, [block.params[i] for i in wrt], b)
    captured = traced.captures()
    new = {value: Value(value.type, b.names.fresh(value.name)) for value in captured}
    traced = substitute(traced, new)
    traced = replace(traced, params=(*block.params, *new.values()))
    return replace(op, operands=(*op.operands, *captured), blocks=(traced,))


def _trace_rules(block: Block, inputs: Iterable[Value], b: Builder) -> Block:
    """Return the block with the rules of the regions that depend on `inputs` traced."""
    active = active_values(block, tuple(inputs))
    ops = []
    for op in block.ops:
        if op.spec in (custom_vjp, custom_jvp):
            active_operands = [value in active for value in op.operands]
            if len(op.blocks) == 1 and any(active_operands):
                rule = instantiate_rule(op, b, active_operands)
                op = replace(op, blocks=(*op.blocks, *rule))
        elif op.blocks:
            # Any parameter of a nested block may depend on the operands.
            blocks = [_trace_rules(inner, {*active, *inner.params}, b) for inner in op.blocks]
            op = replace(op, blocks=tuple(blocks))
        ops.append(op)
    return replace(block, ops=tuple(ops))


def _scale(b: Builder, gradient: Value, cotangent: Value) -> Value:
    factor = cotangent
    if factor.type.dtype != gradient.type.dtype:
        factor = b.convert(factor, result=factor.type.with_dtype(gradient.type.dtype))
    if gradient.type.shape != factor.type.shape:
        dims = tuple(range(cotangent.type.rank))
        factor = b.broadcast(factor, dims=dims, result=gradient.type)
    scaled: Value = b.mul(gradient, factor)
    return scaled


HANDLERS: dict[str, Handler] = {"pipeline": _pull_pipeline}
