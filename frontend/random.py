"""Random numbers from explicit keys, the same as `jax.random` draws from the same keys.

A key is an array of element type `key`; it never changes, and the numbers depend on the key
and the shape alone, never on how anything is sharded. The algorithms are JAX's (threefry2x32 of
Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11), bit for bit for integers and
uniform numbers.
"""

from collections.abc import Sequence
from math import ceil, log
from typing import Any

import numpy as np

from shardir.frontend import numpy as snp
from shardir.frontend.config import config
from shardir.frontend.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, broadcast, constant, convert, is_number
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.opset import Symbol
from shardir.types import FLOATS, INTEGERS, NUMPY_DTYPES, UNSIGNED, TensorType

Shape = int | Sequence[int]
BITS = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}


def _shape(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(n) for n in shape)


def _scheme() -> Symbol:
    return Symbol("partitionable" if config.threefry_partitionable else "original")


def _key(key: Any) -> tuple[Tracer, bool]:
    """A typed key, and whether it was given as two 32-bit words (`PRNGKey`)."""
    tracer = as_tracer(key)
    type = tracer.value.type
    if type.dtype == "key":
        return tracer, False
    if type.dtype == "u32" and type.shape and type.shape[-1] == 2:
        return _wrapped(tracer), True
    raise RandomError(point(f"a random key is wanted, got {type}; make one with random.key(seed)"))


def _wrapped(words: Tracer) -> Tracer:
    kind = TensorType(words.shape[:-1], "key")
    wrapped: Tracer = emit("bitcast", words, result=kind)
    return wrapped


def _words(key: Tracer) -> Tracer:
    words: Tracer = emit("bitcast", key, result=TensorType((*key.shape, 2), "u32"))
    return words


def _single(key: Any) -> Tracer:
    found, _ = _key(key)
    if found.ndim:
        raise RandomError(
            point(f"one random key is wanted, got an array of keys of shape {found.shape}")
        )
    return found


def _floating(dtype: Any) -> str:
    name = dtype_of(float if dtype is None else dtype)
    if name not in FLOATS:
        raise RandomError(point(f"random floating-point numbers cannot be of type {name}"))
    return name


@public()
def wrap_key_data(words: Any) -> Any:
    """Keys from their words: u32[..., 2] to key[...]."""
    return _key(words)[0]


@public()
def key_data(key: Any) -> Any:
    """The words of keys: key[...] to u32[..., 2]."""
    return _words(_key(key)[0])


@public()
def _seeded(seed: Any) -> Any:
    seed = as_tracer(seed)
    if seed.value.type.dtype not in INTEGERS or seed.ndim:
        raise RandomError(point(f"a seed is an integer, got {seed.value.type}"))
    low = convert(seed, "u32")
    high = snp.zeros((), np.uint32)
    if seed.value.type.dtype in ("i64", "u64"):
        high = convert(snp.right_shift(convert(seed, "u64"), 32), "u32")
    return snp.stack([high, low])


def PRNGKey(seed: Any) -> Any:
    """A key as two 32-bit words, u32[2]; `key` makes a typed one."""
    if is_number(seed) and isinstance(seed, int):
        low, high = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF if config.enable_x64 else 0
        return snp.asarray(np.array([high, low], np.uint32))
    return _seeded(seed)


def key(seed: Any) -> Any:
    """The key of an integer seed; without 64-bit types only the low 32 bits of the seed count."""
    return wrap_key_data(PRNGKey(seed))


@public(static=("num",))
def _split(key: Any, num: Any, scheme: Any) -> Any:
    found, raw = _key(key)
    if found.ndim:
        raise RandomError(point(f"split takes one key, got an array of shape {found.shape}"))
    made = emit("random_split", found, scheme=Symbol(scheme), result=TensorType(_shape(num), "key"))
    return _words(made) if raw else made


def split(key: Any, num: Shape = 2) -> Any:
    """`num` new keys (an integer or a shape) from one."""
    return _split(key, num, str(_scheme()))


