"""Arrays of JAX as ours: their numbers, and where they are spread by name, their shardings."""

from typing import Any

import jax
import numpy as np

from shardir.frontend.array import from_numpy
from shardir.frontend.foreign_keys import packed
from shardir.frontend.interop.shardings import sharding_of
from shardir.frontend.placing import device_put
from shardir.frontend.signature import ShapeDtypeStruct


def converted(x: Any) -> Any:
    """An array of JAX as one of ours; anything else as it is.

    One that is spread over several devices by name keeps its sharding, if there are as many here.
    """
    if isinstance(x, jax.ShapeDtypeStruct):
        return ShapeDtypeStruct(
            x.shape, x.dtype, sharding=sharding_of(x.sharding), weak_type=bool(x.weak_type)
        )
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return x
    if (keys := packed(x)) is not None:
        return from_numpy(keys, dtype="key")
    numbers = np.asarray(x)
    if len(x.sharding.device_set) == 1:
        return numbers
    wanted = sharding_of(x.sharding)
    return numbers if wanted is None else device_put(numbers, wanted)
