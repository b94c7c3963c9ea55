"""Rules of primitives that move, concatenate, reduce, sort and contract elements."""

from collections.abc import Callable, Sequence

from shardir.frontend.interop.jax_shardings import constrain_to_typed_sharding
from shardir.frontend.interop.primitive_rules.product_algorithms import algorithm_of_product
from shardir.frontend.interop.primitive_rules.registry import (
    Equation,
    LiteralScalar,
    RuleResult,
    register_function,
    register_rule,
)
from shardir.frontend.lax import api as lax
from shardir.frontend.lax.control_flow.tree_reduction import reduce_pairwise
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.operands import splat
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType

register_function("squeeze", lax.squeeze, dimensions="dimensions")
register_function("expand_dims", lax.expand_dims, dimensions="dimensions")
register_function("transpose", lax.transpose, permutation="permutation")
register_function("rev", lax.rev, dimensions="dimensions")
register_function("pad", lax.pad, padding_config="padding_config")
register_function("tile", lax.tile, reps="reps")
register_function("split", lax.split, sizes="sizes", axis="axis")
register_function("slice", lax.slice,
       start_indices="start_indices", limit_indices="limit_indices", strides="strides")  # fmt: skip
register_function("top_k", lambda x, k, axis=-1: lax.top_k(x, k, axis=axis), k="k", axis="axis")


@register_rule("broadcast_in_dim")
def _apply_broadcast_in_dim(equation: Equation) -> Tracer:
    x = equation.operands[0]
    if isinstance(x, LiteralScalar):
        result = x.tracer(equation.shape())
    elif x.shape == equation.shape():
        result = x
    else:
        dims = equation.params["broadcast_dimensions"]
        result = lax.broadcast_in_dim(x, equation.shape(), dims)
    return constrain_to_typed_sharding(result, equation.params.get("sharding"))


@register_rule("reshape")
def _apply_reshape(equation: Equation) -> Tracer:
    (x,) = equation.tracers
    result = lax.reshape(x, equation.shape(), equation.params.get("dimensions"))
    return constrain_to_typed_sharding(result, equation.params.get("sharding"))


@register_rule("concatenate")
def _apply_concatenate(equation: Equation) -> Tracer:
    return lax.concatenate(equation.tracers, equation.params["dimension"])


@register_rule("stack")
def _apply_stack(equation: Equation) -> Tracer:
    return lax.stack(equation.tracers, equation.params["axis"])


@register_rule("unstack")
def _apply_unstack(equation: Equation) -> RuleResult:
    return lax.unstack(equation.tracers[0], equation.params["axis"])


@register_rule("iota")
def _apply_iota(equation: Equation) -> Tracer:
    result = lax.broadcasted_iota(
        equation.results[0].dtype, equation.shape(), equation.params["dimension"]
    )
    return constrain_to_typed_sharding(result, equation.params.get("sharding"))


@register_rule("empty", "empty2")
def _apply_empty(equation: Equation) -> Tracer:
    """Emit zeros for JAX's uninitialized arrays."""
    return splat(0, TensorType(equation.shape(), equation.dtype()))


@register_rule("dynamic_slice")
def _apply_dynamic_slice(equation: Equation) -> Tracer:
    x, *starts = equation.tracers
    return lax.dynamic_slice(x, starts, equation.params["slice_sizes"])


@register_rule("dynamic_update_slice")
def _apply_dynamic_update_slice(equation: Equation) -> Tracer:
    x, update, *starts = equation.tracers
    return lax.dynamic_update_slice(x, update, starts)


def _register_reduction(name: str, function: Callable[..., Tracer]) -> None:
    def reduce(equation: Equation) -> RuleResult:
        return function(*equation.tracers, equation.params["axes"])

    register_rule(name)(reduce)


for _name in ("sum", "prod", "max", "min", "and", "or"):
    _register_reduction(f"reduce_{_name}", getattr(lax, f"reduce_{_name}"))


@register_rule("reduce_xor")
def _apply_reduce_xor(equation: Equation) -> PyTree:
    (x,) = equation.tracers
    none = splat(0, x.value.type.with_shape(()))
    return lax.reduce(x, none, lax.bitwise_xor, equation.params["axes"])


@register_rule("reduce")
def _apply_reduce(equation: Equation) -> RuleResult:
    """Emit a reduction by a function that JAX traced."""
    count = len(equation.results)
    arrays, firsts = equation.tracers[:count], equation.tracers[count:]
    program = equation.params["jaxpr"]

    def combine(first: Sequence[Tracer], second: Sequence[Tracer]) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read(program, [*first, *second]))

    dims = tuple(equation.params["dimensions"])
    return reduce_pairwise(combine, arrays, firsts, dims, single=False)


def _register_arg_extreme(name: str, function: Callable[..., Tracer]) -> None:
    def position(equation: Equation) -> RuleResult:
        (x,) = equation.tracers
        (axis,) = equation.params["axes"]
        return function(x, axis, equation.params["index_dtype"])

    register_rule(name)(position)


_register_arg_extreme("argmax", lax.argmax)
_register_arg_extreme("argmin", lax.argmin)

for _name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    register_function(_name, getattr(lax, _name), axis="axis", reverse="reverse")


@register_rule("sort")
def _apply_sort(equation: Equation) -> PyTree:
    params = equation.params
    return lax.sort(
        tuple(equation.tracers), params["dimension"], params["is_stable"], params["num_keys"]
    )


@register_rule("dot_general")
def _apply_dot_general(equation: Equation) -> Tracer:
    x, y = equation.tracers
    return lax.dot_general(
        x,
        y,
        equation.params["dimension_numbers"],
        algorithm_of_product(equation.params["precision"]),
        equation.results[0].dtype,
    )


@register_rule("conv_general_dilated")
def _apply_conv(equation: Equation) -> Tracer:
    params = equation.params
    x, w = equation.tracers
    numbers = params["dimension_numbers"]
    return lax.conv_general_dilated(
        x,
        w,
        params["window_strides"],
        params["padding"],
        params["lhs_dilation"],
        params["rhs_dilation"],
        (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec),
        params["feature_group_count"],
        params["batch_group_count"],
        None,
        equation.results[0].dtype,
    )


@register_rule("fft")
def _apply_fft(equation: Equation) -> Tracer:
    (x,) = equation.tracers
    kind = equation.params["fft_type"]
    name = getattr(kind, "name", str(kind))
    return lax.fft(x, name, equation.params["fft_lengths"])
