"""Cross products of vectors and traces of matrices."""

from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.errors import AxisError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.layout import spread, transposed
from shardir.frontend.numpy.pointwise import like, no_out, same
from shardir.frontend.numpy.reductions import reduced, total
from shardir.frontend.numpy.triangles import compared
from shardir.frontend.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    promote,
    reshape,
)
from shardir.frontend.promotion import dtype_of
from shardir.frontend.tracer import Tracer


@public(static=("axisa", "axisb", "axisc", "axis"))
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """Return the cross product of vectors of 3 elements (or 2, with a third element of 0) along an
    axis.

    For two vectors of 2 elements, return only the third element, without the axis.
    """
    x, y = promote(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    xs, ys = _elements(x, axisa), _elements(y, axisb)
    if len(xs) == len(ys) == 2:
        return xs[0] * ys[1] - xs[1] * ys[0]
    rows = [_minor(xs, ys, i, j) for i, j in ((1, 2), (2, 0), (0, 1))]
    shape = broadcast_shapes(*(row.shape for row in rows))
    dim = axis_of(axisc, len(shape) + 1)
    expanded_shape = (*shape[:dim], 1, *shape[dim:])
    return joined([reshape(broadcast(row, shape), expanded_shape) for row in rows], dim)


def _elements(x: Tracer, axis: int) -> list[Tracer]:
    dim = axis_of(axis, x.ndim)
    if x.shape[dim] not in (2, 3):
        raise ShapeError(
            point(f"cross takes vectors of 2 or 3 elements, got {x.shape[dim]} along axis {axis}")
        )
    rest = (*x.shape[:dim], *x.shape[dim + 1 :])
    return [reshape(piece(x, dim, i, i + 1), rest) for i in range(x.shape[dim])]


def _minor(xs: list[Tracer], ys: list[Tracer], i: int, j: int) -> Tracer:
    """Return xs[i] * ys[j] - xs[j] * ys[i]; a missing third element is 0."""
    first = xs[i] * ys[j] if i < len(xs) and j < len(ys) else None
    second = xs[j] * ys[i] if j < len(xs) and i < len(ys) else None
    if first is None:
        return same("neg", second) if second is not None else like(xs[0], 0)
    found: Tracer = first if second is None else first - second
    return found


@public(static=("offset", "axis1", "axis2", "dtype", "out"))
def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None
) -> Any:
    """Return the sum of diagonal `offset` of matrices in axes `axis1` and `axis2` of `a`.

    Bools and integers narrower than the default integer type are summed in that type.
    """
    no_out("trace", out)
    x = as_tracer(a)
    first, second = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    if first == second:
        raise AxisError(point(f"axis1={axis1} and axis2={axis2} of trace are the same axis"))
    x = convert(x, total(x.value.type.dtype) if dtype is None else dtype_of(dtype))
    x = transposed(x, [*(d for d in range(x.ndim) if d not in (first, second)), first, second])
    dims = (x.ndim - 2, x.ndim - 1)
    on_diagonal = spread(compared("eq", x.shape[-2:], offset), x.shape, dims)
    return reduced("sum", same("select", on_diagonal, x, like(x, 0)), dims, False)
