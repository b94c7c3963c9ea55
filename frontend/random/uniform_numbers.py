"""Random bits, and uniform floats and integers."""

import numpy as np

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import RandomError
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.random.key_derivation import draw_from_rbg, is_rbg
from shardir.frontend.random.keys import counter_scheme, require_single_key, split
from shardir.frontend.random.original_threefry import count_words, draw_original_bits
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.resharding import apply_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert, splat
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED_BY_BITS
from shardir.ir.types import FLOATS, INTEGERS, NUMPY_DTYPES, UNSIGNED, TensorType


def float_dtype_name(dtype: DTypeLike | None) -> str:
    """Return the name of a floating type; raise `RandomError` for another type."""
    name = dtype_of(float if dtype is None else dtype)
    if name not in FLOATS:
        raise RandomError(with_location(f"random floating-point numbers cannot be of type {name}"))
    return name


def draw_bits(key: Tracer, shape: tuple[int, ...], width: int) -> Tracer:
    """Return unsigned integers of `width` random bits."""
    if is_rbg(key):
        return draw_from_rbg(key, shape, width)
    if counter_scheme() == "original" and 0 < count_words(shape, width) < 1 << 32:
        return draw_original_bits(key, shape, width)
    drawn: Tracer = emit(
        "random_bits",
        key,
        scheme=counter_scheme(),
        result=TensorType(shape, UNSIGNED_BY_BITS[width]),
    )
    return drawn


