"""Reverse-mode rule of pipelines.

The schedule of a pipeline computes forward and backward passes in turn, so the operation returns
the gradients together with the loss. They are the residuals: the backward computation multiplies
them by the cotangent of the loss.
"""

from dataclasses import replace

from shardir.ir.builder import Builder
from shardir.ir.module import Op, Value
from shardir.passes.autodiff.pullback import Cotangents, Handler, Pullback, error


def _pull_pipeline(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    if op.attrs.get("wrt"):
        raise error(
            f"%{op.results[0].name} = pipeline has no second derivative; differentiate the loss "
            "without sd.pipeline",
            op,
        )
    wrt = tuple(i for i, x in enumerate(op.operands) if x in outer.active)
    for i in wrt:
        if i in op.attrs.get("batched", ()):
            raise error(
                f"%{op.results[0].name} = pipeline has no gradient with respect to "
                f"%{op.operands[i].name}, which is divided into microbatches; differentiate with "
                "respect to the arguments that all microbatches share",
                op,
            )
    b = outer.b
    operands = [op.operands[i] for i in wrt]
    gradients = [Value(x.type, b.names.fresh(f"{x.name}.grad")) for x in operands]
    (cotangent,) = cotangents
    assert cotangent is not None
    for x, gradient in zip(operands, gradients, strict=True):
        outer.accumulate(x, _scale(b, gradient, cotangent))
    return replace(op, results=(*op.results, *gradients), attrs={**op.attrs, "wrt": wrt})


def _scale(b: Builder, gradient: Value, cotangent: Value) -> Value:
    factor = cotangent
    if factor.type.dtype != gradient.type.dtype:
        factor = b.convert(factor, result=factor.type.with_dtype(gradient.type.dtype))
    if gradient.type.shape:
        factor = b.broadcast(factor, dims=(), result=gradient.type)
    scaled: Value = b.mul(gradient, factor)
    return scaled


HANDLERS: dict[str, Handler] = {"pipeline": _pull_pipeline}
