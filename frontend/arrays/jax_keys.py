"""Conversion of typed random keys of JAX, which NumPy cannot hold, to 64-bit words.

This module never imports JAX: if JAX is not imported, there are no such keys.
"""

import sys

import numpy as np
import numpy.typing as npt

from shardir.frontend.errors import KeyImplementationError
from shardir.frontend.source_locations import with_location

SUPPORTED_KEY_IMPLEMENTATIONS = ("fry", "threefry2x32")
"""JAX's names of the supported key implementation."""


def is_jax_key(x: object) -> bool:
    """Return whether `x` is a concrete array of typed keys of JAX."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype) or (jax := sys.modules.get("jax")) is None:
        return False
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def jax_key_words(x: object) -> npt.NDArray[np.uint64] | None:
    """Return typed keys of JAX as words, the first half in the high bits; `None` for anything else.

    Raises `KeyImplementationError` for keys of another generator than threefry.
    """
    if not is_jax_key(x):
        return None
    random = sys.modules["jax"].random
    kind = str(random.key_impl(x))
    if kind not in SUPPORTED_KEY_IMPLEMENTATIONS:
        raise KeyImplementationError(
            with_location(
                f"random keys of {kind!r} are not supported; make keys of 'threefry2x32' with "
                "jax.random.key(seed, impl='threefry2x32')"
            )
        )
    words = np.asarray(random.key_data(x)).astype(np.uint64)
    result: npt.NDArray[np.uint64] = words[..., 0] << np.uint64(32) | words[..., 1]
    return result
