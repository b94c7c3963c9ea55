"""Gamma distributions, and distributions that are derived from them.

Each number has its own key and is sampled by rejection (Marsaglia and Tsang, "A simple method for
generating gamma variables", 2000). A shape parameter below 1 is increased by 1, and the number is
multiplied by a power of a uniform number.
"""

from functools import partial
from math import prod

from shardir.frontend.argument_checks import canonicalize_shape, check_least_rank
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.nn.softmax import softmax
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, filling
from shardir.frontend.numpy.elementwise import arithmetic, complex_parts, math_functions, selection
from shardir.frontend.numpy.reductions import basic_reductions
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.random.continuous_distributions import (
    exponential,
    normal,
    rademacher,
    resolve_shape,
)
from shardir.frontend.random.key_derivation import independent_draws
from shardir.frontend.random.keys import require_single_key, split
from shardir.frontend.random.uniform_numbers import float_dtype_name, uniform
from shardir.frontend.scipy.special_functions.gamma_family import gammaln
from shardir.frontend.scipy.special_functions.incomplete_gamma import lower_gamma
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.frontend.transforms.jvp_vjp import jvp
from shardir.frontend.transforms.vmap import vmap
from shardir.ir.types import NUMPY_DTYPES


def _sample_gamma(key: Tracer, shape: Tracer, log_space: bool) -> Tracer:
    """Return one number."""
    dtype = shape.dtype
    small = shape < 1
    raised = selection.where(small, shape + 1, shape)
    d = raised - array_conversion.asarray(1 / 3, dtype)
    c = array_conversion.asarray(1 / 3, dtype) / math_functions.sqrt(d)

    def is_rejected(state: tuple[Tracer, ...]) -> Tracer:
        _, x, v, u = state
        squeezed = u >= 1 - array_conversion.asarray(0.0331, dtype) * (x * x)
        return squeezed & (math_functions.log(u) >= x * 0.5 + d * ((1 - v) + math_functions.log(v)))

    def draw_normal(state: PyTree) -> tuple[Tracer, ...]:
        inner = split(state[0])
        x = normal(inner[1], (), dtype)
        return inner[0], x, 1 + x * c

    def attempt(state: PyTree) -> tuple[Tracer, ...]:
        keys = split(state[0], 3)
        start = (keys[1], filling.zeros((), dtype), filling.full((), -1, dtype))
        _, x, v = while_loop(lambda state: state[2] <= 0, draw_normal, start)
        return keys[0], x * x, v * v * v, uniform(keys[2], (), dtype)

    keys = split(key)
    start = (keys[0], filling.zeros((), dtype), filling.ones((), dtype), filling.full((), 2, dtype))
    v: Tracer
    _, _, v, _ = while_loop(is_rejected, attempt, start)
    if log_space:
        lowered = -exponential(keys[1], (), dtype)
        boost = lowered * (1 / shape)
        return (
            math_functions.log(d)
            + math_functions.log(v)
            + selection.where(small & (lowered != 0), boost, 0.0)
        )
    rest = 1 - uniform(keys[1], (), dtype)
    return d * v * selection.where(small, arithmetic.power(rest, 1 / shape), 1.0)


def _sample_gammas(key: Tracer, a: Tracer, log_space: bool) -> Tracer:
    keys = split(key, prod(a.shape))
    with independent_draws():
        sample = vmap(partial(_sample_gamma, log_space=log_space))
        samples = sample(keys, reshaping.reshape(a, (-1,)))
    return reshaping.reshape(samples, a.shape)


_differentiable_samples = custom_jvp(_sample_gammas, nondiff_argnums=(2,))


@_differentiable_samples.defjvp
def _samples_jvp(log_space: bool, primals: PyTree, tangents: PyTree) -> tuple[Tracer, ...]:
    """Differentiate implicitly: the cumulative probability of a number stays constant."""
    key, a = primals
    samples = _differentiable_samples(key, a, log_space)
    x = math_functions.exp(samples) if log_space else samples
    x = selection.maximum(x, dtypes.finfo(x.dtype).tiny)
    _, cdf_tangent = jvp(lower_gamma, (a, x), (filling.ones_like(a), filling.zeros_like(x)))
    density = math_functions.exp((a - 1) * math_functions.log(x) - x - gammaln(a))
    derivative = -cdf_tangent / density
    return samples, (derivative / x if log_space else derivative) * tangents[1]


