"""Samplers of marks of stages and of pipelines."""

from typing import Any

from shardir.frontend.random_programs.scope import Scope, sampler


@sampler("pipeline-stage")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor(), stage=s.integer(0, 2))


@sampler("pipeline", "staged-pipeline")
def _(s: Scope, name: str) -> None:
    """Append a pipeline of one stage, whose loss is the sum of the batch."""
    x = s.tensor(("f32", "f64"), low=1)
    microbatches = s.choose(1, max(x.type.shape[0], 1))
    part = x.type.with_shape((x.type.shape[0] // microbatches, *x.type.shape[1:]))

    def body(inner: Scope, values: list[Any]) -> list[Any]:
        (value,) = values
        if name == "pipeline":
            value = inner.emit("pipeline-stage", value, stage=0)
        return [inner.emit("sum", value, dims=tuple(range(value.type.rank)))]

    attrs: dict[str, Any] = {
        "batched": (0,),
        "microbatches": microbatches,
        "schedule": "1f1b",
        "axis": "pipe",
    }
    if name == "staged-pipeline":
        attrs |= {"fragments": ("0F",), "takes": (("argument 0",),), "gives": (("loss",),)}
    s.emit(name, x, blocks=(s.block([part], body),), **attrs)
