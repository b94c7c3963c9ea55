"""Checks of the shardings of arrays and results, which devices hold completely."""

from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED
from shardir.frontend.shardings.sharding import Sharding


def is_resolved(sharding: Sharding, rank: int) -> bool:
    """Return whether a sharding states the devices of every dimension: none is unconstrained."""
    return all(axes is not UNCONSTRAINED for axes in sharding.sub_axes(rank))


def check_holds_partial_sums(sharding: Sharding, what: str) -> None:
    """Raise `ShardingError` that begins with `what` for partial sums on devices of several
    processes."""
    if sharding.has_partial_sums and not sharding.is_fully_addressable:
        raise ShardingError(
            f"{what} with {sharding}: its devices belong to several processes, and partial sums "
            "of arrays must be in one; reshard the value inside of jit (sharding.reshard)"
        )
