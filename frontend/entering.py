"""Import of NumPy arrays as arrays in one native call."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.base import Launch
from shardir.backends.cpu.native import available
from shardir.frontend.shardings import Sharding
from shardir.frontend.signature import Signature

MANY = 4096
"""Maximum number of cached launches."""

_launches: dict[Any, Launch | None] = {}


def entered(array: npt.NDArray[Any], signature: Signature, sharding: Sharding) -> Any:
    """Return a copy of an array in one allocation, or `None` if Python code must make it.

    The result is `None` until native code is available, for large arrays, and for integers that do
    not fit.
    """
    key = array.shape, array.dtype, signature, sharding
    launch = _launches.get(key)
    if launch is None:
        if key in _launches or not _is_ready():
            return None
        if len(_launches) >= MANY:
            _launches.clear()
        launch = _launches[key] = _launch(array.shape, array.dtype, signature, sharding)
    made = None if launch is None else launch([array])
    return None if made is None else made[0]


def _is_ready() -> bool:
    if not available():
        return False
    from shardir.backends.cpu.native.runtime.calls import answers_calls

    return answers_calls()


def _launch(
    shape: tuple[int, ...], given: np.dtype[Any], signature: Signature, sharding: Sharding
) -> Launch | None:
    from shardir.backends.cpu.native.runtime import foreign, launching
    from shardir.backends.cpu.native.runtime.calls import launches
    from shardir.backends.cpu.native.runtime.entering import Entry
    from shardir.frontend.array import Array

    if not foreign.readable():
        return None
    kept = signature.abstract.type.numpy
    return launching.launcher(
        launches(),
        program=0,
        kind=Array,
        template=(),
        arguments=[launching.Argument(-1, entry=Entry(shape, given, kept))],
        places=(),
        sizes=(),
        results=[launching.Result(-1, 0, shape, kept, signature, sharding)],
        keep=None,
    )
