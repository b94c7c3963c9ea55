"""Torch expressions for element types, numbers and shapes of the IR."""

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.runtime_files import axes_text as axis_names
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes
from shardir.ir.types import COMPLEX, FLOATS, INTEGERS, NUMPY_DTYPES


def number_text(number: npt.ArrayLike, dtype: str) -> str:
    """Return a number of an element type as a Python expression."""
    if dtype == "bool":
        return str(bool(np.asarray(number)))
    if dtype in COMPLEX:
        value = complex(np.asarray(number))
        return f"complex({_float_text(value.real)}, {_float_text(value.imag)})"
    if dtype in FLOATS:
        return _float_text(_shortest_decimal(number, dtype))
    return str(int(np.asarray(number)))


def word_text(number: npt.ArrayLike, dtype: str) -> str:
    """Return a number as one of the signed type that `WORDS` maps its type to."""
    if dtype not in SIGNED_WORD_DTYPES:
        return number_text(number, dtype)
    array = np.asarray(number)
    bits, value = array.dtype.itemsize * 8, int(array)
    return str(value - (1 << bits) if value >> (bits - 1) else value)


def _shortest_decimal(number: npt.ArrayLike, dtype: str) -> float:
    """Return the shortest decimal number that rounds to this one in its element type.

    For the largest f32 that decimal exceeds the range that torch accepts; the exact value is used.
    """
    wide = float(np.asarray(number).astype(np.float64))
    if dtype != "f32" or not math.isfinite(wide):
        return wide
    short = float(str(np.float32(wide)))
    return short if abs(short) <= float(np.finfo(np.float32).max) else wide


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    return repr(value).replace("e+", "e")


def list_text(numbers: Iterable[object]) -> str:
    """Return the text of a list of numbers, or of nested lists."""
    return (
        f"[{', '.join(list_text(n) if isinstance(n, tuple | list) else str(n) for n in numbers)}]"
    )


def shape_text(shape: Iterable[int]) -> str:
    """Return a shape as the text of a tuple."""
    sizes = tuple(shape)
    return f"({sizes[0]},)" if len(sizes) == 1 else f"({', '.join(map(str, sizes))})"


def shape_arguments(shape: Iterable[int]) -> str:
    """Return a shape as the arguments of a call; `()` for rank 0."""
    return ", ".join(map(str, shape)) or "()"


def axes_text(axes: Axes, mesh: Mesh) -> str:
    """Return mesh axes as the text of a tuple of strings."""
    names = [f'"{name}"' for name in axis_names(axes, mesh)]
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"


def limit_text(dtype: str, highest: bool) -> str:
    """Return the highest or the lowest value of an element type; infinite for floats."""
    if dtype == "bool":
        return str(highest)
    if dtype in INTEGERS:
        limits = np.iinfo(NUMPY_DTYPES[dtype])
        return str(limits.max if highest else limits.min)
    return "math.inf" if highest else "-math.inf"


def full_text(shape: Iterable[int], number: npt.ArrayLike, dtype: str) -> str:
    """Return an expression for a tensor filled with one number."""
    made = f"torch.full({shape_text(shape)}, {word_text(number, dtype)}"
    if dtype in SIGNED_WORD_DTYPES:
        return (
            f"{made}, dtype={SIGNED_WORD_DTYPES[dtype]}, device=device).view({TORCH_DTYPES[dtype]})"
        )
    return f"{made}, dtype={TORCH_DTYPES[dtype]}, device=device)"
