"""Interpolation on rectangular grids: `shardir.scipy.interpolate.RegularGridInterpolator`."""

from collections.abc import Sequence
from functools import reduce
from itertools import product
from operator import and_, mul

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer

__all__ = ["RegularGridInterpolator"]

METHODS = ("linear", "nearest")


@with_method_errors
class RegularGridInterpolator:
    """A function that interpolates values on a grid, which is rectangular but may be uneven.

    `points` has the coordinates of the grid in each dimension, in ascending order; `values` has one
    value for each position, and may have further dimensions. A call takes coordinates
    (..., dimensions), a vector with the coordinates of one point after another, or a tuple of
    arrays that broadcast, one for each dimension. It returns the "linear" interpolation of the
    values around, or the "nearest" value. Outside of the grid the result is `fill_value`, or with
    None the extrapolation. Raise `ShapeError` for points that do
    not fit the values, and `ArgumentError` for coordinates that do not ascend (if they are
    concrete), another method, a fill value of a wider kind than the values, and `bounds_error`.
    """

    @with_argument_errors
    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: ArrayLike | None = np.nan,
    ) -> None:
        self.method = _check_method(method)
        if bounds_error:
            raise ArgumentError(
                with_location(
                    "bounds_error of RegularGridInterpolator would depend on the elements of an "
                    "array; leave it out, and compare the result with fill_value"
                )
            )
        self.bounds_error = bounds_error
        self.values = snp.asarray(values)
        self.grid = tuple(snp.asarray(each) for each in points)
        self.fill_value = fill_value
        _check_grid(self.grid, self.values)
        if fill_value is not None:
            target = snp.result_type(self.values, float)
            if not snp.can_cast(snp.asarray(fill_value).dtype, target, casting="same_kind"):
                raise ArgumentError(
                    with_location(
                        f"fill_value of RegularGridInterpolator is {brief(fill_value)}, which is "
                        f"not of the kind of the values, {target}"
                    )
                )

    def __call__(self, xi: ArrayLike | tuple[ArrayLike, ...], method: str | None = None) -> Tracer:
        """Return the interpolated values: (..., *further dimensions of the values)."""
        chosen = self.method if method is None else _check_method(method)
        return _interpolate(self.grid, self.values, xi, self.fill_value, chosen)


def _check_method(method: object) -> str:
    if not isinstance(method, str) or method not in METHODS:
        raise ArgumentError(
            with_location(
                f"the method of RegularGridInterpolator is {brief(method)}; it is 'linear' or "
                "'nearest'"
            )
        )
    return method


def _check_grid(grid: Sequence[Tracer], values: Tracer) -> None:
    shapes = [each.shape for each in grid]
    expected = [(size,) for size in values.shape[: len(grid)]]
    if not grid or shapes != expected or 0 in values.shape:
        raise ShapeError(
            with_location(
                "RegularGridInterpolator takes one vector of coordinates for each of the first "
                f"dimensions of the values, of their sizes; got shapes "
                f"{', '.join(map(str, shapes))} for values of shape {values.shape}"
            )
        )
    for dim, each in enumerate(grid):
        if isinstance(each, Tracer) or current_trace() is not None:
            continue
        if not (np.diff(np.asarray(each)) > 0).all():
            raise ArgumentError(
                with_location(
                    f"points[{dim}] of RegularGridInterpolator does not ascend; sort it, and the "
                    "values along the same dimension"
                )
            )


@public(static=("method",), name="RegularGridInterpolator")
def _interpolate(
    grid: Sequence[ArrayLike],
    values: ArrayLike,
    xi: ArrayLike | tuple[ArrayLike, ...],
    fill: ArrayLike | None,
    method: str,
) -> Tracer:
    table = as_tracer(values)
    table = convert(table, *inexact_kind(table))
    axes = [as_tracer(each) for each in grid]
    if isinstance(xi, tuple):
        places = snp.broadcast_arrays(*map(as_tracer, xi))
        coordinates = snp.stack(places, -1)
    else:
        given = as_tracer(xi)
        coordinates = snp.atleast_1d(given)
        if given.ndim == 1 and given.size % len(axes) == 0:
            coordinates = given.reshape(-1, len(axes))
    if coordinates.shape[-1] != len(axes):
        raise ShapeError(
            with_location(
                f"RegularGridInterpolator of {count_noun(len(axes), 'dimension')} takes "
                f"coordinates (..., {len(axes)}), got shape {coordinates.shape}"
            )
        )
    parts = [convert(each, *inexact_kind(each)) for each in snp.moveaxis(coordinates, -1, 0)]
    cells = [_find_cells(axis, x) for axis, x in zip(axes, parts, strict=True)]
    further = (1,) * (table.ndim - len(axes))
    if method == "nearest":
        nearest = tuple(
            snp.where(offset <= 0.5, index, snp.minimum(index + 1, axis.shape[0] - 1))
            for axis, (index, offset) in zip(axes, cells, strict=True)
        )
        result = table[nearest]
    else:
        terms = []
        for corner in product((0, 1), repeat=len(axes)):
            index = tuple(
                snp.minimum(cell[0] + step, axis.shape[0] - 1)
                for cell, step, axis in zip(cells, corner, axes, strict=True)
            )
            weights = [
                cell[1] if step else 1 - cell[1] for cell, step in zip(cells, corner, strict=True)
            ]
            weight = reduce(mul, weights)
            terms.append(table[index] * weight.reshape(*weight.shape, *further))
        result = sum(terms[1:], terms[0])
    if fill is not None:
        inside = [(x >= axis[0]) & (x <= axis[-1]) for axis, x in zip(axes, parts, strict=True)]
        is_inside = reduce(and_, inside)
        mask = is_inside.reshape(*is_inside.shape, *further)
        result = snp.where(mask, result, convert(as_tracer(fill), table.value.type.dtype))
    is_nan = reduce(snp.logical_or, [snp.isnan(x) for x in parts])
    result = snp.where(is_nan.reshape(*is_nan.shape, *further), np.nan, result)
    return convert(as_tracer(result), table.value.type.dtype)


def _find_cells(axis: Tracer, x: Tracer) -> tuple[Tracer, Tracer]:
    """Return the index of the grid point below coordinates, and their relative offset from it."""
    size = axis.shape[0]
    index = snp.clip(snp.searchsorted(axis, x) - 1, 0, max(size - 2, 0))
    if size == 1:
        return index, x - axis[0]
    low, high = axis[index], axis[index + 1]
    return index, (x - low) / (high - low)
