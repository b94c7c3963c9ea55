"""Rules of Equinox primitives, with their meaning outside of Equinox's `vmap`."""

from collections.abc import Callable

import jax

from shardir.frontend.interop.jax_tracing import jax_struct_of, trace_to_jaxpr
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.lax import elementwise, reductions
from shardir.frontend.tracing.tracer import Tracer


def _register_full_reduction(name: str, function: Callable[..., Tracer]) -> None:
    def reduce(equation: Equation) -> RuleResult:
        (x,) = equation.tracers
        return function(x, tuple(range(x.ndim)))

    register_rule(name)(reduce)


_register_full_reduction("unvmap_any", reductions.reduce_or)
_register_full_reduction("unvmap_all", reductions.reduce_and)
_register_full_reduction("unvmap_max", reductions.reduce_max)


@register_rule("select_if_vmap")
def _apply_select_if_vmap(equation: Equation) -> Tracer:
    """Emit a select: the condition is true without batching, but may differ with it."""
    return elementwise.select(*equation.broadcast_operands(equation.shape()))


@register_rule("nonbatchable", "nondifferentiable_backward", "nontraceable")
def _apply_identity(equation: Equation) -> list[Tracer]:
    return equation.tracers


@register_rule("noinline", "maybe_set", "vprim")
def _apply_implementation(equation: Equation) -> list[Tracer]:
    """Trace the implementation of the primitive."""
    primitive, params = equation.source.primitive, equation.params

    def function(*args: object) -> list[jax.Array]:
        results = primitive.impl(*args, **params)
        return list(results) if primitive.multiple_results else [results]

    tracers: list[Tracer] = equation.tracers
    program, _ = trace_to_jaxpr(function, [jax_struct_of(x) for x in tracers])
    return equation.reader.read(program, tracers)
