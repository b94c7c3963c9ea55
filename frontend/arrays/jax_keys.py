"""Conversion of typed random keys of JAX, which NumPy cannot hold, to the storage of keys.

This module never imports JAX: if JAX is not imported, there are no such keys.
"""

import sys

import numpy as np

from shardir.frontend.errors import KeyImplementationError
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import NumpyArray
from shardir.ir.key_implementations import IMPLEMENTATIONS_BY_NAME, KEY_IMPLEMENTATIONS, join_words


def is_jax_key(x: object) -> bool:
    """Return whether `x` is a concrete array of typed keys of JAX."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype) or (jax := sys.modules.get("jax")) is None:
        return False
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def jax_key_dtype(x: object) -> str:
    """Return the name in the IR of the element type of typed keys of JAX.

    Raises `KeyImplementationError` for keys of an implementation that shardir lacks.
    """
    return key_dtype_of_implementation(str(sys.modules["jax"].random.key_impl(x)))


def key_dtype_of_implementation(name: str) -> str:
    """Return the name in the IR of the element type of keys, from the name of their implementation
    in JAX, or from the tag in JAX's element type.

    Raises `KeyImplementationError` for an implementation that shardir lacks.
    """
    for known in KEY_IMPLEMENTATIONS.values():
        if name in (known.name, known.tag):
            return known.dtype
    *first, last = map(repr, IMPLEMENTATIONS_BY_NAME)
    raise KeyImplementationError(
        with_location(
            f"random keys of {name!r} are not supported; make keys of {', '.join(first)} or {last} "
            "with jax.random.key(seed, impl='threefry2x32')"
        )
    )


def jax_key_storage(x: object) -> NumpyArray | None:
    """Return the storage of typed keys of JAX, in the element type of `jax_key_dtype`; `None` for
    anything else.
    """
    if not is_jax_key(x):
        return None
    words = np.asarray(sys.modules["jax"].random.key_data(x))
    return join_words(words, jax_key_dtype(x))
