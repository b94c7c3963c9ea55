"""Random arguments for programs that are run to see what they compute."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.types import COMPLEX, FLOATS, TensorType


def random_arguments(
    types: Sequence[TensorType], seed: int | np.random.Generator = 0
) -> list[npt.NDArray[Any]]:
    """One array for each type, the same for the same seed.

    Floating-point and complex numbers are standard normal, integers small (indices and counts
    they often are), keys and bools uniform.
    """
    rng = np.random.default_rng(seed)
    return [random_array(type, rng) for type in types]


def random_array(type: TensorType, rng: np.random.Generator) -> npt.NDArray[Any]:
    """One array of `type`."""
    if type.dtype in FLOATS:
        return rng.standard_normal(type.shape).astype(type.numpy)
    if type.dtype in COMPLEX:
        parts = rng.standard_normal((2, *type.shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(type.numpy)
    if type.dtype == "bool":
        return rng.integers(0, 2, type.shape).astype(np.bool_)
    if type.dtype == "key":
        return rng.integers(0, 1 << 64, type.shape, dtype=np.uint64)
    low = -4 if type.dtype.startswith("i") else 0
    return rng.integers(low, 8, type.shape).astype(type.numpy)
