"""Conversion between bytes and arrays of their bits: `packbits` and `unpackbits`."""

from operator import index

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    broadcast_in_dim,
    concatenate_parts,
    flatten,
    replace_dim_size,
    slice_dim,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_bool,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, reshape, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, TensorType


def _flatten_or_axis(name: str, a: ArrayLike, axis: AxisLike, bitorder: str) -> tuple[Tracer, int]:
    if bitorder not in ("big", "little"):
        raise ArgumentError(
            with_location(f"{name} has no bitorder {bitorder!r}; it is 'big' or 'little'")
        )
    x = as_tracer(a)
    return (flatten(x), 0) if axis is None else (x, canonicalize_axis(axis, x.ndim))


def _pack(bits: Tracer, bitorder: str) -> Tracer:
    """Pack bytes of values 0 and 1 along the last dimension.

    Four bytes are one word, and a multiplication moves their bits into its highest byte. Two of
    these half bytes then form a word again.
    """
    *outer, size = bits.shape
    words = _bitcast(reshape(bits, (*outer, size // 4, 4)), (*outer, size // 4), "u32")
    moved = emit_elementwise(
        "mul", words, constant_like(words, 0x08040201 if bitorder == "big" else 0x01020408)
    )
    halves = convert(emit_elementwise("shift_right_logical", moved, constant_like(moved, 24)), "u8")
    pairs = _bitcast(reshape(halves, (*outer, size // 8, 2)), (*outer, size // 8), "u16")
    if bitorder == "big":
        first = emit_elementwise("shift_left", pairs, constant_like(pairs, 4))
        second = emit_elementwise("shift_right_logical", pairs, constant_like(pairs, 8))
    else:
        first, second = (
            pairs,
            emit_elementwise("shift_right_logical", pairs, constant_like(pairs, 4)),
        )
    return convert(emit_elementwise("or", first, second), "u8")


def _unpack(x: Tracer, bitorder: str) -> Tracer:
    """Unpack the bits of bytes along the last dimension into bytes of values 0 and 1.

    This is the inverse of `_pack`.
    """
    *outer, size = x.shape
    big = bitorder == "big"
    pairs = convert(x, "u16")
    low, high = (
        emit_elementwise("and", pairs, constant_like(pairs, 15)),
        emit_elementwise("shift_right_logical", pairs, constant_like(pairs, 4)),
    )
    first, second = (high, low) if big else (low, high)
    pairs = emit_elementwise(
        "or", first, emit_elementwise("shift_left", second, constant_like(pairs, 8))
    )
    halves = convert(reshape(_bitcast(pairs, (*outer, size, 2), "u8"), (*outer, 2 * size)), "u32")
    # Bit i moves to the lowest bit of byte i, or of byte 3 - i, and no other bit moves there.
    moved = emit_elementwise(
        "mul", halves, constant_like(halves, 0x08040201 if big else 0x00204081)
    )
    moved = (
        emit_elementwise("shift_right_logical", moved, constant_like(moved, 3)) if big else moved
    )
    bits = _bitcast(
        emit_elementwise("and", moved, constant_like(moved, 0x01010101)),
        (*outer, 2 * size, 4),
        "u8",
    )
    return reshape(bits, (*outer, 8 * size))


def _bitcast(x: Tracer, shape: tuple[int, ...], dtype: str) -> Tracer:
    result: Tracer = emit("bitcast", x, result=TensorType(shape, dtype))
    return result


@public(static=("axis", "bitorder"))
def packbits(a: ArrayLike, axis: AxisLike = None, bitorder: str = "big") -> Tracer:
    """Pack each eight elements into one byte (uint8); a bit is set if its element is not zero.

    The last byte along `axis` (without it, of the flattened array) is padded with zeros.
    """
    x, dim = _flatten_or_axis("packbits", a, axis, bitorder)
    if x.value.type.dtype not in INTEGERS and x.value.type.dtype != "bool":
        raise OperationTypeError(
            with_location(f"packbits takes bools or integers, got {x.value.type}")
        )
    bits = convert(as_bool(x), "u8")
    size = x.shape[dim]
    missing = splat(0, bits.value.type.with_shape(replace_dim_size(x.shape, dim, -size % 8)))
    padded = concatenate_parts([bits, missing], dim) if size % 8 else bits
    if dim == x.ndim - 1:
        return _pack(padded, bitorder)
    parts = reshape(padded, (*x.shape[:dim], -(-size // 8), 8, *x.shape[dim + 1 :]))
    shifted = emit_elementwise("shift_left", parts, _bit_shifts(parts, dim + 1, bitorder))
    packed: Tracer = emit("sum", shifted, dims=(dim + 1,))
    return packed


def _bit_shifts(x: Tracer, dim: int, bitorder: str) -> Tracer:
    """Return the shift of each of eight bits along a dimension, relative to the lowest bit."""
    counts: Tracer = emit("iota", dim=dim, result=x.value.type)
    return (
        counts
        if bitorder == "little"
        else emit_elementwise("sub", constant_like(counts, 7), counts)
    )


@public(static=("axis", "count", "bitorder"))
def unpackbits(
    a: ArrayLike, axis: AxisLike = None, count: int | None = None, bitorder: str = "big"
) -> Tracer:
    """Unpack bytes (uint8) into eight elements each along `axis`, at most `count` of them.

    A negative count removes elements from the end; missing elements are padded with zeros.
    """
    x, dim = _flatten_or_axis("unpackbits", a, axis, bitorder)
    if x.value.type.dtype != "u8":
        raise OperationTypeError(with_location(f"unpackbits takes uint8, got {x.value.type}"))
    size = x.shape[dim] * 8
    if dim == x.ndim - 1:
        bits = _unpack(x, bitorder)
    else:
        rest = [d for d in range(x.ndim + 1) if d != dim + 1]
        wide = broadcast_in_dim(x, (*x.shape[: dim + 1], 8, *x.shape[dim + 1 :]), rest)
        down = emit_elementwise("shift_right_logical", wide, _bit_shifts(wide, dim + 1, bitorder))
        bits = reshape(
            emit_elementwise("and", down, constant_like(down, 1)),
            replace_dim_size(x.shape, dim, size),
        )
    if count is None:
        return bits
    length = index(count) if index(count) >= 0 else max(size + index(count), 0)
    missing = splat(
        0, bits.value.type.with_shape(replace_dim_size(x.shape, dim, max(length - size, 0)))
    )
    return concatenate_parts([slice_dim(bits, dim, 0, min(length, size)), missing], dim)
