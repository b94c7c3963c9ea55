"""Rules of Equinox primitives, with their meaning outside of Equinox's `vmap`."""

from typing import Any

from shardir.frontend import lax
from shardir.frontend.interop.rules import Equation, rule
from shardir.frontend.tracer import Tracer


def _over_all(name: str, function: Any) -> None:
    def reduce(equation: Equation) -> Any:
        (x,) = equation.tracers
        return function(x, tuple(range(x.ndim)))

    rule(name)(reduce)


_over_all("unvmap_any", lax.reduce_or)
_over_all("unvmap_all", lax.reduce_and)
_over_all("unvmap_max", lax.reduce_max)


@rule("select_if_vmap")
def _selected(equation: Equation) -> Any:
    """Emit a select: the condition is true without batching, but may differ with it."""
    return lax.select(*equation.aligned(equation.shape()))


@rule("nonbatchable", "nondifferentiable_backward", "nontraceable")
def _same(equation: Equation) -> Any:
    return equation.tracers


@rule("noinline", "maybe_set", "vprim")
def _as_it_is(equation: Equation) -> Any:
    """Trace the implementation of the primitive."""
    primitive, params = equation.source.primitive, equation.params

    def function(*args: Any) -> list[Any]:
        results = primitive.impl(*args, **params)
        return list(results) if primitive.multiple_results else [results]

    from shardir.frontend.interop.tracing import program_of, struct_of

    tracers: list[Tracer] = equation.tracers
    program, _ = program_of(function, [struct_of(x) for x in tracers])
    return equation.reader.read(program, tracers)
