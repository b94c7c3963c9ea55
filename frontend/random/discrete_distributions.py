"""Discrete distributions of counts: Poisson, binomial, multinomial and geometric.

Small means are sampled event by event, large ones by transformed rejection (W. Hormann, "The
transformed rejection method for generating Poisson random variables", 1993).
"""

import numpy as np

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.lax.control_flow.loops import scan, while_loop
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import array_conversion, filling
from shardir.frontend.numpy.elementwise import (
    complex_parts,
    float_parts,
    math_functions,
    rounding,
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions, cumulative
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.random.continuous_distributions import resolve_shape
from shardir.frontend.random.keys import require_single_key, split
from shardir.frontend.random.uniform_numbers import uniform
from shardir.frontend.scipy.special_functions.gamma_family import gammaln
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.key_implementations import KEY_IMPLEMENTATIONS, THREEFRY
from shardir.ir.types import FLOATS, INTEGERS, NUMPY_DTYPES, NumpyDType

ShapeTuple = tuple[int, ...]


def _integer_dtype(dtype: DTypeLike | None) -> NumpyDType:
    name = dtype_of(int if dtype is None else dtype)
    if name not in INTEGERS:
        raise RandomError(with_location(f"random counts cannot be of type {name}"))
    return NUMPY_DTYPES[name]


def _require_threefry(key: ArrayLike, name: str) -> Tracer:
    """Return one typed key of `threefry2x32`; raise `RandomError` for other keys, as JAX does."""
    single = require_single_key(key)
    implementation = KEY_IMPLEMENTATIONS[single.value.type.dtype]
    if implementation != THREEFRY:
        raise RandomError(
            with_location(
                f"{name} takes a key of {THREEFRY.name!r}, got one of {implementation.name!r}; "
                f"make one with random.key(seed, impl={THREEFRY.name!r})"
            )
        )
    return single


@public(static=("shape", "dtype"))
def poisson(
    key: ArrayLike,
    lam: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return Poisson-distributed integers with mean `lam`.

    Means below 10 are sampled by counting events (D. Knuth), others by transformed rejection (W.
    Hormann, 1993). The shape is that of `lam` by default, the element type the default integer
    type.
    """
    single = _require_threefry(key, "poisson")
    kind = _integer_dtype(dtype)
    rate = convert(as_tracer(lam), "f32")
    result_shape = resolve_shape(shape, rate)
    rate = broadcast(rate, result_shape)
    is_small = float_parts.isnan(rate) | (rate < 10)
    small = _sample_by_counting(single, selection.where(is_small, rate, 0.0), result_shape, kind)
    large = _sample_by_rejection(
        single, selection.where(is_small, np.float32(1e5), rate), result_shape, kind
    )
    return selection.where(
        rate == 0, filling.zeros_like(small), selection.where(is_small, small, large)
    )


def _sample_by_counting(
    key: ArrayLike, rate: Tracer, shape: ShapeTuple, kind: NumpyDType
) -> Tracer:
    def is_unfinished(state: tuple[Tracer, ...]) -> Tracer:
        return basic_reductions.any(state[2] > -rate)

    def step(state: PyTree) -> PyTree:
        count, key, log_product = state
        keys = split(key)
        count = selection.where(log_product > -rate, count + 1, count)
        return count, keys[0], log_product + math_functions.log(uniform(keys[1], shape, np.float32))

    start = (filling.zeros(shape, kind), key, filling.zeros(shape, np.float32))
    count: Tracer = while_loop(is_unfinished, step, start)[0]
    return count - 1


def _sample_by_rejection(
    key: ArrayLike, rate: Tracer, shape: ShapeTuple, kind: NumpyDType
) -> Tracer:
    log_rate = math_functions.log(rate)
    b = 0.931 + 2.53 * math_functions.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)

    def step(state: PyTree) -> PyTree:
        found, accepted, key = state
        keys = split(key, 3)
        u = uniform(keys[1], shape, np.float32) - 0.5
        v = uniform(keys[2], shape, np.float32)
        distance = 0.5 - complex_parts.abs(u)
        k = rounding.floor((2 * a / distance + b) * u + rate + 0.43)
        s = math_functions.log(v * inverse / (a / (distance * distance) + b))
        t = -rate + k * log_rate - gammaln(k + 1)
        rejected = (k < 0) | ((distance < 0.013) & (v > distance))
        accept = ((distance >= 0.07) & (v <= limit)) | (~rejected & (s <= t))
        return selection.where(accept, k, found), accepted | accept, keys[0]

    start = (filling.full(shape, -1, np.float32), filling.zeros(shape, bool), key)
    result: Tracer = while_loop(lambda state: basic_reductions.any(~state[1]), step, start)[0]
    return result.astype(kind)


@public(static=("shape", "dtype"))
def geometric(
    key: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the number of trials up to the first success, each with probability `p`.

    The shape is that of `p` by default, the element type the default integer type.
    """
    kind = _integer_dtype(dtype)
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    result_shape = resolve_shape(shape, chance)
    u = uniform(require_single_key(key), result_shape, chance.dtype)
    u = selection.where(u == 0, filling.ones_like(u), u)
    return (
        rounding.floor(
            math_functions.log(u) / broadcast(math_functions.log1p(-chance), result_shape)
        )
        + 1
    ).astype(kind)


@public(static=("shape", "dtype"))
def binomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
) -> Tracer:
    """Return the number of successes in `n` trials, each with probability `p`, as floats.

    The result is NaN for invalid parameters. The shape is the broadcast shape of the parameters by
    default.
    """
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    name = chance.value.type.dtype if dtype is None else dtype_of(dtype)
    kind = NUMPY_DTYPES[name]
    total = convert(as_tracer(n), chance.value.type.dtype)
    result_shape = resolve_shape(shape, total, chance)
    total, chance = broadcast(total, result_shape), broadcast(chance, result_shape)
    rare = chance < 0.5
    q = selection.where(rare, chance, 1 - chance)
    wrong_total, wrong = float_parts.isnan(total) | (total < 0), float_parts.isnan(q) | (q < 0)
    is_infinite = float_parts.isinf(total)
    q = selection.where(wrong, filling.full_like(q, 0.01), q)
    is_small = wrong_total | (total * q <= 10)
    total = rounding.floor(total)
    single = require_single_key(key)
    small = _sample_by_inversion(single, selection.where(is_small, total, 0.0), q, result_shape)
    large = _sample_binomial_by_rejection(
        single,
        selection.where(is_small, filling.full_like(total, 1e4), total),
        selection.where(is_small, filling.full_like(q, 0.5), q),
        result_shape,
    )
    result = selection.where(is_small, small, large).astype(kind)
    is_invalid = wrong | wrong_total
    if name in FLOATS:
        result = selection.where(
            is_invalid, dtypes.nan, selection.where(is_infinite, dtypes.inf, result)
        )
    is_direct = rare | wrong_total | float_parts.isnan(chance) | is_infinite
    return selection.where(is_direct, result, total.astype(kind) - result).astype(kind)


@public(static=("shape", "dtype"))
def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: ShapeLike | None = None,
    dtype: DTypeLike | None = None,
    unroll: object = 1,
) -> Tracer:
    """Return the count of each of several outcomes in `n` trials with probabilities `p[..., k]`.

    The counts are conditional binomial draws from the remaining trials. `shape` is the shape of the
    result with the outcomes, by default that of `p`; `unroll` has no effect.
    """
    chances = as_tracer(p)
    if chances.value.type.dtype not in FLOATS:
        chances = convert(chances, dtype_of(float))
    if not chances.ndim:
        raise RandomError(
            with_location("multinomial has outcomes along the last axis of p, got a scalar")
        )
    kind = chances.value.type.dtype
    result_shape = chances.shape if shape is None else canonicalize_shape(shape)
    trials = broadcast(convert(as_tracer(n), kind), result_shape[:-1])
    first = reshaping.moveaxis(broadcast(chances, result_shape), -1, 0)
    remaining_mass = reshaping.flip(cumulative.cumsum(reshaping.flip(first, 0), 0), 0)
    shares = first / selection.where(remaining_mass == 0, 1, remaining_mass)

    def step(remaining: Tracer, each: tuple[Tracer, ...]) -> PyTree:
        share, key = each
        count = binomial(key, remaining, selection.clip(share, 0, 1), dtype=remaining.dtype)
        return remaining - count, count

    _, counts = scan(step, trials, (shares, split(require_single_key(key), result_shape[-1])))
    return reshaping.moveaxis(counts, 0, -1).astype(NUMPY_DTYPES[dtype_of(dtype or float)])


