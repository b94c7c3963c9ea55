"""Conversion of JAX arrays to arrays of shardir: elements and named shardings."""

from typing import Any

import jax
import numpy as np

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.jax_keys import jax_key_words
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.interop.jax_shardings import convert_sharding


def convert_array(x: Any) -> Any:
    """Convert a JAX array; return any other object unchanged.

    An array with a named sharding over several devices keeps the sharding if enough devices exist.
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return ShapeDtypeStruct(
            x.shape, x.dtype, sharding=convert_sharding(x.sharding), weak_type=bool(x.weak_type)
        )
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return x
    if (keys := jax_key_words(x)) is not None:
        return from_numpy(keys, dtype="key")
    values = np.asarray(x)
    if len(x.sharding.device_set) == 1:
        return values
    sharding = convert_sharding(x.sharding)
    return values if sharding is None else device_put(values, sharding)
