"""Arrays of zeros in memory that the operating system has zeroed, without writing it."""

from functools import lru_cache
from math import prod

from shardir.backends.base import Launch
from shardir.backends.cpu.native import available
from shardir.frontend.array import Array
from shardir.frontend.composing import Did, watched
from shardir.frontend.devices import Device
from shardir.frontend.promotion import Abstract
from shardir.frontend.running import uncommitted_device
from shardir.frontend.shardings import SingleDeviceSharding
from shardir.frontend.signature import signature_of
from shardir.types import NUMPY_DTYPES, TensorType

FEWEST = 1 << 12
"""Minimum number of elements for which this is faster."""


def unwritten_zeros(shape: tuple[int, ...], dtype: str) -> Array | None:
    """Return an uncommitted array of zeros; `None` for small arrays, or without such memory.

    It must not be called while a function is traced.
    """
    launch = _launch(shape, dtype, uncommitted_device()) if available() else None
    made: list[Array] | None = None if launch is None else launch([])
    if made is None:
        return None
    done = watched.get()
    if done is not None:
        done.append(Did((), launch, [], None, made[0]))
    return made[0]


@lru_cache(1 << 10)
def _launch(shape: tuple[int, ...], dtype: str, device: Device) -> Launch | None:
    from shardir.backends.cpu.native.runtime import launching
    from shardir.backends.cpu.native.runtime.calls import launches

    kind = NUMPY_DTYPES[dtype]
    signature = signature_of(Abstract(TensorType(shape, dtype)), None)
    sharding = SingleDeviceSharding(device)
    return launching.launcher(
        launches(),
        program=0,
        kind=Array,
        template=(),
        arguments=(),
        places=(),
        sizes=[prod(shape) * kind.itemsize],
        results=[launching.Result(0, 0, shape, kind, signature, sharding)],
        keep=None,
        zeros=True,
    )
