"""Bits as arrays: eight of them to a byte."""

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
from shardir.types import INTEGERS


def _line(name: str, a: Any, axis: Any, bitorder: str) -> tuple[Tracer, int]:
    if bitorder not in ("big", "little"):
        raise ArgumentError(point(f"{name} has no bitorder {bitorder!r}; it is 'big' or 'little'"))
    x = as_tracer(a)
    return (flat(x), 0) if axis is None else (x, axis_of(axis, x.ndim))


def _places(x: Tracer, dim: int, bitorder: str) -> Tracer:
    """How far each of eight bits along a dimension is from the lowest."""
    counts: Tracer = emit("iota", dim=dim, result=x.value.type)
    return counts if bitorder == "little" else same("sub", like(counts, 7), counts)


@public(static=("axis", "bitorder"))
def packbits(a: Any, axis: Any = None, bitorder: str = "big") -> Any:
    """Bytes (uint8) of eight elements each, a bit set where they are not zero.

    The last byte along `axis` (without it, of the flat array) is filled up with zeros.
    """
    x, dim = _line("packbits", a, axis, bitorder)
    if x.value.type.dtype not in INTEGERS and x.value.type.dtype != "bool":
        raise OperationTypeError(point(f"packbits takes bools or integers, got {x.value.type}"))
    bits = convert(truth(x), "u8")
    size = x.shape[dim]
    missing = splat(0, bits.value.type.with_shape(resized(x.shape, dim, -size % 8)))
    whole = joined([bits, missing], dim)
    split = (*x.shape[:dim], -(-size // 8), 8, *x.shape[dim + 1 :])
    parts = reshape(whole, split)
    shifted = same("shift_left", parts, _places(parts, dim + 1, bitorder))
    packed: Tracer = emit("sum", shifted, dims=(dim + 1,))
    return packed


@public(static=("axis", "count", "bitorder"))
def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: str = "big") -> Any:
    """The bits of bytes (uint8), eight elements for each along `axis`, `count` of them at most.

    A negative count leaves out so many; more than there are is filled up with zeros.
    """
    x, dim = _line("unpackbits", a, axis, bitorder)
    if x.value.type.dtype != "u8":
        raise OperationTypeError(point(f"unpackbits takes uint8, got {x.value.type}"))
    rest = [d for d in range(x.ndim + 1) if d != dim + 1]
    wide = spread(x, (*x.shape[: dim + 1], 8, *x.shape[dim + 1 :]), rest)
    down = same("shift_right_logical", wide, _places(wide, dim + 1, bitorder))
    size = x.shape[dim] * 8
    bits = reshape(same("and", down, like(down, 1)), resized(x.shape, dim, size))
    if count is None:
        return bits
    wanted = index(count) if index(count) >= 0 else max(size + index(count), 0)
    missing = splat(0, bits.value.type.with_shape(resized(x.shape, dim, max(wanted - size, 0))))
    return joined([piece(bits, dim, 0, min(wanted, size)), missing], dim)
