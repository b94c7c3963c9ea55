"""What propagation found, as it is written down.

Nothing is left open: a dimension that no cut reached is whole from now on. What a function takes
and gives is cut evenly, so that it can be handed out in equal pieces: axes that do not divide
the dimension are trimmed, and a part of an axis that propagation put there is taken back.
Inside the function uneven cuts stay, and at its border those that are asked for.
"""

from dataclasses import replace
from math import prod

from shardir.axes import dividing_prefix
from shardir.mesh import Mesh
from shardir.placement import Axes, Dim, Sharding


def without_unit_axes(sharding: Sharding) -> Sharding:
    """The sharding without axes of size 1, which cut nothing."""
    parts = [axis for dim in sharding.dims for axis in dim.axes]
    if all(axis.size > 1 for axis in (*parts, *sharding.replicated, *sharding.unreduced)):
        return sharding

    def real(axes: Axes) -> Axes:
        return tuple(axis for axis in axes if axis.size > 1)

    return replace(
        sharding,
        dims=tuple(replace(dim, axes=real(dim.axes)) for dim in sharding.dims),
        replicated=real(sharding.replicated),
        unreduced=real(sharding.unreduced),
    )


BORDERS = ("even", "stated", "uneven")
"""Which cuts that do not divide parameters and results have: none, those stated, or any."""


def at_the_border(
    sharding: Sharding,
    shape: tuple[int, ...],
    mesh: Mesh,
    stated: Sharding | None = None,
    border: str = "even",
) -> Sharding:
    """The sharding of a parameter or result: even pieces, and whole axes where it was free."""
    dims = []
    for d, (dim, size) in enumerate(zip(sharding.dims, shape, strict=True)):
        axes = dim.axes
        if border != "uneven" and size % prod(axis.size for axis in axes):
            axes = dividing_prefix(axes, size)
            own = stated.dims[d].axes if stated and border == "stated" else ()
            if prod(axis.size for axis in own) > prod(axis.size for axis in axes):
                axes = own
        if dim.open:
            whole = [axis.is_whole(mesh) for axis in axes]
            axes = axes[: whole.index(False)] if False in whole else axes
        dims.append(Dim(axes, dim.open))
    return replace(sharding, dims=tuple(dims))