def _sample_by_inversion(key: Tracer, total: Tracer, q: Tracer, shape: ShapeTuple) -> Tracer:
    log_rest = math_functions.log1p(-q)

    def step(state: PyTree) -> PyTree:
        count, trials, key = state
        keys = split(key)
        count = selection.where(trials <= total, count + 1, count)
        u = uniform(keys[0], shape, q.dtype)
        return count, trials + rounding.ceil(math_functions.log(u) / log_rest), keys[1]

    start = (filling.zeros(shape, q.dtype), filling.zeros(shape, q.dtype), key)
    count: Tracer = while_loop(lambda state: basic_reductions.any(state[1] <= total), step, start)[
        0
    ]
    return count - 1


def _sample_binomial_by_rejection(
    key: Tracer, total: Tracer, q: Tracer, shape: ShapeTuple
) -> Tracer:
    deviation = math_functions.sqrt(total * q * (1 - q))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * q
    c = total * q + 0.5
    limit = 0.92 - 4.2 / b
    odds = q / (1 - q)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = rounding.floor((total + 1) * q)

    def step(state: PyTree) -> PyTree:
        found, accepted, key = state
        keys = split(key, 3)
        u = uniform(keys[1], shape, q.dtype) - 0.5
        v = uniform(keys[2], shape, q.dtype)
        distance = 0.5 - complex_parts.abs(u)
        k = rounding.floor((2 * a / distance + b) * u + c)
        rejected = (k < 0) | (k > total)
        bound = (
            (mode + 0.5) * math_functions.log((mode + 1) / (odds * (total - mode + 1)))
            + (total + 1) * math_functions.log((total - mode + 1) / (total - k + 1))
            + (k + 0.5) * math_functions.log(odds * (total - k + 1) / (k + 1))
            + _stirling_correction(mode)
            + _stirling_correction(total - mode)
            - _stirling_correction(k)
            - _stirling_correction(total - k)
        )
        below = math_functions.log(v * alpha / (a / (distance * distance) + b)) <= bound
        accept = ((distance >= 0.07) & (v <= limit)) | (~rejected & below)
        return selection.where(accept, k, found), accepted | accept, keys[0]

    start = (filling.full(shape, -1, q.dtype), filling.zeros(shape, bool), key)
    count: Tracer = while_loop(lambda state: basic_reductions.any(~state[1]), step, start)[0]
    return count


def _stirling_correction(k: Tracer) -> Tracer:
    """Return the difference between log(k!) and Stirling's formula."""
    first = [
        0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
        0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
        0.00925546218271273, 0.00833056343336287,
    ]  # fmt: skip
    known = array_conversion.array(np.array(first), k.dtype)
    small = selection.clip(k, 0.0, 9.0)
    square = (small + 1) * (small + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (small + 1)
    return selection.where(k <= 9, known[rounding.floor(small).astype(np.int32)], series)
