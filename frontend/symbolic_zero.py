"""Tangents that are known to be zero, and so have no numbers."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SymbolicZero:
    """A zero of this shape and element type that nobody has to compute.

    A rule of `custom_jvp` with `symbolic_zeros` gets one for each argument of which no derivative
    is asked, and may return one.
    """

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)
