"""Random matrices for tests of linear algebra."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Matrices:
    """Draws them, the same for one seed in the same order."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def normal(self, *shape: int) -> Any:
        """Normal numbers."""
        return self._generator.normal(size=shape).astype("f")

    def plane(self, *shape: int) -> Any:
        """Complex numbers, normal in both parts."""
        return (self.normal(*shape) + 1j * self.normal(*shape)).astype("c8")

    def definite(self, *shape: int, make: Callable[..., Any] | None = None) -> Any:
        """Positive definite square matrices."""
        x = (make or self.normal)(*shape)
        return (x @ np.swapaxes(x.conj(), -1, -2) + np.eye(shape[-1])).astype(x.dtype)
