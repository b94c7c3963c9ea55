"""The lines of elements of which quantiles are read, their fractions, and the shape of results."""

from collections.abc import Sequence

from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.numpy.reductions.basic_reductions import empty_reduction_error, reduction_size
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    broadcast_in_dim,
    concatenate_parts,
    slice_dim,
    transpose_dims,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    emit_elementwise,
    emit_isnan,
    inexact_kind,
    require_real,
)
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to, reshape
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES


def move_axes_first(
    name: str, a: ArrayLike, axis: AxisLike
) -> tuple[Tracer, Tracer, tuple[int, ...]]:
    """Return the array, its elements along a leading axis that combines `axis`, and the axes."""
    x = as_tracer(require_real(name, a)[0])
    dims = canonicalize_axes(axis, x.ndim)
    count = reduction_size(x, dims)
    if not count:
        raise empty_reduction_error(name, x)
    kind, _ = inexact_kind(x)
    rest = [d for d in range(x.ndim) if d not in dims]
    moved = transpose_dims(convert(x, COMPUTE_DTYPES[kind]), [*dims, *rest])
    return x, reshape(moved, (count, *(x.shape[d] for d in rest))), dims


def align_fractions(name: str, q: ArrayLike, lines: Tracer) -> tuple[Tracer, Tracer]:
    """Return traced fractions, and one row of them for each fraction, with the shape of a row of
    `lines`."""
    (fractions,) = promote_to(
        (lines.value.type.dtype, False), as_tracer(require_real(f"argument q of {name}", q)[0])
    )
    line = reshape(fractions, (fractions.value.type.size,))
    return fractions, broadcast_in_dim(line, (line.shape[0], *lines.shape[1:]), (0,))


def shape_result(
    found: Tracer, fractions: Tracer, x: Tracer, dims: tuple[int, ...], keepdims: bool
) -> Tracer:
    """Return one row per fraction with the dimensions of the fractions and of the reduced `x`.

    The rows of fractions that are NaN are NaN.
    """
    line = reshape(fractions, (found.shape[0],))
    each = broadcast_in_dim(line, found.shape, (0,))
    found = emit_elementwise("select", emit_isnan(each), each, found)
    rest = found.shape[1:]
    if keepdims:
        rest = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return convert(reshape(found, (*fractions.shape, *rest)), inexact_kind(x)[0])


def sort_lines(lines: Tracer) -> Tracer:
    """Sort along the first axis."""
    result: Tracer = emit("sort", lines, dim=0, keys=1, stable=True)
    return result


def line_at(lines: Tracer, i: int) -> Tracer:
    return reshape(slice_dim(lines, 0, i, i + 1), lines.shape[1:])


def stack_rows(rows: Sequence[Tracer]) -> Tracer:
    return concatenate_parts([reshape(row, (1, *row.shape)) for row in rows], 0)
