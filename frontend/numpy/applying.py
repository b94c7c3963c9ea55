"""Application of user functions to 1-D slices of an array, or over several axes."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.composing import Composed
from shardir.frontend.eager import Public, public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.jit import JitFunction
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of, axis_of
from shardir.frontend.operands import as_tracer
from shardir.frontend.parameters import called
from shardir.frontend.quoting import brief


def apply_along_axis(
    func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """Apply `func1d(line, *args)` to every 1-D slice along `axis`; its result replaces the slice.

    The slices are processed one after the other by a loop in the program. Functions of this library
    and compiled functions have a stable identity, so that the program is traced once.
    """
    applied = _applied_once if isinstance(func1d, LASTING) else _applied
    return applied(func1d, axis, arr, args, kwargs)


LASTING = Public, Composed, JitFunction


@public(static=("func1d", "axis"), cached=False, name="apply_along_axis")
def _applied(func1d: Callable[..., Any], axis: int, arr: Any, args: Any, options: Any) -> Any:
    return _to_lines(func1d, axis, arr, args, options)


@public(static=("func1d", "axis"), name="apply_along_axis")
def _applied_once(func1d: Callable[..., Any], axis: int, arr: Any, args: Any, options: Any) -> Any:
    return _to_lines(func1d, axis, arr, args, options)


def _to_lines(func1d: Callable[..., Any], axis: int, arr: Any, args: Any, options: Any) -> Any:
    from shardir.frontend import lax, numpy as snp

    x = as_tracer(arr)
    dim = axis_of(axis, x.ndim)
    moved = snp.moveaxis(x, dim, -1)
    around = moved.shape[:-1]
    lines = snp.reshape(moved, (prod(around), x.shape[dim]))
    found = lax.map(lambda line: as_tracer(func1d(line, *args, **options)), lines)
    shaped = snp.reshape(found, (*around, *found.shape[1:]))
    own = range(len(around), shaped.ndim)
    return snp.moveaxis(shaped, tuple(own), tuple(range(dim, dim + len(own))))


def apply_over_axes(func: Callable[[Any, int], Any], a: Any, axes: int | Sequence[int]) -> Any:
    """Apply `func(a, axis)` for each axis in turn; `func` keeps or removes the axis."""
    from shardir.frontend import numpy as snp

    if not callable(func):
        raise ArgumentError(point(f"apply_over_axes takes a function, got {brief(func)}"))
    x = a if hasattr(a, "shape") else snp.asarray(a)
    rank = len(x.shape)
    for axis in axes_of(axes, rank):
        found = snp.asarray(called(func, "the function of apply_over_axes", (x, axis)))
        if len(found.shape) == rank - 1:
            found = snp.expand_dims(found, axis)
        if len(found.shape) != rank:
            raise OperationTypeError(
                point(f"apply_over_axes takes a function that keeps the other {rank - 1} axes")
            )
        x = found
    return x
