"""Conversion of JAX arrays to arrays of shardir: elements and named shardings."""

from typing import Any

import jax
import numpy as np

from shardir.frontend.array import from_numpy
from shardir.frontend.foreign_keys import packed
from shardir.frontend.interop.shardings import sharding_of
from shardir.frontend.placing import device_put
from shardir.frontend.signature import ShapeDtypeStruct


def converted(x: Any) -> Any:
    """Convert a JAX array; return any other object unchanged.

    An array with a named sharding over several devices keeps the sharding if enough devices exist.
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return ShapeDtypeStruct(
            x.shape, x.dtype, sharding=sharding_of(x.sharding), weak_type=bool(x.weak_type)
        )
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return x
    if (keys := packed(x)) is not None:
        return from_numpy(keys, dtype="key")
    values = np.asarray(x)
    if len(x.sharding.device_set) == 1:
        return values
    sharding = sharding_of(x.sharding)
    return values if sharding is None else device_put(values, sharding)
