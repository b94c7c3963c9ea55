"""Placement of new arrays: the arguments `device` and `out_sharding` of creation functions.

`device`, a device or a sharding, states where the array is placed; without it, the array is
uncommitted. `out_sharding` is a sharding that names Explicit axes of a mesh only.
"""

from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.array_annotations import as_result
from shardir.frontend.shardings.explicit_specs import complete_spec
from shardir.frontend.shardings.requested_sharding import ShardingRequest, resolve_out_sharding
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer


def put_on_device(
    device: ShardingRequest, array: Tracer | Array, uneven: str | None = None
) -> Tracer:
    """Return `array` on a device or with a sharding; unchanged if `device` is `None`."""
    if device is None:
        return as_result(array) if isinstance(array, Array) else array
    if isinstance(device, Sharding):
        device = complete_spec(device, array.ndim)
    result: Tracer = device_put(array, device, uneven=uneven)
    return result


def choose_placement(device: ShardingRequest, out_sharding: ShardingRequest) -> ShardingRequest:
    """Return the device or sharding of a new array, which one of the two arguments states."""
    if out_sharding is None:
        return device
    if device is not None:
        raise ArgumentError(
            with_location("both device and out_sharding are given; leave one of them out")
        )
    return resolve_out_sharding(out_sharding, "out_sharding")
