"""Random arguments for test runs of programs."""

import numpy as np

from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.key_implementations import join_words
from shardir.ir.module import Module
from shardir.ir.types import COMPLEX, FLOATS, UNSIGNED, NumpyArray, TensorType


def random_arguments(module: Module, seed: int = 0, *, whole: bool = False) -> list[NumpyArray]:
    """Return random global arrays for the parameters of the first function, determined by the seed.

    Floating-point and complex elements are standard normal; integers are small, because they often
    are indices or counts. With `whole`, all elements are small integers, so that plain sums are
    exact and comparisons are stable.
    """
    rng = np.random.default_rng(seed)
    return [_random_array(type, rng, whole) for type in parameter_types(module)]


def parameter_types(module: Module) -> list[TensorType]:
    """Return the global types of the first function's parameters."""
    main = module.main
    if main.spmd:
        return [outer.type for outer in main.spmd.params]
    return [param.type for param in main.body.params]


def _random_array(type: TensorType, rng: np.random.Generator, whole: bool) -> NumpyArray:
    if type.dtype in KEYS:
        words = rng.integers(0, 1 << 32, (*type.shape, KEY_WORDS[type.dtype]), np.uint32)
        return join_words(words, type.dtype)
    if not whole and type.dtype in FLOATS:
        return np.asarray(rng.standard_normal(type.shape)).astype(type.numpy)
    if not whole and type.dtype in COMPLEX:
        parts = rng.standard_normal((2, *type.shape))
        return np.asarray(parts[0] + 1j * parts[1]).astype(type.numpy)
    low = 0 if type.dtype in ("bool", *UNSIGNED) else -4
    high = 2 if type.dtype == "bool" else 5
    return np.asarray(rng.integers(low, high, type.shape)).astype(type.numpy)
