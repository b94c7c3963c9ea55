"""The memory kinds of shardings: there is one, the memory of the devices."""

from shardir.frontend.argument_checks import is_one_of
from shardir.frontend.errors import ShardingError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location


def check_memory_kind(memory_kind: str | None) -> None:
    """Raise `ShardingError` unless `memory_kind` is the memory of the devices, or `None`."""
    if memory_kind is not None and not is_one_of(memory_kind, ("device",)):
        raise ShardingError(
            with_location(
                f"the memory kind {brief(memory_kind)} is not supported: arrays are in the memory "
                'of their devices, "device"; to keep an array in host memory, convert it with '
                "numpy.asarray"
            )
        )
