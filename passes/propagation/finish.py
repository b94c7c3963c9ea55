"""Write back the shardings that propagation found.

Dimensions that propagation did not reach are closed and unsharded. Parameters and results of
functions are sharded evenly, so that all shards have equal size: axes that do not divide the
dimension are trimmed, and a sub-axis that propagation added is removed. Operands and results of
manual computations are sharded evenly too. Uneven shardings remain inside of functions, and at
their boundaries where they are requested.
"""

from dataclasses import replace
from enum import Enum

from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import take_dividing_prefix


def without_unit_axes(sharding: Sharding) -> Sharding:
    """Return the sharding without axes of size 1, which shard nothing."""

    def without(dim: DimSharding) -> DimSharding:
        axes = sharding_axes(dim.axes)
        return DimSharding(axes, dim.open, dim.priority if axes or dim.open else None)

    return replace(
        sharding,
        dims=tuple(map(without, sharding.dims)),
        replicated=sharding_axes(sharding.replicated),
        unreduced=sharding_axes(sharding.unreduced),
    )


def sharding_axes(axes: Axes) -> Axes:
    """Return the axes of a size above 1; an axis of size 1 shards nothing."""
    return tuple(axis for axis in axes if axis.size > 1)


class BoundaryKind(Enum):
    """Kind of boundary that a value is at."""

    NONE = "nothing: it is inside of a function"
    MANUAL = "a manual computation and what is around it"
    FUNCTION = "a function and its callers"


BOUNDARY_MODES = ("even", "stated", "uneven")
"""Axes that do not divide parameters and results: trimmed (`even`), kept if stated
(`stated`), or kept (`uneven`)."""


def trim_at_boundary(
    sharding: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    border: BoundaryKind,
    stated: Sharding | None = None,
    uneven: str = "even",
) -> Sharding:
    """Return the sharding of a boundary value: even shards, and no sub-axes in open dimensions.

    Boundary values of manual computations may be sharded along sub-axes.
    """
    if border is BoundaryKind.NONE:
        return sharding
    dims = []
    for d, (dim, size) in enumerate(zip(sharding.dims, shape, strict=True)):
        axes = dim.axes
        if uneven != "uneven":
            axes = take_dividing_prefix(axes, size)
            own = stated.dims[d].axes if stated and uneven == "stated" else ()
            if count_positions(own) > count_positions(axes):
                axes = own
        if dim.open and border is BoundaryKind.FUNCTION:
            is_full = [axis.is_full(mesh) for axis in axes]
            axes = axes[: is_full.index(False)] if False in is_full else axes
        dims.append(DimSharding(axes, dim.open))
    return replace(sharding, dims=tuple(dims))
