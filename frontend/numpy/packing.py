"""Conversion between bytes and arrays of their bits: `packbits` and `unpackbits`."""

from operator import index
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece, resized
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.contraction import flat
from shardir.frontend.numpy.layout import spread
from shardir.frontend.numpy.pointwise import like, same, truth
from shardir.frontend.operands import as_tracer, convert, reshape, splat
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, TensorType


def _line(name: str, a: Any, axis: Any, bitorder: str) -> tuple[Tracer, int]:
    if bitorder not in ("big", "little"):
        raise ArgumentError(point(f"{name} has no bitorder {bitorder!r}; it is 'big' or 'little'"))
    x = as_tracer(a)
    return (flat(x), 0) if axis is None else (x, axis_of(axis, x.ndim))


def _packed(bits: Tracer, bitorder: str) -> Tracer:
    """Pack bytes of values 0 and 1 along the last dimension.

    Four bytes are one word, and a multiplication moves their bits into its highest byte. Two of
    these half bytes then form a word again.
    """
    *outer, size = bits.shape
    words = _seen(reshape(bits, (*outer, size // 4, 4)), (*outer, size // 4), "u32")
    moved = same("mul", words, like(words, 0x08040201 if bitorder == "big" else 0x01020408))
    halves = convert(same("shift_right_logical", moved, like(moved, 24)), "u8")
    pairs = _seen(reshape(halves, (*outer, size // 8, 2)), (*outer, size // 8), "u16")
    if bitorder == "big":
        first = same("shift_left", pairs, like(pairs, 4))
        second = same("shift_right_logical", pairs, like(pairs, 8))
    else:
        first, second = pairs, same("shift_right_logical", pairs, like(pairs, 4))
    return convert(same("or", first, second), "u8")


def _unpacked(x: Tracer, bitorder: str) -> Tracer:
    """Unpack the bits of bytes along the last dimension into bytes of values 0 and 1.

    This is the inverse of `_pack`.
    """
    *outer, size = x.shape
    big = bitorder == "big"
    pairs = convert(x, "u16")
    low, high = (
        same("and", pairs, like(pairs, 15)),
        same("shift_right_logical", pairs, like(pairs, 4)),
    )
    first, second = (high, low) if big else (low, high)
    pairs = same("or", first, same("shift_left", second, like(pairs, 8)))
    halves = convert(reshape(_seen(pairs, (*outer, size, 2), "u8"), (*outer, 2 * size)), "u32")
    # Bit i moves to the lowest bit of byte i, or of byte 3 - i, and no other bit moves there.
    moved = same("mul", halves, like(halves, 0x08040201 if big else 0x00204081))
    moved = same("shift_right_logical", moved, like(moved, 3)) if big else moved
    bits = _seen(same("and", moved, like(moved, 0x01010101)), (*outer, 2 * size, 4), "u8")
    return reshape(bits, (*outer, 8 * size))


def _seen(x: Tracer, shape: tuple[int, ...], dtype: str) -> Tracer:
    result: Tracer = emit("bitcast", x, result=TensorType(shape, dtype))
    return result


@public(static=("axis", "bitorder"))
def packbits(a: Any, axis: Any = None, bitorder: str = "big") -> Any:
    """Pack each eight elements into one byte (uint8); a bit is set if its element is not zero.

    The last byte along `axis` (without it, of the flattened array) is padded with zeros.
    """
    x, dim = _line("packbits", a, axis, bitorder)
    if x.value.type.dtype not in INTEGERS and x.value.type.dtype != "bool":
        raise OperationTypeError(point(f"packbits takes bools or integers, got {x.value.type}"))
    bits = convert(truth(x), "u8")
    size = x.shape[dim]
    missing = splat(0, bits.value.type.with_shape(resized(x.shape, dim, -size % 8)))
    padded = joined([bits, missing], dim) if size % 8 else bits
    if dim == x.ndim - 1:
        return _packed(padded, bitorder)
    parts = reshape(padded, (*x.shape[:dim], -(-size // 8), 8, *x.shape[dim + 1 :]))
    shifted = same("shift_left", parts, _places(parts, dim + 1, bitorder))
    packed: Tracer = emit("sum", shifted, dims=(dim + 1,))
    return packed


def _places(x: Tracer, dim: int, bitorder: str) -> Tracer:
    """Return the shift of each of eight bits along a dimension, relative to the lowest bit."""
    counts: Tracer = emit("iota", dim=dim, result=x.value.type)
    return counts if bitorder == "little" else same("sub", like(counts, 7), counts)


@public(static=("axis", "count", "bitorder"))
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """Unpack bytes (uint8) into eight elements each along `axis`, at most `count` of them.

    A negative count removes elements from the end; missing elements are padded with zeros.
    """
    x, dim = _line("unpackbits", a, axis, bitorder)
    if x.value.type.dtype != "u8":
        raise OperationTypeError(point(f"unpackbits takes uint8, got {x.value.type}"))
    size = x.shape[dim] * 8
    if dim == x.ndim - 1:
        bits = _unpacked(x, bitorder)
    else:
        rest = [d for d in range(x.ndim + 1) if d != dim + 1]
        wide = spread(x, (*x.shape[: dim + 1], 8, *x.shape[dim + 1 :]), rest)
        down = same("shift_right_logical", wide, _places(wide, dim + 1, bitorder))
        bits = reshape(same("and", down, like(down, 1)), resized(x.shape, dim, size))
    if count is None:
        return bits
    length = index(count) if index(count) >= 0 else max(size + index(count), 0)
    missing = splat(0, bits.value.type.with_shape(resized(x.shape, dim, max(length - size, 0))))
    return joined([piece(bits, dim, 0, min(length, size)), missing], dim)
