"""Rules of elementwise primitives."""

from collections.abc import Callable
from typing import Any

from shardir.frontend.interop.jax_shardings import constrain_as_jax
from shardir.frontend.interop.primitive_rules.registry import (
    Equation,
    RuleResult,
    register_elementwise,
    register_function,
    register_rule,
)
from shardir.frontend.lax import api as lax
from shardir.frontend.lax.result_accuracy import ERROR_BOUNDS_ULP
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy import special
from shardir.frontend.tracing.operands import convert, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import FLOATS

SAME_NAMED_PRIMITIVES = (
    "abs acos acosh add asin asinh atan atan2 atanh ceil clz complex conj cosh digamma div eq "
    "erf erfc floor ge gt imag is_finite le lgamma lt max min mul ne neg nextafter "
    "population_count real rem shift_left shift_right_arithmetic shift_right_logical sign sinh "
    "square sub"
)
"""The primitives whose function in `lax` has the same name."""

RENAMED_PRIMITIVES: dict[str, Callable[..., Tracer]] = {
    "not": lax.bitwise_not,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "add_any": lax.add,
    "bessel_i0e": special.i0e,
    "bessel_i1e": special.i1e,
    "igamma": special.gammainc,
    "igammac": special.gammaincc,
    "polygamma": special.polygamma,
    "regularized_incomplete_beta": special.betainc,
    "zeta": special.zeta,
}
"""The primitives whose function has another name."""

for _name in SAME_NAMED_PRIMITIVES.split():
    register_elementwise(_name, getattr(lax, _name))
for _name, _function in RENAMED_PRIMITIVES.items():
    register_elementwise(_name, _function)


def _register_elementary(name: str) -> None:
    """Register a function whose primitive has `accuracy`, which may be a tolerance of JAX."""

    @register_rule(name)
    def apply_elementary(equation: Equation) -> Tracer:
        accuracy: Any = equation.params.get("accuracy")
        tolerance = None
        if hasattr(accuracy, "ulps"):
            tolerance = lax.Tolerance(accuracy.atol, accuracy.rtol, accuracy.ulps)
        function: Callable[..., Tracer] = getattr(lax, name)
        return function(*equation.broadcast_operands(), tolerance)


for _name in ERROR_BOUNDS_ULP:
    _register_elementary(_name)

register_function("integer_pow", lax.integer_pow, y="y")
register_function("bitcast_convert_type", lax.bitcast_convert_type, new_dtype="new_dtype")
register_function("stop_gradient", lax.stop_gradient)
for _name in ("copy", "layout_constraint", "xla_metadata_value"):
    register_function(_name, lambda x: x)
register_function("shard_alike", lambda x, y: (x, y))
register_function("optimization_barrier", lambda *xs: lax.optimization_barrier(xs))
register_function("reduce_precision", lax.reduce_precision,
       exponent_bits="exponent_bits", mantissa_bits="mantissa_bits")  # fmt: skip


@register_rule("erf_inv")
def _apply_erf_inv(equation: Equation) -> Tracer:
    """Emit erf_inv with XLA's polynomials, because JAX's normal random numbers depend on them."""
    (x,) = equation.broadcast_operands()
    return emit("erf_inv", x, as_xla=True)


@register_rule("pow")
def _apply_pow(equation: Equation) -> PyTree:
    base, power = equation.broadcast_operands()
    return lax.pow(base, convert(power, base.value.type.dtype))


@register_rule("round")
def _apply_round(equation: Equation) -> Tracer:
    (x,) = equation.broadcast_operands()
    return lax.round(x, lax.RoundingMethod(int(equation.params["rounding_method"])))


@register_rule("convert_element_type")
def _apply_convert_element_type(equation: Equation) -> Tracer:
    (x,) = equation.broadcast_operands()
    return convert(x, equation.dtype())


@register_rule("select_n")
def _apply_select_n(equation: Equation) -> Tracer:
    which, *cases = equation.operands
    index = which if isinstance(which, Tracer) else which.tracer()
    broadcast_cases = [x if isinstance(x, Tracer) else x.tracer(equation.shape()) for x in cases]
    if index.shape != equation.shape():
        index = lax.broadcast_in_dim(index, equation.shape(), ())
    return lax.select_n(index, *broadcast_cases)


@register_rule("clamp")
def _apply_clamp(equation: Equation) -> Tracer:
    low, x, high = equation.tracers
    return lax.clamp(low, lax.broadcast_in_dim(x, equation.shape(), tuple(range(x.ndim))), high)


def _compare_total_order(equation: Equation, function: Callable[..., Tracer]) -> Tracer:
    """Apply a comparison in the total order -NaN < -inf < ... < -0 < 0 < ... < inf < NaN."""
    x, y = equation.broadcast_operands()
    if x.value.type.dtype not in FLOATS:
        return function(x, y)
    return function(_total_order_integers(x), _total_order_integers(y))


def _total_order_integers(x: Tracer) -> Tracer:
    """Convert floats to integers in the total order of floats."""
    bits = DTYPE_INFO[x.value.type.dtype].bits
    bits_value = lax.bitcast_convert_type(x, f"int{bits}")
    kind = bits_value.value.type
    flipped = lax.bitwise_xor(bits_value, splat(2 ** (bits - 1) - 1, kind))
    result: Tracer = lax.select(lax.lt(bits_value, splat(0, kind)), flipped, bits_value)
    return result


register_rule("lt_to")(lambda equation: _compare_total_order(equation, lax.lt))
register_rule("le_to")(lambda equation: _compare_total_order(equation, lax.le))
register_rule("ge_to")(lambda equation: _compare_total_order(equation, lax.ge))
register_rule("gt_to")(lambda equation: _compare_total_order(equation, lax.gt))
register_rule("eq_to")(lambda equation: _compare_total_order(equation, lax.eq))


@register_rule("device_put")
def _apply_device_put(equation: Equation) -> RuleResult:
    """Apply a sharding; the placement is decided when the whole program is compiled."""
    targets = equation.params.get("devices") or (None,) * len(equation.operands)
    return [constrain_as_jax(x, to) for x, to in zip(equation.tracers, targets, strict=True)]
