"""Floating-point numbers as integers in the same order, for collectives of XLA.

An all-reduce of XLA on CPUs ignores NaN in a maximum or minimum, so that its result would depend on
the devices that hold the NaN. As integers, numbers have their order and NaN is the largest one of a
maximum, or the smallest one of a minimum. The integers have the size of the numbers, so the
collective sends as many bytes.
"""

from shardir.ir.types import TensorType
from shardir.stablehlo.writing.regions import write_compare
from shardir.stablehlo.writing.writer import MlirWriter, TypedName

_INTEGER_OF_SIZE = {1: "i8", 2: "i16", 4: "i32", 8: "i64"}


def integer_type(type: TensorType) -> TensorType:
    """Return the type of the integers that represent elements of a float type."""
    return type.with_dtype(_INTEGER_OF_SIZE[type.numpy.itemsize])


def to_integers(w: MlirWriter, x: TypedName, combine: str) -> TypedName:
    """Return floats as integers in the same order, so that their maximum or minimum is the same."""
    kind = integer_type(x[1])
    limit = (1 << (8 * kind.numpy.itemsize - 1)) - 1
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
    bits = 8 * kind.numpy.itemsize
    sign = w.write_step("stablehlo.shift_right_arithmetic", [x, w.constant(bits - 1, kind)], kind)
    mask = w.write_step("stablehlo.and", [sign, w.constant((1 << (bits - 1)) - 1, kind)], kind)
    return w.write_step("stablehlo.xor", [x, mask], kind)
