"""Quantiles of weighted elements by the inverse of their cumulative distribution."""

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.indexing.take import take_along_axis
from shardir.frontend.numpy.reductions.basic_reductions import emit_reduction
from shardir.frontend.numpy.reductions.quantile_lines import (
    align_fractions,
    line_at,
    move_axes_first,
    shape_result,
)
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim, transpose_dims
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
    emit_isnan,
    require_real,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.trace import emit, emit_results
from shardir.frontend.tracing.tracer import Tracer


@public(static=("axis", "keepdims", "nans", "name"), name="quantile")
def quantiles_of_distribution(
    a: ArrayLike, q: ArrayLike, weights: ArrayLike | None, axis: AxisLike, keepdims: bool,
    nans: bool, name: str,
) -> Tracer:  # fmt: skip
    """Return the first sorted elements whose cumulative weight is at least `q` of the total."""
    x, lines, dims = move_axes_first(name, a, axis)
    fractions, each = align_fractions(name, q, lines)
    if weights is None:
        mass = constant_like(lines, 1)
    else:
        mass = move_axes_first(name, _align_weights(name, weights, x, axis, dims), axis)[1]
        mass = convert(mass, lines.value.type.dtype)
    if nans:
        mass = emit_elementwise("select", emit_isnan(lines), constant_like(mass, 0), mass)
    ranked, mass = emit_results("sort", lines, mass, dim=0, keys=1, stable=True)
    sums: Tracer = emit("cumsum", mass, dim=0, reverse=False)
    total = broadcast_in_dim(line_at(sums, sums.shape[0] - 1), sums.shape, range(1, sums.ndim))
    shares = emit_elementwise("div", sums, total)
    # An element without weight is never the result, even of the fraction 0.
    empty = emit_elementwise("eq", sums, constant_like(sums, 0))
    shares = emit_elementwise("select", empty, constant_like(shares, -1), shares)
    shape = (each.shape[0], *lines.shape)
    rows = (0, *range(2, len(shape)))
    before = emit_elementwise(
        "lt",
        broadcast_in_dim(shares, shape, range(1, len(shape))),
        broadcast_in_dim(each, shape, rows),
    )
    index = emit_reduction("sum", convert(before, "i32"), (1,), False)
    index = emit_elementwise("minimum", index, constant_like(index, lines.shape[0] - 1))
    found = take_along_axis(ranked, index, axis=0, mode="promise_in_bounds")
    unknown = emit_elementwise("not", _has_valid_weights(mass, sums))
    if not nans:
        last = line_at(ranked, ranked.shape[0] - 1)
        unknown = emit_elementwise("or", unknown, emit_isnan(last))
    unknown = broadcast_in_dim(unknown, found.shape, range(1, found.ndim))
    found = emit_elementwise("select", unknown, constant_like(found, np.nan), found)
    return shape_result(found, fractions, x, dims, keepdims)


def _has_valid_weights(mass: Tracer, sums: Tracer) -> Tracer:
    """Return whether the weights of each line are not negative, with a positive finite sum."""
    smallest = emit_reduction("min", mass, (0,), False)
    total = line_at(sums, sums.shape[0] - 1)
    return emit_elementwise(
        "and",
        emit_elementwise("ge", smallest, constant_like(smallest, 0)),
        emit_elementwise(
            "and",
            emit_elementwise("gt", total, constant_like(total, 0)),
            emit_elementwise("lt", total, constant_like(total, np.inf)),
        ),
    )


def _align_weights(
    name: str, weights: ArrayLike, x: Tracer, axis: AxisLike, dims: tuple[int, ...]
) -> Tracer:
    """Return weights with the shape of `x`; they may have the shape of the axes alone."""
    (given,) = require_real(f"argument weights of {name}", weights)
    mass = as_tracer(given)
    if mass.shape == x.shape:
        return mass
    if axis is None or mass.shape != tuple(x.shape[d] for d in dims):
        raise ShapeError(
            with_location(
                f"{name} takes weights of shape {x.shape} or of the shape of its axes, "
                f"{tuple(x.shape[d] for d in dims)}, got {mass.shape}"
            )
        )
    order = sorted(range(len(dims)), key=dims.__getitem__)
    return broadcast_in_dim(transpose_dims(mass, order), x.shape, sorted(dims))
