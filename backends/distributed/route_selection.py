"""Selects the route of a collective."""

from collections.abc import Sequence

from shardir import ops
from shardir.backends.distributed.collective_routes import (
    AllToAllRoute,
    CollectiveRoute,
    GatherAllRoute,
    PermuteRoute,
)
from shardir.backends.distributed.device_ownership import DeviceOwnership
from shardir.backends.distributed.large_reduction import LargeReductionRoute, is_large
from shardir.ir.module import Op
from shardir.ir.sharding import Axis
from shardir.ops.communication.async_collectives import synchronous_spec

MAX_GATHERED_REDUCTION_BYTES = 1 << 16
"""Reductions of which a process would receive at most this are gathered and combined locally."""


def select_route(op: Op, differing: Sequence[Axis], places: DeviceOwnership) -> CollectiveRoute:
    """Return the route of a collective whose operand may differ along the axes `differing`."""
    classes = places.classes(differing)
    spec = synchronous_spec(op)
    if spec is ops.all_to_all:
        return AllToAllRoute(op, classes)
    if spec is ops.collective_permute:
        return PermuteRoute(op, classes)
    if spec is not ops.all_gather and is_large(op, classes, MAX_GATHERED_REDUCTION_BYTES):
        return LargeReductionRoute(op, classes)
    return GatherAllRoute(op, classes)
