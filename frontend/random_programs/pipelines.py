"""Samplers of marks of stages and of pipelines."""

from collections.abc import Callable

from shardir.frontend.random_programs.scope import Scope, sampler
from shardir.ir.host_function import HostFunction
from shardir.ir.operation import Attr, Value


@sampler("pipeline-stage")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), stage=s.integer(0, 2))


@sampler("pipeline")
def _(s: Scope, name: str) -> None:
    _append_pipeline(s, name, lambda inner, x: inner.emit("pipeline-stage", x, stage=0))


@sampler("staged-pipeline")
def _(s: Scope, name: str) -> None:
    attrs = {"fragments": ("0F",), "takes": (("argument 0",),), "gives": (("loss",),)}
    _append_pipeline(s, name, lambda inner, x: x, **attrs)


def _append_pipeline(
    s: Scope, name: str, enter_stage: Callable[[Scope, Value], Value], **attrs: Attr
) -> None:
    """Append a pipeline of one stage, whose loss is the sum of the batch."""
    x = s.tensor(("f32", "f64"), low=1)
    microbatches = s.choose(1, max(x.type.shape[0], 1))
    part = x.type.with_shape((x.type.shape[0] // microbatches, *x.type.shape[1:]))

    def body(inner: Scope, values: list[Value]) -> list[Value]:
        value = enter_stage(inner, *values)
        return [inner.emit("sum", value, dims=tuple(range(value.type.rank)))]

    s.emit(
        name, x, blocks=(s.block([part], body),), batched=(0,), microbatches=microbatches,
        schedule="1f1b", axis="pipe", **attrs,
    )  # fmt: skip


@sampler("pipeline-call")
def _(s: Scope, name: str) -> None:
    """Append a call that returns its operand, which all devices hold."""
    x = s.tensor()
    sharded = (((),) * x.type.rank,)
    s.emit(
        name, x, function=HostFunction("identity", lambda array: (array,)), axes=(),
        in_axes=sharded, out_axes=sharded, result=x.type,
    )  # fmt: skip
