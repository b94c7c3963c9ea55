"""Symbolic zero tangents, which have no elements."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SymbolicZero:
    """A zero of this shape and element type that is never computed.

    A rule of `custom_jvp` with `symbolic_zeros` gets one for each argument that is not
    differentiated, and may return one.
    """

    shape: tuple[int, ...]
    dtype: Any

    @property
    def ndim(self) -> int:
        return len(self.shape)