def _gamma_samples(
    key: ArrayLike, a: ArrayLike, shape: ShapeLike | None, dtype: DTypeLike | None, log_space: bool
) -> Tracer:
    name = float_dtype_name(dtype)
    a = convert(as_tracer(a), name)
    return _differentiable_samples(
        require_single_key(key), broadcast(a, resolve_shape(shape, a)), log_space
    )


@public(static=("shape", "dtype"))
def gamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return gamma-distributed numbers with shape parameter `a` and scale 1 (Marsaglia and Tsang,
    2000).

    `shape` is by default the shape of `a`, which must broadcast to it.
    """
    return _gamma_samples(key, a, shape, dtype, False)


@public(static=("shape", "dtype"))
def loggamma(
    key: ArrayLike,
    a: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the logarithms of gamma-distributed numbers, accurate for small `a`."""
    return _gamma_samples(key, a, shape, dtype, True)


@public(static=("shape", "dtype"))
def beta(
    key: ArrayLike,
    a: ArrayLike,
    b: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return beta-distributed numbers x / (x + y), for `gamma` numbers x and y of shapes a
    and b.
    """
    name = float_dtype_name(dtype)
    a, b = (convert(as_tracer(x), name) for x in (a, b))
    result_shape = resolve_shape(shape, a, b)
    keys = split(require_single_key(key))
    logs = [
        loggamma(keys[i], broadcast(x, result_shape), result_shape, NUMPY_DTYPES[name])
        for i, x in enumerate((a, b))
    ]
    largest = selection.maximum(*logs)
    first, second = (math_functions.exp(x - largest) for x in logs)
    return first / (first + second)


@public(static=("shape", "dtype"))
def dirichlet(
    key: ArrayLike,
    alpha: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Dirichlet-distributed vectors, which are positive and sum to 1.

    `shape` is the shape of the result without the vectors.
    """
    name = float_dtype_name(dtype)
    alpha = convert(as_tracer(alpha), name)
    check_least_rank("alpha of dirichlet", alpha, 1)
    front = alpha.shape[:-1] if shape is None else canonicalize_shape(shape)
    return softmax(_gamma_samples(key, alpha, (*front, alpha.shape[-1]), dtype, True), -1)


@public(static=("shape", "dtype"))
def chisquare(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return sums of squares of `df` normal numbers."""
    half = convert(as_tracer(df), float_dtype_name(dtype)) / 2
    return math_functions.exp(_gamma_samples(key, half, shape, dtype, True)) * 2


@public(static=("shape", "dtype"))
def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return quotients of mean squares of `dfnum` and `dfden` normal numbers."""
    name = float_dtype_name(dtype)
    top, bottom = (convert(as_tracer(x), name) for x in (dfnum, dfden))
    result_shape = resolve_shape(shape, top, bottom)
    keys = split(require_single_key(key))
    below = chisquare(keys[0], bottom, result_shape, dtype) / bottom
    return chisquare(keys[1], top, result_shape, dtype) / top / below


@public(static=("shape", "dtype"))
def t(
    key: ArrayLike,
    df: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return numbers of Student's t distribution with `df` degrees of freedom."""
    half = convert(as_tracer(df), float_dtype_name(dtype)) / 2
    result_shape = resolve_shape(None if shape is None or shape == () else shape, half)
    keys = split(require_single_key(key))
    drawn: Tracer = normal(keys[0], result_shape, dtype)
    return drawn * math_functions.sqrt(half / gamma(keys[1], half, result_shape, dtype))


@public(static=("shape", "dtype"))
def generalized_normal(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return numbers with density proportional to exp(-|x|**p)."""
    keys, name = split(require_single_key(key)), float_dtype_name(dtype)
    size = gamma(keys[0], 1 / as_tracer(p), shape, dtype)
    power = 1 / convert(as_tracer(p), name)
    return rademacher(keys[1], shape, NUMPY_DTYPES[name]) * arithmetic.power(size, power)


@public(static=("d", "shape", "dtype"))
def ball(
    key: ArrayLike,
    d: int,
    p: ArrayLike = 2,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return uniform points of the unit ball of `d` dimensions in the p-norm."""
    keys = split(require_single_key(key))
    drawn = generalized_normal(keys[0], p, (*canonicalize_shape(shape), d), dtype)
    radial = exponential(keys[1], shape, dtype)
    order = p if is_number(p) else as_tracer(p)
    total = basic_reductions.sum(arithmetic.power(complex_parts.abs(drawn), order), axis=-1)
    return drawn / arithmetic.power(total + radial, 1 / order)[..., None]
