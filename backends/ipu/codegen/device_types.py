"""Element types and shapes of tensors on an IPU, and their C++ expressions.

A random key is two words, so a tensor of keys has an additional last dimension of size 2, high word
first, as in `jax.random.key_data`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardir.ir.types import TensorType


@dataclass(frozen=True, slots=True)
class DeviceElement:
    """An element type: its name in Poplar, its name in C++, its size in bytes on the device."""

    poplar: str
    cpp: str
    bytes: int


ELEMENTS = {
    "bool": DeviceElement("poplar::BOOL", "bool", 1),
    "i8": DeviceElement("poplar::SIGNED_CHAR", "signed char", 1),
    "u8": DeviceElement("poplar::UNSIGNED_CHAR", "unsigned char", 1),
    "i16": DeviceElement("poplar::SHORT", "short", 2),
    "u16": DeviceElement("poplar::UNSIGNED_SHORT", "unsigned short", 2),
    "i32": DeviceElement("poplar::INT", "int", 4),
    "u32": DeviceElement("poplar::UNSIGNED_INT", "unsigned", 4),
    "f16": DeviceElement("poplar::HALF", "std::uint16_t", 2),
    "f32": DeviceElement("poplar::FLOAT", "float", 4),
}
"""Element types of the device. It has arithmetic on 32-bit types and on halves; narrower integers
can only be stored, moved and converted."""

NARROW_INTEGERS = ("i8", "u8", "i16", "u16")
"""Integers that are computed as `poplar::INT`."""

UNSLICEABLE_TYPES = ("i16", "u16")
"""Element types for which poplibs has no dynamic slices."""

SUPPORTED_REPLACEMENTS = {
    "f64": "f32",
    "bf16": "f16",
    "i64": "i32",
    "u64": "u32",
}
"""Replacements of element types that the device lacks."""


def physical_type(type: TensorType) -> TensorType:
    """Return the type of the tensor that stores a value on the device."""
    return TensorType((*type.shape, 2), "u32") if type.dtype == "key" else type


def element_of(type: TensorType) -> DeviceElement:
    """Return the element type of a value on the device."""
    return ELEMENTS[physical_type(type).dtype]


def device_bytes(type: TensorType) -> int:
    """Return the size of a value on the device in bytes."""
    held = physical_type(type)
    return held.size * ELEMENTS[held.dtype].bytes if held.dtype in ELEMENTS else held.nbytes


def initializer_text(numbers: Sequence[int]) -> str:
    """Return numbers as a C++ initializer list."""
    return "{" + ", ".join(map(str, numbers)) + "}"


def literal_text(value: object, dtype: str) -> str:
    """Return a number as a C++ literal of the type that `poplar::equivalent_device_type` maps."""
    if dtype == "bool":
        return "true" if value else "false"
    if dtype == "u32":
        return f"{int(str(value))}u"
    if dtype in ("f32", "f16"):
        return _real(np.float32(str(value)))
    number = int(str(value))
    return "std::numeric_limits<int>::min()" if number == -(2**31) else str(number)


def _real(value: np.float32) -> str:
    if np.isnan(value):
        return "std::numeric_limits<float>::quiet_NaN()"
    if np.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}std::numeric_limits<float>::infinity()"
    text = np.format_float_positional(value, unique=True, trim="0")
    if len(text) > 12:
        text = np.format_float_scientific(value, unique=True, trim="0")
    return f"{text}f"
