"""Universal functions: `frompyfunc`, and the `ufunc`s of public functions.

A public function of one or two operands, such as `snp.add`, has the attributes and methods of its
`ufunc`, and counts as an instance. `add`, `multiply` and others, of which each has a reduction
operation or is associative, do not combine elements one after the other.
"""

from math import prod
from typing import Any

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.elementwise import (
    arithmetic,
    bits,
    comparison,
    math_functions,
    selection,
)
from shardir.frontend.numpy.reductions import basic_reductions, cumulative
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.ufunc import Method, combined_dtype, ufunc
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert
from shardir.frontend.tracing.tracer import Tracer


@with_argument_errors
def frompyfunc(func: UserFunction, /, nin: int, nout: int, *, identity: object = None) -> ufunc:
    """Return the `ufunc` of a function that takes `nin` scalars and returns `nout`."""
    return ufunc(func, nin, nout, identity=identity)


def _add_methods(function: Any, nin: int, **options: Any) -> None:
    """Give a public function the attributes and methods of a `ufunc`."""
    made = ufunc(function, nin, 1, name=function.__name__, call=function, **options)
    function.ufunc = made
    for name in ("nin", "nout", "nargs", "identity", "reduce", "accumulate", "at", "reduceat",
                 "outer"):  # fmt: skip
        setattr(function, name, getattr(made, name))


@public(name="add.at")
def _add_at(a: ArrayLike, indices: PyTree, b: ArrayLike) -> Tracer:
    return as_tracer(as_tracer(a).at[indices].add(b))


@public(name="multiply.at")
def _multiply_at(a: ArrayLike, indices: PyTree, b: ArrayLike) -> Tracer:
    return as_tracer(as_tracer(a).at[indices].multiply(b))


@public(name="subtract.at")
def _subtract_at(a: ArrayLike, indices: PyTree, b: ArrayLike) -> Tracer:
    return as_tracer(as_tracer(a).at[indices].add(arithmetic.negative(b)))


def _converted_reduction(function: Method) -> Method:
    """Return the method `reduce` of a reduction without the parameter `dtype`."""

    def reduce(a: ArrayLike, *, dtype: DTypeLike | None, **options: Any) -> Tracer:
        result = function(a, **options)
        return result if dtype is None else result.astype(dtype)

    return reduce


def _reduction_by_halves(function: Any, identity: object) -> Method:
    """Return the method `reduce` of an associative function, in logarithmically many steps."""

    @public(static=("axis", "dtype", "keepdims"), name=f"{function.__name__}.reduce")
    def reduce(
        a: ArrayLike, axis: AxisLike, dtype: DTypeLike | None, keepdims: bool,
        initial: ArrayLike | None, where: ArrayLike | None,
    ) -> Tracer:  # fmt: skip
        x = as_tracer(a)
        dims = tuple(range(x.ndim)) if axis is None else canonicalize_axes(axis, x.ndim)
        kept = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
        kind = combined_dtype(function.ufunc, x, dtype)
        x = convert(x, kind)
        if where is not None:
            mask = broadcast(basic_reductions.as_mask(where), x.shape)
            x = as_tracer(selection.where(mask, x, convert(as_tracer(identity), kind)))
        count = prod(x.shape[d] for d in dims)
        others = [n for d, n in enumerate(x.shape) if d not in dims]
        rows = reshaping.moveaxis(x, dims, tuple(range(len(dims)))).reshape(count, *others)
        start = identity if initial is None else initial
        while rows.shape[0] > 1:
            half = rows.shape[0] // 2
            pairs = function(rows[:half], rows[half : 2 * half])
            rows = concatenation.concatenate([pairs, rows[2 * half :]])
        first = broadcast(convert(as_tracer(start), kind), rows.shape[1:])
        if not rows.shape[0]:
            result = first
        else:
            result = rows[0] if initial is None else function(first, rows[0])
        return convert(as_tracer(result), kind).reshape(kept if keepdims else result.shape)

    return reduce


_add_methods(arithmetic.negative, 1)
_add_methods(
    arithmetic.add, 2, identity=0, reduce=basic_reductions.sum, accumulate=cumulative.cumsum,
    at=_add_at,
)  # fmt: skip
_add_methods(
    arithmetic.multiply, 2, identity=1, reduce=basic_reductions.prod,
    accumulate=cumulative.cumprod, at=_multiply_at,
)  # fmt: skip
_add_methods(arithmetic.subtract, 2, at=_subtract_at)
_add_methods(selection.maximum, 2, reduce=_converted_reduction(basic_reductions.max))
_add_methods(selection.minimum, 2, reduce=_converted_reduction(basic_reductions.min))
for _function, _identity in (
    (bits.bitwise_and, -1),
    (bits.bitwise_or, 0),
    (bits.bitwise_xor, 0),
    (comparison.logical_and, True),
    (comparison.logical_or, False),
    (comparison.logical_xor, False),
    (math_functions.logaddexp, -np.inf),
    (math_functions.logaddexp2, -np.inf),
):
    _add_methods(
        _function, 2, identity=_identity, reduce=_reduction_by_halves(_function, _identity)
    )
