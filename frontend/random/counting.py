"""Whole numbers that count something: Poisson, binomial and geometric ones.

Small means are counted one event at a time; large ones are drawn by transformed rejection (W.
Hormann, "The transformed rejection method for generating Poisson random variables", 1993).
"""

from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.lax.loops import scan, while_loop
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, broadcast, convert
from shardir.frontend.promotion import dtype_of
from shardir.frontend.random.distributions import wanted_shape
from shardir.frontend.random.keys import single_key, split
from shardir.frontend.random.uniformly import uniform
from shardir.frontend.scipy.gammas import gammaln
from shardir.types import FLOATS, INTEGERS, NUMPY_DTYPES

Shape = tuple[int, ...]


def _integer(dtype: Any) -> np.dtype[Any]:
    name = dtype_of(int if dtype is None else dtype)
    if name not in INTEGERS:
        raise RandomError(point(f"random counts cannot be of type {name}"))
    return NUMPY_DTYPES[name]


@public(static=("shape", "dtype"))
def poisson(
    key: Any, lam: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """Counts of events of which `lam` are expected, integers: small ones by counting (D. Knuth),
    others by transformed rejection (W. Hormann, 1993)."""
    kind = _integer(dtype)
    rate = convert(as_tracer(lam), "f32")
    wanted = wanted_shape(shape, rate)
    rate = broadcast(rate, wanted)
    few = snp.isnan(rate) | (rate < 10)
    single = single_key(key)
    small = _counted(single, snp.where(few, rate, 0.0), wanted, kind)
    large = _rejected(single, snp.where(few, np.float32(1e5), rate), wanted, kind)
    return snp.where(rate == 0, snp.zeros_like(small), snp.where(few, small, large))


def _counted(key: Any, rate: Any, shape: Shape, kind: np.dtype[Any]) -> Any:
    def goes_on(state: Any) -> Any:
        return snp.any(state[2] > -rate)

    def step(state: Any) -> Any:
        count, key, log_product = state
        keys = split(key)
        count = snp.where(log_product > -rate, count + 1, count)
        return count, keys[0], log_product + snp.log(uniform(keys[1], shape, np.float32))

    start = (snp.zeros(shape, kind), key, snp.zeros(shape, np.float32))
    return while_loop(goes_on, step, start)[0] - 1


def _rejected(key: Any, rate: Any, shape: Shape, kind: np.dtype[Any]) -> Any:
    log_rate = snp.log(rate)
    b = 0.931 + 2.53 * snp.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    limit = 0.9277 - 3.6224 / (b - 2)

    def step(state: Any) -> Any:
        found, accepted, key = state
        keys = split(key, 3)
        u = uniform(keys[1], shape, np.float32) - 0.5
        v = uniform(keys[2], shape, np.float32)
        apart = 0.5 - snp.abs(u)
        k = snp.floor((2 * a / apart + b) * u + rate + 0.43)
        s = snp.log(v * inverse / (a / (apart * apart) + b))
        t = -rate + k * log_rate - gammaln(k + 1)
        refused = (k < 0) | ((apart < 0.013) & (v > apart))
        accept = ((apart >= 0.07) & (v <= limit)) | (~refused & (s <= t))
        return snp.where(accept, k, found), accepted | accept, keys[0]

    start = (snp.full(shape, -1, np.float32), snp.zeros(shape, bool), key)
    found = while_loop(lambda state: snp.any(~state[1]), step, start)[0]
    return found.astype(kind)


@public(static=("shape", "dtype"))
def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Any:
    """How many trials it takes until one succeeds, each with probability `p`."""
    kind = _integer(dtype)
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    wanted = wanted_shape(shape, chance)
    u = uniform(single_key(key), wanted, chance.dtype)
    u = snp.where(u == 0, snp.ones_like(u), u)
    return (snp.floor(snp.log(u) / broadcast(snp.log1p(-chance), wanted)) + 1).astype(kind)


@public(static=("shape", "dtype"))
def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of `n` trials succeed, each with probability `p`; floating, NaN for wrong ones."""
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    name = chance.value.type.dtype if dtype is None else dtype_of(dtype)
    kind = NUMPY_DTYPES[name]
    total = convert(as_tracer(n), chance.value.type.dtype)
    wanted = wanted_shape(shape, total, chance)
    total, chance = broadcast(total, wanted), broadcast(chance, wanted)
    rare = chance < 0.5
    q = snp.where(rare, chance, 1 - chance)
    wrong_total, wrong = snp.isnan(total) | (total < 0), snp.isnan(q) | (q < 0)
    many = snp.isinf(total)
    q = snp.where(wrong, snp.full_like(q, 0.01), q)
    few = wrong_total | (total * q <= 10)
    total = snp.floor(total)
    single = single_key(key)
    small = _inverted(single, snp.where(few, total, 0.0), q, wanted)
    large = _transformed(
        single,
        snp.where(few, snp.full_like(total, 1e4), total),
        snp.where(few, snp.full_like(q, 0.5), q),
        wanted,
    )
    made = snp.where(few, small, large).astype(kind)
    bad = wrong | wrong_total
    if name in FLOATS:
        made = snp.where(bad, snp.nan, snp.where(many, snp.inf, made))
    kept = rare | wrong_total | snp.isnan(chance) | many
    return snp.where(kept, made, total.astype(kind) - made).astype(kind)


@public(static=("shape", "dtype"))
def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: Any = 1
) -> Any:
    """How often each of several outcomes comes in `n` trials; `p[..., k]` are their chances.

    One after the other, an outcome takes its share of the trials that are left. `shape` is that of
    the result, outcomes included, by default the one of `p`; `unroll` changes nothing.
    """
    chances = as_tracer(p)
    if chances.value.type.dtype not in FLOATS:
        chances = convert(chances, dtype_of(float))
    if not chances.ndim:
        raise RandomError(point("multinomial has outcomes along the last axis of p, got a scalar"))
    kind = chances.value.type.dtype
    wanted = chances.shape if shape is None else tuple(shape)
    trials = broadcast(convert(as_tracer(n), kind), wanted[:-1])
    first = snp.moveaxis(broadcast(chances, wanted), -1, 0)
    left = snp.flip(snp.cumsum(snp.flip(first, 0), 0), 0)
    shares = first / snp.where(left == 0, 1, left)

    def step(remaining: Any, each: Any) -> Any:
        share, own = each
        count = binomial(own, remaining, snp.clip(share, 0, 1), dtype=remaining.dtype)
        return remaining - count, count

    _, counts = scan(step, trials, (shares, split(single_key(key), wanted[-1])))
    return snp.moveaxis(counts, 0, -1).astype(NUMPY_DTYPES[dtype_of(dtype or float)])


def _inverted(key: Any, total: Any, q: Any, shape: Shape) -> Any:
    log_rest = snp.log1p(-q)

    def step(state: Any) -> Any:
        count, trials, key = state
        keys = split(key)
        count = snp.where(trials <= total, count + 1, count)
        u = uniform(keys[0], shape, q.dtype)
        return count, trials + snp.ceil(snp.log(u) / log_rest), keys[1]

    start = (snp.zeros(shape, q.dtype), snp.zeros(shape, q.dtype), key)
    return while_loop(lambda state: snp.any(state[1] <= total), step, start)[0] - 1


def _transformed(key: Any, total: Any, q: Any, shape: Shape) -> Any:
    deviation = snp.sqrt(total * q * (1 - q))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * q
    c = total * q + 0.5
    limit = 0.92 - 4.2 / b
    odds = q / (1 - q)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = snp.floor((total + 1) * q)

    def step(state: Any) -> Any:
        found, accepted, key = state
        keys = split(key, 3)
        u = uniform(keys[1], shape, q.dtype) - 0.5
        v = uniform(keys[2], shape, q.dtype)
        apart = 0.5 - snp.abs(u)
        k = snp.floor((2 * a / apart + b) * u + c)
        refused = (k < 0) | (k > total)
        bound = (
            (mode + 0.5) * snp.log((mode + 1) / (odds * (total - mode + 1)))
            + (total + 1) * snp.log((total - mode + 1) / (total - k + 1))
            + (k + 0.5) * snp.log(odds * (total - k + 1) / (k + 1))
            + _tail(mode)
            + _tail(total - mode)
            - _tail(k)
            - _tail(total - k)
        )
        below = snp.log(v * alpha / (a / (apart * apart) + b)) <= bound
        accept = ((apart >= 0.07) & (v <= limit)) | (~refused & below)
        return snp.where(accept, k, found), accepted | accept, keys[0]

    start = (snp.full(shape, -1, q.dtype), snp.zeros(shape, bool), key)
    return while_loop(lambda state: snp.any(~state[1]), step, start)[0]


def _tail(k: Any) -> Any:
    """What Stirling's formula lacks of log(k!)."""
    first = [
        0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
        0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
        0.00925546218271273, 0.00833056343336287,
    ]  # fmt: skip
    known = snp.array(np.array(first), k.dtype)
    small = snp.clip(k, 0.0, 9.0)
    square = (small + 1) * (small + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (small + 1)
    return snp.where(k <= 9, known[snp.floor(small).astype(np.int32)], series)
