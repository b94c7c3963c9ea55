"""Random matrices for tests of linear algebra."""

from collections.abc import Callable
from typing import Any

import numpy as np


class Matrices:
    """Generator of random matrices, deterministic for a given seed and order of calls."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def normal(self, *shape: int) -> Any:
        """Return normally distributed numbers."""
        return self._generator.normal(size=shape).astype("f")

    def complex_normal(self, *shape: int) -> Any:
        """Return complex numbers whose parts are normally distributed."""
        return (self.normal(*shape) + 1j * self.normal(*shape)).astype("c8")

    def positive_definite(self, *shape: int, make: Callable[..., Any] | None = None) -> Any:
        """Return positive definite square matrices."""
        x = (make or self.normal)(*shape)
        return (x @ np.swapaxes(x.conj(), -1, -2) + np.eye(shape[-1])).astype(x.dtype)