@public()
def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer."""
    found, raw = _key(key)
    number = convert(as_tracer(data), "u32")
    if found.shape != number.shape:
        raise RandomError(point(f"fold_in takes one integer, got shape {number.shape}"))
    made = emit("random_fold_in", found, number)
    return _words(made) if raw else made


def _draw(key: Tracer, shape: tuple[int, ...], width: int) -> Tracer:
    drawn: Tracer = emit(
        "random_bits", key, scheme=_scheme(), result=TensorType(shape, BITS[width])
    )
    return drawn


@public(static=("shape", "dtype"))
def bits(key: Any, shape: Any = (), dtype: Any = np.uint32) -> Any:
    """Uniformly random bits of an unsigned integer type (u8, u16, u32, u64)."""
    name = dtype_of(dtype)
    if name not in UNSIGNED:
        raise RandomError(point(f"random bits are unsigned integers, not {name}"))
    return _draw(_single(key), _shape(shape), int(name[1:]))


_MANTISSA = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_ONE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF0000000000000}


def _unit(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    """Uniform in [0, 1): random mantissa bits under the exponent of 1, minus 1."""
    width = NUMPY_DTYPES[name].itemsize * 8
    drawn = _draw(key, shape, width)
    unsigned = np.dtype(f"u{width // 8}")
    mantissa = snp.right_shift(drawn, unsigned.type(width - _MANTISSA[name]))
    word = snp.bitwise_or(mantissa, unsigned.type(_ONE[name]))
    made: Tracer = emit("bitcast", word, result=TensorType(shape, name))
    return made - 1


def _between(key: Tracer, shape: tuple[int, ...], name: str, low: Any, high: Any) -> Tracer:
    """Uniform in [low, high); the scaling is rounded once, as a fused multiply-add rounds it."""
    low, high = (convert(as_tracer(x), name) for x in (low, high))
    unit = _unit(key, shape, name)
    span, base = (broadcast(x, shape) for x in (high - low, low))
    if name == "f32":
        wide = convert(unit, "f64") * convert(span, "f64") + convert(base, "f64")
        scaled = convert(wide, "f32")
    else:
        scaled = unit * span + base
    return snp.maximum(base, scaled)


@public(static=("shape", "dtype"))
def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Uniform in [minval, maxval)."""
    name = _floating(dtype)
    if is_number(minval) and is_number(maxval) and (minval, maxval) == (0.0, 1.0):
        return _unit(_single(key), _shape(shape), name)
    return _between(_single(key), _shape(shape), name, minval, maxval)


