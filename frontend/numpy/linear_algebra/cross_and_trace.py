"""Cross products of vectors and traces of matrices."""

from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import AxisError, ShapeError
from shardir.frontend.numpy.reductions.basic_reductions import accumulation_dtype, emit_reduction
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    broadcast_in_dim,
    concatenate_parts,
    slice_dim,
    transpose_dims,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    compare_row_column,
    constant_like,
    emit_elementwise,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes,
    convert,
    promote,
    reshape,
)
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types


@public(static=("axisa", "axisb", "axisc", "axis"))
@strip_weak_types
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Tracer:
    """Return the cross product of vectors of 3 elements (or 2, with a third element of 0) along an
    axis.

    For two vectors of 2 elements, return only the third element, without the axis.
    """
    x, y = promote(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    xs, ys = _vector_components(x, axisa), _vector_components(y, axisb)
    if len(xs) == len(ys) == 2:
        return xs[0] * ys[1] - xs[1] * ys[0]
    rows = [_minor(xs, ys, i, j) for i, j in ((1, 2), (2, 0), (0, 1))]
    shape = broadcast_shapes(*(row.shape for row in rows))
    dim = canonicalize_axis(axisc, len(shape) + 1)
    expanded_shape = (*shape[:dim], 1, *shape[dim:])
    return concatenate_parts([reshape(broadcast(row, shape), expanded_shape) for row in rows], dim)


def _vector_components(x: Tracer, axis: int) -> list[Tracer]:
    dim = canonicalize_axis(axis, x.ndim)
    if x.shape[dim] not in (2, 3):
        raise ShapeError(
            with_location(
                f"cross takes vectors of 2 or 3 elements, got {x.shape[dim]} along axis {axis}"
            )
        )
    rest = (*x.shape[:dim], *x.shape[dim + 1 :])
    return [reshape(slice_dim(x, dim, i, i + 1), rest) for i in range(x.shape[dim])]


def _minor(xs: list[Tracer], ys: list[Tracer], i: int, j: int) -> Tracer:
    """Return xs[i] * ys[j] - xs[j] * ys[i]; a missing third element is 0."""
    first = xs[i] * ys[j] if i < len(xs) and j < len(ys) else None
    second = xs[j] * ys[i] if j < len(xs) and i < len(ys) else None
    if first is None:
        return emit_elementwise("neg", second) if second is not None else constant_like(xs[0], 0)
    result: Tracer = first if second is None else first - second
    return result


@public(static=("offset", "axis1", "axis2", "dtype", "out"))
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike | None = None,
    out: None = None,
) -> Tracer:
    """Return the sum of diagonal `offset` of matrices in axes `axis1` and `axis2` of `a`.

    Bools and integers narrower than the default integer type are summed in that type.
    """
    check_no_out("trace", out)
    x = as_tracer(a)
    first, second = canonicalize_axis(axis1, x.ndim), canonicalize_axis(axis2, x.ndim)
    if first == second:
        raise AxisError(
            with_location(f"axis1={axis1} and axis2={axis2} of trace are the same axis")
        )
    x = convert(x, accumulation_dtype(x.value.type.dtype) if dtype is None else dtype_of(dtype))
    x = transpose_dims(x, [*(d for d in range(x.ndim) if d not in (first, second)), first, second])
    dims = (x.ndim - 2, x.ndim - 1)
    on_diagonal = broadcast_in_dim(compare_row_column("eq", x.shape[-2:], offset), x.shape, dims)
    return emit_reduction(
        "sum", emit_elementwise("select", on_diagonal, x, constant_like(x, 0)), dims, False
    )
