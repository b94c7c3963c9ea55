"""Norms of vectors and matrices."""

from functools import reduce
from string import ascii_letters

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.linear_algebra.contraction import contract
from shardir.frontend.numpy.reductions.basic_reductions import (
    emit_reduction,
    empty_reduction_error,
    is_empty_reduction,
    restore_reduced_dims,
)
from shardir.frontend.numpy.shaping.reshaping import moveaxis
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    as_bool,
    constant_like,
    default_float_kind,
    emit_elementwise,
    inexact_kind,
    is_complex,
)
from shardir.frontend.numpy.tracer_helpers.product_precision import Precision
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert, promote_to
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import find_explicit_sharding
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import REAL_OF


@public(static=("ord", "axis", "keepdims"))
@strip_weak_types
def norm(
    x: ArrayLike, ord: float | str | None = None, axis: AxisLike = None, keepdims: bool = False
) -> Tracer:
    """Return the norm of vectors along one axis, of matrices along two, or of all elements.

    `ord` is a number for vectors, and "fro", "nuc", 1, -1, 2, -2, inf or -inf for matrices. Without
    it, the square root of the sum of squares. `keepdims` keeps the axes with size 1.
    """
    (v,) = promote_to(inexact_kind(x), x)
    if axis is None and (ord is None or v.ndim not in (1, 2)):
        if ord is not None:
            raise ShapeError(
                with_location(f"norm of ord={ord!r} of an array of rank {v.ndim} needs axis=")
            )
        return _vector_norm(v, tuple(range(v.ndim)), 2, keepdims)
    dims = canonicalize_axes(axis, v.ndim)
    if len(dims) == 1:
        return _vector_norm(v, dims, 2 if ord is None else ord, keepdims)
    if len(dims) != 2:
        raise ShapeError(with_location(f"norm takes one axis or two, got axis={axis}"))
    return _matrix_norm(v, (dims[0], dims[1]), "fro" if ord is None else ord, keepdims)


@public(static=("axis", "keepdims", "ord"))
@strip_weak_types
def vector_norm(
    x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False, ord: float | str | None = 2
) -> Tracer:
    """Return the norm of vectors along some axes, or of all elements; `ord` is a number."""
    name, weak = default_float_kind(x) if ord in (2, None) else inexact_kind(x)
    (v,) = promote_to((name, weak), x)
    return _vector_norm(v, canonicalize_axes(axis, v.ndim), 2 if ord is None else ord, keepdims)


@public(static=("keepdims", "ord"))
@strip_weak_types
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: float | str = "fro") -> Tracer:
    """Return the norm of matrices in the last two axes: "fro", "nuc", 1, -1, 2, -2, inf or -inf."""
    (v,) = promote_to(inexact_kind(x), x)
    if v.ndim < 2:
        raise ShapeError(with_location(f"matrix_norm takes matrices, got shape {v.shape}"))
    return _matrix_norm(v, (v.ndim - 2, v.ndim - 1), ord, keepdims)


def _vector_norm(x: Tracer, dims: tuple[int, ...], order: float | str, keepdims: bool) -> Tracer:
    if isinstance(order, str):
        raise ArgumentError(with_location(f"norm of vectors takes a number as ord, got {order!r}"))
    if order == 0:
        return emit_reduction(
            "sum",
            convert(as_bool(x), REAL_OF.get(x.value.type.dtype, x.value.type.dtype)),
            dims,
            keepdims,
        )
    # A contraction of a dimension that Explicit axes shard is ambiguous, and a sum is not.
    is_contraction = not is_complex(x) and find_explicit_sharding(x) is None
    if order == 2 and len(dims) == x.ndim and is_contraction:
        letters = ascii_letters[: x.ndim]
        total = contract(x, x, f"{letters},{letters}->", precision=Precision.HIGHEST)
        found = emit_elementwise("sqrt", total)
        return restore_reduced_dims(found, x, dims) if keepdims else found
    if order == 2:
        return emit_elementwise("sqrt", emit_reduction("sum", _squares(x), dims, keepdims))
    sizes = emit_elementwise("abs", x)
    if abs(order) == np.inf:
        return _reduce_extreme("max" if order > 0 else "min", sizes, dims, keepdims)
    if order == 1:
        return emit_reduction("sum", sizes, dims, keepdims)
    summed = emit_reduction(
        "sum", emit_elementwise("pow", sizes, constant_like(sizes, order)), dims, keepdims
    )
    return emit_elementwise("pow", summed, constant_like(summed, 1 / order))


def _squares(x: Tracer) -> Tracer:
    parts = [emit_elementwise("real", x), emit_elementwise("imag", x)] if is_complex(x) else [x]
    return reduce(
        lambda a, b: emit_elementwise("add", a, b),
        [emit_elementwise("mul", part, part) for part in parts],
    )


def _reduce_extreme(op: str, x: Tracer, dims: tuple[int, ...], keepdims: bool) -> Tracer:
    if is_empty_reduction(x, dims):
        raise empty_reduction_error("norm", x)
    return emit_reduction(op, x, dims, keepdims)


def _matrix_norm(x: Tracer, dims: tuple[int, int], order: float | str, keepdims: bool) -> Tracer:
    if order == "fro":
        return _vector_norm(x, dims, 2, keepdims)
    if not isinstance(order, str) and order in (1, -1, np.inf, -np.inf):
        along, other = dims if abs(order) == 1 else dims[::-1]
        sums = emit_reduction("sum", emit_elementwise("abs", x), (along,), False)
        found = _reduce_extreme(
            "max" if order > 0 else "min", sums, (other - (along < other),), False
        )
        return restore_reduced_dims(found, x, dims) if keepdims else found
    if order in ("nuc", 2, -2):
        values = emit("svd", as_tracer(moveaxis(x, dims, (-2, -1))), full=False, vectors=False)
        last = (values.ndim - 1,)
        if order == "nuc":
            found = emit_reduction("sum", values, last, False)
        else:
            found = _reduce_extreme("max" if order == 2 else "min", values, last, False)
        return restore_reduced_dims(found, x, dims) if keepdims else found
    raise ArgumentError(
        with_location(
            f"norm of matrices of ord={order!r} is not known; the norms are 'fro', 'nuc', 1, -1, "
            "2, -2, inf, -inf"
        )
    )
