"""`live_arrays`: the arrays that exist in this process."""

import gc

from shardir.frontend.arrays.array import Array


def live_arrays(platform: str | None = None) -> list[Array]:
    """Return the arrays of this process that are neither deleted nor garbage, the largest first.

    `platform` restricts them to the devices of one platform. The function searches all objects that
    the garbage collector tracks, which takes milliseconds for each hundred thousand objects.
    Objects that `gc.freeze` moved are not found.
    """
    result = [
        each
        for each in gc.get_objects()
        if type(each) is Array
        and hasattr(each, "buffers")
        and not each.is_deleted()
        and platform in (None, each.sharding.device_assignment[0].platform)
    ]
    return sorted(result, key=lambda each: -each.nbytes)
