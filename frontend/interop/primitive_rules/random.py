"""Rules of PRNG keys and bits; each remains one operation, which generates the bits of JAX."""

from shardir.frontend.arrays.jax_keys import key_dtype_of_implementation
from shardir.frontend.interop.primitive_rules.registry import Equation, RuleResult, register_rule
from shardir.frontend.lax import data_movement, slicing
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.random import gamma_distributions, keys as random_keys
from shardir.frontend.random.key_derivation import (
    draw_from_rbg,
    fold_in_keys,
    is_rbg,
    keys_of,
    split_keys,
)
from shardir.frontend.random.keys import counter_scheme
from shardir.frontend.tracing.operands import broadcast, convert
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS
from shardir.ir.types import TensorType


def _key_dtype(equation: Equation) -> str:
    """Return the name in the IR of the keys of the implementation that an equation names."""
    impl = equation.params.get("impl")
    return key_dtype_of_implementation(str(getattr(impl, "name", impl)))


@register_rule("random_seed")
def _apply_random_seed(equation: Equation) -> Tracer:
    kind = KEY_IMPLEMENTATIONS[_key_dtype(equation)]
    (seeds,) = equation.tracers
    if not seeds.ndim:
        return random_keys.key(seeds, impl=kind.name)
    low_words = convert(seeds, "u32")
    pair = [data_movement.full_like(low_words, 0), low_words]
    return keys_of(data_movement.stack(pair * (kind.num_words // 2), seeds.ndim), kind.dtype)


@register_rule("random_wrap")
def _apply_random_wrap(equation: Equation) -> Tracer:
    (words,) = equation.tracers
    return keys_of(words, _key_dtype(equation))


@register_rule("random_unwrap")
def _apply_random_unwrap(equation: Equation) -> Tracer:
    return random_keys.key_data(*equation.tracers)


@register_rule("random_bits")
def _apply_random_bits(equation: Equation) -> Tracer:
    (keys,) = equation.tracers
    if is_rbg(keys):
        return draw_from_rbg(keys, equation.params["shape"], equation.params["bit_width"])
    result = TensorType(equation.shape(), f"u{equation.params['bit_width']}")
    return emit("random_bits", keys, scheme=counter_scheme(), result=result)


@register_rule("random_split")
def _apply_random_split(equation: Equation) -> Tracer:
    (keys,) = equation.tracers
    return split_keys(keys, equation.params["shape"], str(counter_scheme()))


@register_rule("random_fold_in")
def _apply_random_fold_in(equation: Equation) -> Tracer:
    keys, data = equation.tracers
    return fold_in_keys(keys, convert(data, "u32"))


@register_rule("threefry2x32")
def _apply_threefry(equation: Equation) -> RuleResult:
    """Emit the threefry hash of pairs of words under keys of two words."""
    shape = equation.shape()
    first, second, x, y = (broadcast(word, shape) for word in equation.broadcast_operands())
    keys = random_keys.wrap_key_data(data_movement.stack([first, second], first.ndim))
    words: Tracer = random_keys.key_data(emit("random_hash", keys, x, y))
    last = words.ndim - 1
    return [slicing.index_in_dim(words, i, last, keepdims=False) for i in (0, 1)]


@register_rule("random_gamma")
def _apply_random_gamma(equation: Equation) -> PyTree:
    keys, shape = equation.tracers
    draw = (
        gamma_distributions.loggamma if equation.params["log_space"] else gamma_distributions.gamma
    )
    if keys.ndim:
        raise equation.unsupported_form_error("several keys", "draw from each with jax.lax.map")
    return draw(keys, shape, shape.shape, shape.dtype)


@register_rule("random_clone")
def _apply_random_clone(equation: Equation) -> list[Tracer]:
    return equation.tracers
