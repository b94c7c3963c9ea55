"""Conversion of numbers and arrays of other libraries to NumPy arrays and abstract values."""

from collections.abc import Callable
from typing import TypeGuard

import numpy as np

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.jax_keys import is_jax_key, jax_key_dtype, jax_key_storage
from shardir.frontend.errors import NotAnArrayError, NumberRangeError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.ir.types import NUMPY_DTYPES, NumpyArray, NumpyDType, TensorType, dtype_name

PYTHON_NUMBER_TYPES = {
    bool: ("bool", False),
    int: ("i64", True),
    float: ("f64", True),
    complex: ("c128", True),
}
"""The element type of each Python number type before narrowing, and whether it is weak."""


def is_number(x: object) -> TypeGuard[complex]:
    """Return whether `x` is a Python number, which has a weak type."""
    return type(x) in PYTHON_NUMBER_TYPES


def abstract_of(x: PyTree, name: str = "") -> AbstractValue:
    """Return the abstract value of an operand; raises `NotAnArrayError` that mentions `name`."""
    result = getattr(x, "abstract", None)
    if isinstance(result, AbstractValue):
        return result
    if type(x) in PYTHON_NUMBER_TYPES:
        dtype, weak = PYTHON_NUMBER_TYPES[type(x)]
        return AbstractValue(TensorType((), canonical_dtype(dtype)), weak)
    if is_jax_key(x):
        return AbstractValue(TensorType(x.shape, jax_key_dtype(x)))
    if hasattr(x, "__jax_array__"):
        return abstract_of(x.__jax_array__(), name)
    array = _as_array(x, name)
    return AbstractValue(TensorType(array.shape, _dtype_of(array, x, name)))


def to_numpy(x: object, name: str = "") -> NumpyArray:
    """Return a NumPy array of a canonical element type.

    Typed keys become their storage. Raises `NotAnArrayError` and `NumberRangeError` that mention
    `name`.
    """
    if (keys := jax_key_storage(x)) is not None:
        return keys
    if type(x) is int:
        dtype = NUMPY_DTYPES[canonical_dtype("i64")]
        _check_range(x, x, dtype, name)  # NumPy has other types for larger numbers.
        return np.asarray(x, dtype)
    array = _as_array(x, name)
    return narrow_array(array, NUMPY_DTYPES[_dtype_of(array, x, name)], name)


def _as_array(x: object, name: str) -> NumpyArray:
    if isinstance(x, np.ma.MaskedArray):
        raise not_an_array_error(
            x,
            name,
            lambda _: (
                "is a masked array, which shardir does not support; pass x.filled(number), or the "
                "mask as a separate array"
            ),
        )
    if hasattr(x, "__jax_array__"):
        return np.asarray(x.__jax_array__())
    if isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)):
        return np.asarray(x)
    if isinstance(x, type) or not hasattr(x, "__array__"):
        way_out = "; make it one with snp.array" if isinstance(x, (list, tuple)) else ""
        raise not_an_array_error(
            x,
            name,
            lambda given: f"is {brief_with_type(given)}, which is not an array{way_out}",
        )
    if not isinstance(array := x.__array__(), np.ndarray):
        returned = type(array).__name__
        raise not_an_array_error(
            x,
            name,
            lambda given: (
                f"is {brief_with_type(given)}, whose __array__ returns a {returned} instead of a "
                "NumPy array"
            ),
        )
    return array


def not_an_array_error(x: object, name: str, describe: Callable[[PyTree], str]) -> NotAnArrayError:
    """Return the error for `x`, which states `name` and `describe(x)`.

    The caller may replace `name` by a better one, and `x` by the object that the user passed.
    """
    error = NotAnArrayError(with_location(f"{name or 'an operand'} {describe(x)}"))
    error.about = x, describe
    return error


def _dtype_of(array: NumpyArray, x: object, name: str) -> str:
    try:
        return canonical_dtype(dtype_name(array.dtype))
    except TypeError as error:
        reason = str(error)
        raise not_an_array_error(
            x, name, lambda given: f"is {brief_with_type(given)}: {reason}"
        ) from None


def narrow_array(array: NumpyArray, dtype: NumpyDType, name: str = "") -> NumpyArray:
    """Return `array` converted to `dtype`, which is its own type or a narrower one of the same
    kind.

    Raises `NumberRangeError` that mentions `name` when an integer does not fit.
    """
    if array.dtype == dtype:
        return normalize_bools(array)
    if dtype.kind in "iu" and array.dtype.kind in "iu" and array.size:
        _check_range(int(array.min()), int(array.max()), dtype, name)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _check_range(lowest: int, highest: int, dtype: NumpyDType, name: str) -> None:
    """Raise `NumberRangeError` unless both numbers fit into an integer type."""
    bounds = np.iinfo(dtype)
    if lowest < bounds.min or highest > bounds.max:
        number = lowest if lowest < bounds.min else highest
        hint = "; shardir.enable_x64() allows 64-bit integers" if dtype.itemsize == 4 else ""
        raise NumberRangeError(
            with_location(
                f"{name or 'an operand'} has the number {number}, which does not fit into "
                f"{dtype}{hint}"
            )
        )


def normalize_bools(array: NumpyArray) -> NumpyArray:
    """Return `array`, or a copy of a boolean array that has bytes other than 0 and 1.

    NumPy treats every nonzero byte as true (of `octets.view(bool)`, for example); programs require
    1.
    """
    if array.dtype != np.bool_ or not array.size or array.view(np.uint8).max() <= 1:
        return array
    plain: NumpyArray = array.view(np.uint8) != 0
    return plain