@public(static=("shape", "dtype"))
def bits(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return uniformly random bits of an unsigned integer type (u8, u16, u32, u64).

    The default is u64 with `enable_x64`, u32 without.
    """
    name = dtype_of(np.uint64 if dtype is None else dtype)
    if name not in UNSIGNED:
        raise RandomError(with_location(f"random bits are unsigned integers, not {name}"))
    return draw_bits(require_single_key(key), canonicalize_shape(shape), DTYPE_INFO[name].bits)


def draw_unit(key: Tracer, shape: tuple[int, ...], name: str) -> Tracer:
    """Return uniform numbers in [0, 1): random mantissa bits with the exponent of 1, minus 1."""
    info = DTYPE_INFO[name]
    # A mantissa of less than 8 bits uses 8 random bits.
    width = 8 if info.mantissa_bits < 8 else info.bits
    drawn = convert(draw_bits(key, shape, width), UNSIGNED_BY_BITS[info.bits])
    kind = drawn.value.type
    mantissa = emit("shift_right_logical", drawn, splat(width - info.mantissa_bits, kind))
    word = emit("or", mantissa, splat(info.one_bits, kind))
    from_one = emit("bitcast", word, result=TensorType(shape, name))
    below_one: Tracer = emit("sub", from_one, splat(1.0, from_one.value.type))
    return below_one


def draw_between(
    key: Tracer, shape: tuple[int, ...], name: str, low: ArrayLike, high: ArrayLike
) -> Tracer:
    """Return uniform numbers in [low, high).

    In f32 the scaling is rounded once, like the fused multiply-add of JAX on CPUs.
    """
    low, high = _as_float_bound(low, name), _as_float_bound(high, name)
    drawn = draw_unit(key, shape, name)
    span, base = (broadcast(x, shape) for x in (high - low, low))
    wide = "f64" if name == "f32" else name
    factors = [convert(x, wide) for x in (drawn, span, base)]
    scaled = emit("add", emit("mul", factors[0], factors[1]), factors[2])
    result: Tracer = emit("maximum", base, convert(scaled, name))
    return result


def _as_float_bound(bound: ArrayLike, name: str) -> Tracer:
    if is_number(bound):
        return splat(bound, TensorType((), name))
    return convert(as_tracer(bound), name)


@public(static=("shape", "dtype"))
def _uniform(
    key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None, minval: ArrayLike, maxval: ArrayLike
) -> Tracer:
    return draw_between(
        require_single_key(key), canonicalize_shape(shape), float_dtype_name(dtype), minval, maxval
    )


@public(static=("shape", "dtype"), name="uniform")
def _unit_uniform(key: ArrayLike, shape: ShapeLike, dtype: DTypeLike | None) -> Tracer:
    return draw_unit(require_single_key(key), canonicalize_shape(shape), float_dtype_name(dtype))


@with_argument_errors
def uniform(
    key: ArrayLike,
    shape: ShapeLike = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return uniform floats in [minval, maxval), by default of the default floating type.

    Raise `RandomError` for a `dtype` that is not a floating type.
    """
    if is_number(minval) and is_number(maxval) and (minval, maxval) == (0, 1):
        return apply_out_sharding(_unit_uniform(key, shape, dtype), out_sharding)
    return apply_out_sharding(_uniform(key, shape, dtype, minval, maxval), out_sharding)


@with_argument_errors
def randint(
    key: ArrayLike,
    shape: ShapeLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return uniform integers in [minval, maxval), by default of the default integer type.

    Bounds are integers, concrete or traced; bounds outside of the type's range are clamped to it.
    """
    name = dtype_of(int if dtype is None else dtype)
    if name not in INTEGERS:
        raise RandomError(with_location(f"random integers cannot be of type {name}"))
    working = name if DTYPE_INFO[name].bits >= 32 else "i32"
    info = np.iinfo(NUMPY_DTYPES[working])
    above: bool | None = None
    if working != name:
        minval, maxval = _clamp_to_narrow(minval, name, 0), _clamp_to_narrow(maxval, name, 1)
    if type(maxval) is int:
        above, maxval = maxval > info.max, _clamp_concrete(maxval, working)
    if type(minval) is int:
        minval = _clamp_concrete(minval, working)
    drawn = _randint(key, minval, maxval, canonicalize_shape(shape), name, working, above)
    return apply_out_sharding(drawn, out_sharding)


def _clamp_to_narrow(bound: ArrayLike, name: str, beyond: int) -> ArrayLike:
    """Clamp a bound to the range of a narrow type, extended by `beyond` at the upper end."""

    info = DTYPE_INFO[name]
    low, high = info.min_integer, info.max_integer + beyond
    if type(bound) is int:
        return min(max(bound, low), high)
    found = array_conversion.asarray(bound)
    if found.dtype.kind not in "iu":
        return bound
    promoted = found if found.dtype.itemsize >= 4 else found.astype("int32")
    return selection.clip(promoted, 0 if promoted.dtype.kind == "u" else low, high)


def _clamp_concrete(bound: int, working: str) -> np.generic:
    """Return a concrete bound in the working type, clamped to its range."""
    info = np.iinfo(NUMPY_DTYPES[working])
    limited: np.generic = NUMPY_DTYPES[working].type(min(max(bound, info.min), info.max))
    return limited


@public(static=("shape", "name", "working", "above"))
def _randint(
    key: ArrayLike,
    minval: ArrayLike,
    maxval: ArrayLike,
    shape: tuple[int, ...],
    name: str,
    working: str,
    above: bool | None,
) -> Tracer:

    info = np.iinfo(NUMPY_DTYPES[working])
    bounds = [as_tracer(x) for x in (minval, maxval)]
    for bound in bounds:
        if bound.value.type.dtype not in INTEGERS:
            raise RandomError(
                with_location(f"the bounds of randint are integers, got {bound.value.type}")
            )
    low, high = (_clamp_traced(x, working) for x in bounds)
    unsigned = NUMPY_DTYPES[UNSIGNED_BY_BITS[DTYPE_INFO[working].bits]]
    keys = split(require_single_key(key), 2)
    width = unsigned.itemsize * 8
    upper, lower = (draw_bits(keys[i], shape, width) for i in range(2))
    span = convert(high - low, dtype_of(unsigned))
    span = selection.where(high <= low, unsigned.type(1), span)
    if above is None:
        # A 64-bit upper bound may exceed the type; the largest value is then included.
        beyond = bounds[1] > info.max if bounds[1].itemsize > low.itemsize else None
        if beyond is not None:
            span = selection.where(beyond & (high > low), span + unsigned.type(1), span)
    elif above:
        span = selection.where(high > low, span + unsigned.type(1), span)
    span = broadcast(span, shape)
    half = splat(1 << (width // 2), span.value.type)
    factor = emit("rem", half, span)
    factor = emit("rem", emit("mul", factor, factor), span)
    upper = emit("mul", emit("rem", upper, span), factor)
    offset = emit("rem", emit("add", upper, emit("rem", lower, span)), span)
    return convert(broadcast(low, shape) + convert(offset, working), name)


def _clamp_traced(bound: Tracer, working: str) -> Tracer:
    """Return a bound in the working type, clamped to its range."""

    have, want = (DTYPE_INFO[x] for x in (bound.value.type.dtype, working))
    low = max(want.min_integer, have.min_integer)
    high = min(want.max_integer, have.max_integer)
    if low != have.min_integer or high != have.max_integer:
        bound = selection.clip(bound, low, high)
    return convert(bound, working)
