"""Selects the route of a collective."""

from collections.abc import Sequence

from shardir.backends.mpi.places import Places
from shardir.backends.mpi.reducing import Reducing, is_large
from shardir.backends.mpi.routes import Moving, Route, Together, Transposing
from shardir.ir import Op
from shardir.ops.overlap import kind_of
from shardir.placement import Axis

SMALL_BYTES = 1 << 16
"""Reductions of which a process would receive at most this are gathered and combined locally."""


def route_of(op: Op, differing: Sequence[Axis], places: Places) -> Route:
    """Return the route of a collective whose operand may differ along the axes `differing`."""
    classes = places.classes(differing)
    kind = kind_of(op)
    if kind == "all-to-all":
        return Transposing(op, classes)
    if kind == "collective-permute":
        return Moving(op, classes)
    if kind != "all-gather" and is_large(op, classes, SMALL_BYTES):
        return Reducing(op, classes)
    return Together(op, classes)
