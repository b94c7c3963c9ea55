"""Continuous distributions, and Bernoulli, categorical and Rademacher, from uniform numbers."""

import numpy as np

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.numpy.creation import filling
from shardir.frontend.numpy.dtypes import finfo
from shardir.frontend.numpy.elementwise import arithmetic, complex_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.quoting import brief
from shardir.frontend.random.keys import require_single_key, split
from shardir.frontend.random.uniform_numbers import draw_between, draw_unit, float_dtype_name
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast_shapes, constant, convert
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import COMPLEX, FLOATS, NUMPY_DTYPES, REAL_OF


def _typed_constant(value: ArrayLike, name: str) -> Tracer:
    return constant(np.asarray(value).astype(NUMPY_DTYPES[name]))


def _standard_normal(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    dtype = NUMPY_DTYPES[name]
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    return _normal_from_uniform(draw_between(key, shape, name, _typed_constant(low, name), 1.0))


def _normal_from_uniform(uniform: Tracer) -> Tracer:
    """Convert uniform to normal numbers by XLA's polynomials for erf_inv, to equal those of JAX."""
    inverse: Tracer = emit("erf_inv", uniform, as_xla=True)
    return _multiply(inverse, np.sqrt(2))


def _multiply(x: Tracer, factor: ArrayLike) -> Tracer:
    scaled: Tracer = arithmetic.multiply(x, _typed_constant(factor, x.value.type.dtype))
    return scaled


@public(static=("shape", "dtype"))
def normal(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return normal numbers of mean 0 and variance 1, by default of the default floating type.

    The variance of complex numbers is the sum of those of both parts.
    """
    kind = dtype_of(float if dtype is None else dtype)
    if kind in COMPLEX:
        keys = split(require_single_key(key))
        real, imag = (
            _standard_normal(keys[i], canonicalize_shape(shape), REAL_OF[kind]) for i in range(2)
        )
        return emit("complex", real, imag) / _typed_constant(np.sqrt(2), kind)
    return _standard_normal(
        require_single_key(key), canonicalize_shape(shape), float_dtype_name(dtype)
    )


@public(static=("shape", "dtype"))
def lognormal(
    key: ArrayLike,
    sigma: ArrayLike = 1.0,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the exponential of normal numbers of mean 0 and standard deviation `sigma`."""
    name = float_dtype_name(dtype)
    spread = convert(as_tracer(sigma), name)
    result_shape = resolve_shape(shape, spread)
    return math_functions.exp(
        _standard_normal(require_single_key(key), result_shape, name) * spread
    )


def resolve_shape(shape: ShapeLike | None, *parameters: Tracer) -> tuple[int, ...]:
    """Return the shape of the result: `shape`, or the broadcast shape of the parameters.

    Raise `RandomError` if the parameters do not broadcast to `shape`.
    """
    parameter_shape = broadcast_shapes(*(x.shape for x in parameters))
    result = parameter_shape if shape is None else canonicalize_shape(shape)
    if not _broadcasts_to(parameter_shape, result):
        raise RandomError(
            with_location(
                f"parameters of shape {parameter_shape} do not broadcast to numbers of shape "
                f"{result}"
            )
        )
    return result


def _broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to the result shape `target`."""
    try:
        return np.broadcast_shapes(target, shape) == target
    except ValueError:
        return False


@public(static=("shape", "dtype"))
def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return normal numbers of mean 0 and variance 1, truncated to (lower, upper)."""
    name = float_dtype_name(dtype)
    low, high = (convert(as_tracer(x), name) for x in (lower, upper))
    result_shape = resolve_shape(shape, low, high)
    root = _typed_constant(np.sqrt(2), name)
    a, b = emit("erf", low / root), emit("erf", high / root)
    drawn = _normal_from_uniform(draw_between(require_single_key(key), result_shape, name, a, b))
    nearest = emit("nextafter", low, filling.full_like(low, np.inf))
    farthest = emit("nextafter", high, filling.full_like(high, -np.inf))
    return selection.clip(drawn, nearest, farthest)


def check_mode(name: str, mode: object) -> bool:
    """Return whether a sampler draws twice the number of random bits."""
    if mode not in ("low", "high", None):
        raise RandomError(
            with_location(f"the mode of {name} is 'low' or 'high', got {brief(mode)}")
        )
    return mode == "high"


@public(static=("shape", "mode"))
def bernoulli(
    key: ArrayLike,
    p: ArrayLike = 0.5,
    shape: ShapeLike | None = None,
    mode: str = "low",
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return bools, true with probability `p`, a float in [0, 1]; `shape` is by default that of
    `p`.

    The mode "high" draws twice the number of bits, so that probabilities below 1e-7 are correct.
    """
    is_high = check_mode("bernoulli", mode)
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    result_shape = resolve_shape(shape, chance)
    name = chance.value.type.dtype
    if is_high:
        drawn = draw_unit(require_single_key(key), (2, *result_shape), name)
        result: Tracer = drawn[1] * 2.0 ** -DTYPE_INFO[name].mantissa_bits < chance - drawn[0]
        return result
    return draw_unit(require_single_key(key), result_shape, name) < chance


@public(static=("shape", "dtype"))
def exponential(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return exponentially distributed numbers of mean 1."""
    drawn = draw_unit(require_single_key(key), canonicalize_shape(shape), float_dtype_name(dtype))
    return arithmetic.negative(math_functions.log1p(arithmetic.negative(drawn)))


def sample_gumbel(key: Tracer, shape: tuple[int, ...], name: str, is_high: bool = False) -> Tracer:
    """Return standard Gumbel numbers, -log(-log(u)) for uniform u.

    `is_high` draws twice the number of bits, and the largest numbers are larger.
    """
    tiny = _typed_constant(finfo(NUMPY_DTYPES[name]).tiny, name)
    if is_high:
        pair = draw_between(key, (2, *shape), name, 0.0, 1.0)
        step = 2.0 ** -DTYPE_INFO[name].mantissa_bits
        rest = selection.where(pair[0] >= 0.5, pair[0], pair[0] + step * pair[1] + tiny)
        large: Tracer = -math_functions.log(-math_functions.log1p(-rest))
        return large
    drawn = draw_between(key, shape, name, tiny, 1.0)
    result: Tracer = -math_functions.log(-math_functions.log(drawn))
    return result


@public(static=("shape", "dtype", "mode"))
def gumbel(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    mode: str | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return standard Gumbel numbers, -log(-log(u)) for uniform u.

    The mode "high" draws twice the number of bits: in f32, the largest numbers are 32, not 16.
    """
    is_high = check_mode("gumbel", mode)
    single, name = require_single_key(key), float_dtype_name(dtype)
    return sample_gumbel(single, canonicalize_shape(shape), name, is_high)


@public(static=("axis", "shape", "replace", "mode"))
def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: ShapeLike | None = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return indices along `axis`, whose probabilities have the logarithms `logits`.

    `shape` is the shape of the result; it ends with the shape of `logits` without the axis. Without
    `replace`, the draws in the leading dimensions differ from each other. The mode "high" draws
    twice the number of bits, so that probabilities below 1e-7 are correct.
    """
    is_high = check_mode("categorical", mode)
    weights = as_tracer(logits)
    if weights.value.type.dtype not in FLOATS:
        weights = convert(weights, dtype_of(float))
    name = weights.value.type.dtype
    # The axis is counted from the end, so that leading dimensions of draws do not change it.
    axis = canonicalize_axis(axis, weights.ndim) - weights.ndim
    batch = list(weights.shape)
    classes = batch.pop(axis)
    result_shape = tuple(batch) if shape is None else canonicalize_shape(shape)
    front = result_shape[: len(result_shape) - len(batch)]
    if not _broadcasts_to(tuple(batch), result_shape[len(front) :]):
        raise RandomError(
            with_location(
                f"the shape {result_shape} of the draws does not end with that of logits "
                f"{tuple(batch)}"
            )
        )
    single = require_single_key(key)
    if not replace:
        return _sample_without_replacement(single, weights, axis, front, result_shape, is_high)
    full = list(result_shape)
    full.insert(len(result_shape) + axis + 1, classes)
    noise = sample_gumbel(single, tuple(full), name, is_high)
    return basic_reductions.argmax(noise + weights, axis=axis)


def _sample_without_replacement(
    key: Tracer, weights: Tracer, axis: int, front: tuple[int, ...], result_shape: tuple[int, ...],
    is_high: bool,
) -> Tracer:  # fmt: skip
    count = int(np.prod(front, dtype=np.int64))
    if count > weights.shape[axis]:
        raise RandomError(
            with_location(
                f"cannot draw {count} of {weights.shape[axis]} classes without replacement"
            )
        )
    noisy = reshaping.moveaxis(
        sample_gumbel(key, weights.shape, weights.value.type.dtype, is_high) + weights, axis, -1
    )
    values = noisy.value.type.with_shape((*noisy.shape[:-1], count))
    _, indices = emit_results("top_k", noisy, result=(values, values.with_dtype("i32")))
    result: Tracer = reshaping.reshape(reshaping.moveaxis(indices, -1, 0), result_shape)
    return result


@public(static=("shape", "dtype"))
def laplace(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Laplace-distributed numbers of mean 0 and scale 1."""
    name = float_dtype_name(dtype)
    low = NUMPY_DTYPES[name].type(-1) + NUMPY_DTYPES[name].type(finfo(NUMPY_DTYPES[name]).eps)
    drawn = draw_between(
        require_single_key(key), canonicalize_shape(shape), name, _typed_constant(low, name), 1.0
    )
    return arithmetic.multiply(emit("sign", drawn), math_functions.log1p(-complex_parts.abs(drawn)))


def _uniform_from(key: ArrayLike, shape: ShapeLike, name: str, low: ArrayLike) -> Tracer:
    """Return uniform numbers in [low, 1)."""
    return draw_between(
        require_single_key(key), canonicalize_shape(shape), name, _typed_constant(low, name), 1.0
    )


@public(static=("shape", "dtype"))
def logistic(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return logistically distributed numbers of mean 0 and scale 1."""
    name = float_dtype_name(dtype)
    drawn = _uniform_from(key, shape, name, finfo(NUMPY_DTYPES[name]).tiny)
    return math_functions.log(drawn / (1 - drawn))


@public(static=("shape", "dtype"))
def cauchy(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Cauchy-distributed numbers of location 0 and scale 1."""
    name = float_dtype_name(dtype)
    drawn = _uniform_from(key, shape, name, finfo(NUMPY_DTYPES[name]).eps)
    return math_functions.tan(_multiply(drawn - _typed_constant(0.5, name), np.pi))


@public(static=("shape", "dtype"))
def pareto(
    key: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Pareto-distributed numbers of scale 1 and shape parameter `b`."""
    name = float_dtype_name(dtype)
    tail = convert(as_tracer(b), name)
    return math_functions.exp(
        exponential(key, resolve_shape(shape, tail), NUMPY_DTYPES[name]) / tail
    )


@public(static=("shape", "dtype"))
def rayleigh(
    key: ArrayLike,
    scale: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Rayleigh-distributed numbers with the parameter `scale`."""
    name = float_dtype_name(dtype)
    sigma = convert(as_tracer(scale), name)
    drawn = draw_unit(require_single_key(key), resolve_shape(shape, sigma), name)
    return sigma * math_functions.sqrt(_multiply(math_functions.log(drawn), -2))


@public(static=("shape", "dtype"))
def weibull_min(
    key: ArrayLike,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
) -> Tracer:
    """Return Weibull-distributed numbers, `scale` * (-log(1 - u)) ** (1 / `concentration`)."""
    name = float_dtype_name(dtype)
    drawn = draw_unit(require_single_key(key), canonicalize_shape(shape), name)
    power = 1 / convert(as_tracer(concentration), name)
    return arithmetic.power(-math_functions.log1p(-drawn), power) * convert(as_tracer(scale), name)


@public(static=("shape", "dtype"))
def rademacher(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return 1 or -1 with equal probability, by default of the default integer type."""
    name = dtype_of(int if dtype is None else dtype)
    heads = bernoulli(key, 0.5, canonicalize_shape(shape))
    return convert(selection.where(heads, np.int32(1), np.int32(-1)), name)
