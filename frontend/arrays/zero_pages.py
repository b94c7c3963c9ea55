"""Arrays of zeros in memory that the operating system has zeroed, without writing it."""

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Launch
from shardir.backends.cpu import is_available
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.signature import signature_of
from shardir.frontend.dispatch.execution_context import default_array_device
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.sharding import SingleDeviceSharding
from shardir.ir.types import NUMPY_DTYPES, TensorType

if TYPE_CHECKING:
    from shardir.backends.cpu.dispatch import launch
else:
    launch = lazy_import("shardir.backends.cpu.dispatch.launch")

MIN_ZERO_PAGE_ELEMENTS = 1 << 12
"""Minimum number of elements for which this is faster."""
MAX_ZERO_PAGE_BYTES = 1 << 48
"""Sizes above this are no sizes of a block of memory; the program of such an array states that no
memory can hold it."""


def allocate_zeros(shape: tuple[int, ...], dtype: str) -> Array | None:
    """Return an uncommitted array of zeros; `None` for small and for impossibly large arrays, or
    without such memory.

    It must not be called while a function is traced.
    """
    if not is_available() or TensorType(shape, dtype).nbytes > MAX_ZERO_PAGE_BYTES:
        return None
    launch = _zeros_launch(shape, dtype, default_array_device())
    result: list[Array] | None = None if launch is None else launch([])
    if result is None:
        return None
    done = recorded_calls.get()
    if done is not None:
        done.append(RecordedCall((), launch, [], None, result[0]))
    return result[0]


@lru_cache(1 << 10)
def _zeros_launch(shape: tuple[int, ...], dtype: str, device: Device) -> Launch | None:
    kind = NUMPY_DTYPES[dtype]
    signature = signature_of(AbstractValue(TensorType(shape, dtype)), None)
    sharding = SingleDeviceSharding(device)
    return launch.make_launch(
        program=None,
        kind=Array,
        template=(),
        arguments=(),
        places=(),
        sizes=[prod(shape) * kind.itemsize],
        results=[launch.LaunchResult(0, 0, shape, kind, signature, sharding)],
        keep=None,
        zeros=True,
    )
