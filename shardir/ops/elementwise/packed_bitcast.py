"""Bitcasts between elements of fewer than 8 bits and elements of another width.

An array stores each element of 4 or 2 bits in a byte of its own, so that such a bitcast is no view
of memory: the parts of an element are shifted and added, or shifted and masked. The first part is
the lowest, as in StableHLO.
"""

from collections.abc import Callable
from typing import TypeVar

from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED_BY_BITS
from shardir.ir.types import TensorType

ValueT = TypeVar("ValueT")

EmitOperation = Callable[..., ValueT]
"""Appends an operation to a program, from its name, operands, `result` type and attributes, and
returns its result."""


def is_packed_bitcast(dtype: str, to: str) -> bool:
    """Return whether a bitcast changes the width of integers or floats of which some are narrower
    than a byte."""
    kinds = {DTYPE_INFO[dtype].kind, DTYPE_INFO[to].kind}
    old, new = DTYPE_INFO[dtype].bits, DTYPE_INFO[to].bits
    return old != new and min(old, new) < 8 and kinds <= {"signed", "unsigned", "float"}


def bitcast_shape(shape: tuple[int, ...], dtype: str, to: str) -> tuple[int, ...] | None:
    """Return the shape of a bitcast of an array; `None` if its last dimension has other parts than
    an element has."""
    old, new = DTYPE_INFO[dtype].bits, DTYPE_INFO[to].bits
    if old >= new:
        return shape if old == new else (*shape, old // new)
    return shape[:-1] if shape[-1:] == (new // old,) else None


def emit_packed_bitcast(
    emit: EmitOperation[ValueT], x: ValueT, type: TensorType, to: TensorType
) -> ValueT:
    """Return `x`, of the given type, reinterpreted as `to`: a packed bitcast to the right shape."""
    if DTYPE_INFO[type.dtype].bits < DTYPE_INFO[to.dtype].bits:
        return _join_parts(emit, x, type, to)
    return _split_parts(emit, x, type, to)


def _join_parts(emit: EmitOperation[ValueT], x: ValueT, type: TensorType, to: TensorType) -> ValueT:
    old, new = DTYPE_INFO[type.dtype].bits, DTYPE_INFO[to.dtype].bits
    parts = min(new, 8) // old
    octets, shape = _to_octets(emit, x, type), type.shape
    if new > 8:
        shape = (*to.shape, new // 8, parts)
        octets = emit("reshape", octets, result=TensorType(shape, "u8"))
    shifted = emit("shift_left", octets, _offsets(emit, shape, old))
    joined = emit("sum", shifted, dims=(len(shape) - 1,))
    if new < 8:
        return _from_octets(emit, joined, to)
    return _reinterpret(emit, joined, TensorType(shape[:-1], "u8"), to)


def _split_parts(
    emit: EmitOperation[ValueT], x: ValueT, type: TensorType, to: TensorType
) -> ValueT:
    old, new = DTYPE_INFO[type.dtype].bits, DTYPE_INFO[to.dtype].bits
    parts = min(old, 8) // new
    if old < 8:
        octets, shape = _to_octets(emit, x, type), type.shape
    else:
        shape = type.shape if old == 8 else (*type.shape, old // 8)
        octets = _reinterpret(emit, x, type, TensorType(shape, "u8"))
    wide = TensorType((*shape, parts), "u8")
    octets = emit("broadcast", octets, dims=tuple(range(len(shape))), result=wide)
    shifted = emit("shift_right_logical", octets, _offsets(emit, wide.shape, new))
    split = emit("and", shifted, _splat(emit, (1 << new) - 1, wide))
    if wide.shape != to.shape:
        split = emit("reshape", split, result=to.with_dtype("u8"))
    return _from_octets(emit, split, to)


def _to_octets(emit: EmitOperation[ValueT], x: ValueT, type: TensorType) -> ValueT:
    """Return the bits of narrow elements as the lowest bits of bytes."""
    unsigned = type.with_dtype(UNSIGNED_BY_BITS[DTYPE_INFO[type.dtype].bits])
    bits = _reinterpret(emit, x, type, unsigned)
    return emit("convert", bits, result=type.with_dtype("u8"))


def _from_octets(emit: EmitOperation[ValueT], octets: ValueT, to: TensorType) -> ValueT:
    unsigned = to.with_dtype(UNSIGNED_BY_BITS[DTYPE_INFO[to.dtype].bits])
    return _reinterpret(emit, emit("convert", octets, result=unsigned), unsigned, to)


def _reinterpret(
    emit: EmitOperation[ValueT], x: ValueT, type: TensorType, to: TensorType
) -> ValueT:
    return x if type == to else emit("bitcast", x, result=to)


def _offsets(emit: EmitOperation[ValueT], shape: tuple[int, ...], bits: int) -> ValueT:
    """Return the number of the first bit of each part along the last dimension."""
    type = TensorType(shape, "u8")
    positions = emit("iota", dim=len(shape) - 1, result=type)
    return emit("mul", positions, _splat(emit, bits, type))


def _splat(emit: EmitOperation[ValueT], value: int, type: TensorType) -> ValueT:
    scalar = emit("constant", value=value, result=type.with_shape(()))
    return emit("broadcast", scalar, dims=(), result=type)
