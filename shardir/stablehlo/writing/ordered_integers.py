"""Floating-point numbers as integers in the same order, for collectives of XLA.

An all-reduce of XLA on CPUs ignores NaN in a maximum or minimum, so that its result would depend on
the devices that hold the NaN. As integers, numbers have their order and NaN is the largest one of a
maximum, or the smallest one of a minimum. The integers have the size of the numbers, so the
collective sends as many bytes.
"""

from shardir.ir.dtypes import DTYPE_INFO, SIGNED_BY_BITS
from shardir.ir.types import TensorType
from shardir.stablehlo.writing.regions import write_compare
from shardir.stablehlo.writing.writer import MlirWriter, TypedName


def integer_type(type: TensorType) -> TensorType:
    """Return the type of the integers that represent elements of a float type."""
    return type.with_dtype(SIGNED_BY_BITS[DTYPE_INFO[type.dtype].bits])


def to_integers(w: MlirWriter, x: TypedName, combine: str) -> TypedName:
    """Return floats as integers in the same order, so that their maximum or minimum is the same."""
    kind = integer_type(x[1])
    limit = DTYPE_INFO[kind.dtype].max_integer
    bits = w.write_step("stablehlo.bitcast_convert", [x], kind)
    key = _turn_negative(w, bits)
    nan = w.constant(limit if combine == "max" else -limit - 1, kind)
    is_nan = write_compare(w, "NE", x, x)
    return w.write_step("stablehlo.select", [is_nan, nan, key], kind)


def to_bits(w: MlirWriter, key: TypedName) -> TypedName:
    """Return the bits of the floats that the integers represent; the bits of a NaN may change."""
    return _turn_negative(w, key)


def _turn_negative(w: MlirWriter, x: TypedName) -> TypedName:
    """Invert all bits but the sign of negative integers, which is its own inverse."""
    kind = x[1]
    info = DTYPE_INFO[kind.dtype]
    last_bit = w.constant(info.bits - 1, kind)
    sign = w.write_step("stablehlo.shift_right_arithmetic", [x, last_bit], kind)
    mask = w.write_step("stablehlo.and", [sign, w.constant(info.max_integer, kind)], kind)
    return w.write_step("stablehlo.xor", [x, mask], kind)
