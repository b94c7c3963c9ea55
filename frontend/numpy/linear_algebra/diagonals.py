"""Diagonals of matrices as strided slices of the flattened matrices."""

from operator import index

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import AxisError
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import transpose_dims
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types


def diagonal_in_place(x: Tracer, first: int, second: int) -> Tracer:
    """Return the diagonal of two dimensions of equal size, at the position of the first."""
    rest = [d for d in range(x.ndim) if d not in (first, second)]
    taken = _last_diagonal(transpose_dims(x, (*rest, first, second)), 0)
    place = first - (second < first)
    perm = [*range(place), x.ndim - 2, *range(place, x.ndim - 2)]
    return transpose_dims(taken, tuple(perm))


def _last_diagonal(x: Tracer, offset: int) -> Tracer:
    """Return diagonal `offset` of the matrices in the last two dimensions, as the last dimension.

    In row-major order its elements have the distance columns + 1.
    """
    *batch, rows, columns = x.shape
    offset = index(offset)
    length = max(min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns), 0)
    start = offset if offset >= 0 else -offset * columns
    line = reshape(x, (*batch, rows * columns))
    if not length:
        start = 0
    result: Tracer = emit(
        "slice",
        line,
        starts=(*[0] * len(batch), start),
        strides=(*[1] * len(batch), columns + 1),
        result=x.value.type.with_shape((*batch, length)),
        weak=x.weak_type,
    )
    return result


@public(static=("offset", "axis1", "axis2"))
@strip_weak_types
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tracer:
    """Return diagonal `offset` of the matrices in axes `axis1` and `axis2`, as the last axis."""
    x = as_tracer(a)
    first, second = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    if first == second:
        raise AxisError(
            with_location(f"axis1={axis1} and axis2={axis2} of diagonal are the same axis")
        )
    rest = [d for d in range(x.ndim) if d not in (first, second)]
    return _last_diagonal(transpose_dims(x, (*rest, first, second)), offset)
