"""Typed random keys of JAX's, which NumPy cannot hold, as ours: one word of 64 bits each.

JAX is not imported for it: where nobody has, there are none of its keys.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend.errors import KeyKindError
from shardir.frontend.locations import point

IMPLEMENTATIONS = ("fry", "threefry2x32")
"""What JAX calls the kind of keys that there are here."""


def is_foreign_key(x: Any) -> bool:
    """Whether it is an array of JAX's typed keys, and no traced one."""
    dtype = getattr(x, "dtype", None)
    if dtype is None or isinstance(dtype, np.dtype) or (jax := sys.modules.get("jax")) is None:
        return False
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def packed(x: Any) -> npt.NDArray[np.uint64] | None:
    """JAX's typed keys as words, the first half in the high bits; `None` for anything else.

    Raises `KeyKindError` for keys of another generator than threefry.
    """
    if not is_foreign_key(x):
        return None
    random = sys.modules["jax"].random
    kind = str(random.key_impl(x))
    if kind not in IMPLEMENTATIONS:
        raise KeyKindError(
            point(
                f"random keys of {kind!r} are unknown; they are for 'threefry2x32', which "
                "jax.random.key(seed, impl='threefry2x32') makes"
            )
        )
    words = np.asarray(random.key_data(x)).astype(np.uint64)
    found: npt.NDArray[np.uint64] = words[..., 0] << np.uint64(32) | words[..., 1]
    return found
