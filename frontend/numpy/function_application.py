"""Application of user functions to 1-D slices of an array, or over several axes."""

from collections.abc import Callable, Sequence
from math import prod

from shardir.errors import OperationTypeError, count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import call_user_function, check_function
from shardir.frontend.dispatch.composed import ComposedFunction
from shardir.frontend.dispatch.eager import PublicFunction, public
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.traced_calls import array_result
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.control_flow import loops
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.tracer import Tracer


@with_argument_errors
def apply_along_axis(
    func1d: UserFunction, axis: int, arr: ArrayLike, *args: PyTree, **kwargs: PyTree
) -> Tracer:
    """Apply `func1d(line, *args)` to every 1-D slice along `axis`; its result replaces the slice.

    The slices are processed one after the other by a loop in the program. Functions of this library
    and compiled functions have a stable identity, so that the program is traced once.
    """
    check_function(func1d, "func1d of apply_along_axis")
    if isinstance(func1d, CACHEABLE_FUNCTION_TYPES):
        return _apply_cached(func1d, axis, arr, args, kwargs)
    return _apply_traced(lambda line: func1d(line, *args, **kwargs), axis, arr)


CACHEABLE_FUNCTION_TYPES = PublicFunction, ComposedFunction, JitFunction


@public(static=("func1d", "axis"), cached=False, name="apply_along_axis")
def _apply_traced(func1d: UserFunction, axis: int, arr: ArrayLike) -> Tracer:
    return _map_lines(func1d, axis, arr, (), {})


@public(static=("func1d", "axis"), name="apply_along_axis")
def _apply_cached(
    func1d: UserFunction, axis: int, arr: ArrayLike, args: PyTree, options: PyTree
) -> Tracer:
    return _map_lines(func1d, axis, arr, args, options)


def _map_lines(
    func1d: UserFunction, axis: int, arr: ArrayLike, args: PyTree, options: PyTree
) -> Tracer:

    x = as_tracer(arr)
    dim = canonicalize_axis(axis, x.ndim)
    moved = reshaping.moveaxis(x, dim, -1)
    around = moved.shape[:-1]
    lines = reshaping.reshape(moved, (prod(around), x.shape[dim]))
    what = "the function of apply_along_axis"
    found = loops.map(lambda line: array_result(func1d(line, *args, **options), what), lines)
    shaped = reshaping.reshape(found, (*around, *found.shape[1:]))
    own = range(len(around), shaped.ndim)
    return reshaping.moveaxis(shaped, tuple(own), tuple(range(dim, dim + len(own))))


@with_argument_errors
def apply_over_axes(
    func: Callable[[PyTree, int], PyTree], a: ArrayLike, axes: int | Sequence[int]
) -> PyTree:
    """Apply `func(a, axis)` for each axis in turn; `func` keeps or removes the axis."""

    if not callable(func):
        raise ArgumentError(with_location(f"apply_over_axes takes a function, got {brief(func)}"))
    x = a if hasattr(a, "shape") else array_conversion.asarray(a)
    rank = len(x.shape)
    for axis in canonicalize_axes(axes, rank):
        found = array_conversion.asarray(
            call_user_function(func, "the function of apply_over_axes", (x, axis))
        )
        if len(found.shape) == rank - 1:
            found = reshaping.expand_dims(found, axis)
        if len(found.shape) != rank:
            raise OperationTypeError(
                with_location(
                    "apply_over_axes takes a function that keeps the other "
                    f"{count_noun(rank - 1, 'axis', 'axes')}"
                )
            )
        x = found
    return x
