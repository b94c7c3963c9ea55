"""Terms: the expression of a value in a kernel, and its element type.

16-bit floats are computed in f32 and rounded to their type after each inexact operation, so that
fusing changes no bits.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardir.backends.gpu.dtypes import COMPUTE_TYPES, INFERRED_TYPES
from shardir.ir.types import FLOATS, NUMPY_DTYPES
from shardir.ops.elementwise.numerics import round_to


@dataclass(frozen=True, slots=True)
class KernelTerm:
    """The expression of a value of the IR in a kernel."""

    text: str
    dtype: str
    """The IR's element type."""
    is_number: bool = False
    """True if it is a Python number, which takes its type from the other operand."""
    spans: frozenset[str] = frozenset()
    """The sides of the tile along which it varies; it is broadcast along the others."""

    @property
    def typed_text(self) -> str:
        """Return the text with the value's type, also where no other operand determines
        the type.
        """
        if self.is_number and not (self.dtype in INFERRED_TYPES and "e-" not in self.text):
            return self.tensor
        return self.text

    @property
    def tensor(self) -> str:
        """Return the text of a tensor, never a plain number."""
        if not self.is_number:
            return self.text
        return f"tl.full((), {self.text}, {COMPUTE_TYPES[self.dtype]})"


def number_term(value: npt.ArrayLike, dtype: str) -> KernelTerm:
    """Return a number as a term of an element type."""
    number = np.asarray(value)
    if dtype not in FLOATS:
        return KernelTerm(str(bool(number) if dtype == "bool" else int(number)), dtype, True)
    with np.errstate(all="ignore"):
        exact = round_to(np.asarray(float(number)), NUMPY_DTYPES[dtype])
    wide = np.float64(exact) if dtype == "f64" else np.float32(exact)
    if np.isfinite(wide):
        # The shortest decimal of the largest f32 is above it, so that Triton would take it for f64.
        largest = dtype != "f64" and abs(float(str(wide))) > float(np.finfo(np.float32).max)
        return KernelTerm(str(float(wide) if largest else wide), dtype, True)
    return KernelTerm(f'float("{wide}")', dtype, True)


def parenthesize(text: str) -> str:
    """Parenthesize the text if an attribute access could not follow it."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if depth == 0 and not (character.isalnum() or character in "_.)]"):
            return f"({text})"
        if depth == 0 and character == "." and text[:place].isdigit():
            return f"({text})"
    return f"({text})" if text[:1].isdigit() or text[:1] == "(" else text