def _standard(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    dtype = NUMPY_DTYPES[name]
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    drawn = _between(key, shape, name, constant(np.asarray(low)), 1.0)
    inverse: Tracer = emit("erf_inv", drawn)
    return inverse * dtype.type(np.sqrt(2))


@public(static=("shape", "dtype"))
def normal(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Standard normal numbers."""
    return _standard(_single(key), _shape(shape), _floating(dtype))


@public(static=("shape", "dtype"))
def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Standard normal numbers, given that they lie in (lower, upper)."""
    name = _floating(dtype)
    low, high = (convert(as_tracer(x), name) for x in (lower, upper))
    wanted = np.broadcast_shapes(low.shape, high.shape) if shape is None else _shape(shape)
    root = NUMPY_DTYPES[name].type(np.sqrt(2))
    a, b = emit("erf", low / root), emit("erf", high / root)
    drawn = _between(_single(key), wanted, name, a, b)
    inside = emit("erf_inv", drawn) * root
    nearest = emit("nextafter", low, snp.full_like(low, np.inf))
    farthest = emit("nextafter", high, snp.full_like(high, -np.inf))
    return snp.clip(inside, nearest, farthest)


@public(static=("shape",))
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """True with probability `p`."""
    chance = as_tracer(p)
    if chance.value.type.dtype not in FLOATS:
        chance = convert(chance, dtype_of(float))
    wanted = chance.shape if shape is None else _shape(shape)
    return _unit(_single(key), wanted, chance.value.type.dtype) < chance


@public(static=("shape", "dtype"))
def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Exponentially distributed numbers of mean 1."""
    return -snp.log1p(-_unit(_single(key), _shape(shape), _floating(dtype)))


def _gumbel(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    tiny = np.asarray(np.finfo(np.float32).tiny if name == "bf16" else
                      np.finfo(NUMPY_DTYPES[name]).tiny)  # fmt: skip
    drawn = _between(key, shape, name, constant(tiny.astype(NUMPY_DTYPES[name])), 1.0)
    made: Tracer = -snp.log(-snp.log(drawn))
    return made


@public(static=("shape", "dtype"))
def gumbel(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Standard Gumbel numbers: -log(-log(u))."""
    return _gumbel(_single(key), _shape(shape), _floating(dtype))


@public(static=("axis", "shape"))
def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None) -> Any:
    """Indices along `axis`, each with the probability that its logit says (Gumbel-max)."""
    weights = as_tracer(logits)
    if weights.value.type.dtype not in FLOATS:
        weights = convert(weights, dtype_of(float))
    axis = axis % weights.ndim - weights.ndim
    batch = list(weights.shape)
    classes = batch.pop(axis)
    wanted = tuple(batch) if shape is None else _shape(shape)
    if shape is not None and np.broadcast_shapes(wanted, tuple(batch)) != wanted:
        raise RandomError(
            point(f"shape {wanted} of the draws does not extend the shape {tuple(batch)} of logits")
        )
    full = list(wanted)
    full.insert(len(wanted) + axis + 1, classes)
    noise = _gumbel(_single(key), tuple(full), weights.value.type.dtype)
    return snp.argmax(noise + weights, axis=axis)


@public(static=("shape", "dtype"))
def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Uniform integers in [minval, maxval)."""
    name = dtype_of(int if dtype is None else dtype)
    if name not in INTEGERS:
        raise RandomError(point(f"random integers cannot be of type {name}"))
    working = name if int(name[1:]) >= 32 else "i32"
    wanted = _shape(shape)
    info = np.iinfo(NUMPY_DTYPES[working])
    unsigned = "u" + working[1:]
    width = int(working[1:])
    above = as_tracer(maxval) > info.max
    low, high = (convert(snp.clip(x, info.min, info.max), working) for x in (minval, maxval))
    first, second = (emit("reshape", half, result=TensorType((), "key"))
                     for half in snp.split(split(_single(key), 2), 2))  # fmt: skip
    upper, lower = (_draw(k, wanted, width) for k in (first, second))
    span = convert(high - low, unsigned)
    span = snp.where(high <= low, NUMPY_DTYPES[unsigned].type(1), span)
    span = snp.where(
        snp.logical_and(above, high > low), span + NUMPY_DTYPES[unsigned].type(1), span
    )
    span = broadcast(span, wanted)
    half = NUMPY_DTYPES[unsigned].type(1 << (width // 2))
    multiplier = _rem(snp.full_like(span, half), span)
    multiplier = _rem(multiplier * multiplier, span)
    offset = _rem(_rem(upper, span) * multiplier + _rem(lower, span), span)
    return convert(broadcast(low, wanted) + convert(offset, working), name)


def _rem(x: Tracer, y: Tracer) -> Tracer:
    """The remainder where a zero divisor (the full range) leaves `x` as it is."""
    rest: Tracer = emit("rem", x, y)
    return rest


@public(static=("axis", "independent"))
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """`x` in random order along `axis`; an integer stands for `arange(x)`.

    `independent` shuffles every line along the axis on its own.
    """
    array = snp.arange(x) if is_number(x) else as_tracer(x)
    if not array.ndim:
        raise RandomError(point("permutation takes an array or a number known while tracing"))
    axis = axis % array.ndim
    if array.ndim == 1 or independent:
        return _shuffled(_single(key), array, axis)
    order = _shuffled(_single(key), snp.arange(array.shape[axis]), 0)
    return snp.take(array, order, axis=axis)


def _shuffled(key: Tracer, array: Tracer, axis: int) -> Tracer:
    """Sorted by random words so often that ties hardly matter (JAX's rule)."""
    rounds = ceil(3 * log(max(1, array.size)) / log((1 << 32) - 1))
    for _ in range(rounds):
        key, sub = split(key)
        words = _draw(sub, array.shape, 32)
        _, array = emit("sort", words, array, dim=axis, keys=1, stable=True)
    return array


@public(static=("shape", "replace", "axis"))
def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0
) -> Any:
    """Random elements of `a` (an integer stands for `arange(a)`), with probabilities `p`."""
    array = snp.arange(a) if is_number(a) else as_tracer(a)
    wanted = _shape(shape)
    count = int(np.prod(wanted, dtype=np.int64))
    size = array.shape[axis % array.ndim]
    single = _single(key)
    if not replace and count > size:
        raise RandomError(point(f"cannot choose {count} of {size} without replacement"))
    if p is None:
        if replace:
            index = randint(single, wanted, 0, size)
            return snp.take(array, index, axis=axis)
        rows = permutation(single, array, axis)
        taken = snp.take(rows, snp.arange(count), axis=axis)
    else:
        chances = as_tracer(p)
        if replace:
            total = snp.cumsum(chances)
            draws = total[-1] * (1 - _unit(single, wanted, chances.value.type.dtype))
            return snp.take(array, snp.searchsorted(total, draws), axis=axis)
        noise = -_gumbel(single, chances.shape, chances.value.type.dtype) - snp.log(chances)
        taken = snp.take(array, snp.argsort(noise)[:count], axis=axis)
    shape_out = (*array.shape[:axis], *wanted, *array.shape[axis + 1 :])
    return snp.reshape(taken, shape_out)
