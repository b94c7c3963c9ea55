"""Access to concrete values while tracing: Python scalars, NumPy arrays, arrays that are not
tracers.
"""

from collections.abc import Sequence
from operator import index

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, not_an_array_error
from shardir.frontend.errors import TracedValueError
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import NumpyArray


def is_concrete(x: ArrayLike) -> bool:
    """Return whether the elements of an array, or of a container of arrays, are concrete."""
    try:
        return _is_concrete(x)
    except RecursionError:
        check_acyclic(x)
        raise


def _is_concrete(x: ArrayLike) -> bool:
    if isinstance(x, (list, tuple)):
        return all(map(_is_concrete, x))
    return not isinstance(x, Tracer)


def require_concrete(x: ArrayLike, label: str, what: str, way_out: str) -> NumpyArray:
    """Return the elements of `x`, which error messages call `label`, as a NumPy array.

    Raise `TracedValueError` with `what` and `way_out` if `x` is traced, and `NotAnArrayError` if it
    is not an array.
    """
    if not is_concrete(x):
        raise TracedValueError(with_location(f"{what}, which are traced; {way_out}"))
    return to_concrete_array(x, label)


def to_concrete_array(x: ArrayLike, label: str) -> NumpyArray:
    """Return the elements of a concrete array or nested list as a NumPy array.

    Raise `NotAnArrayError`, which mentions `label`, if `x` is not an array.
    """
    if not isinstance(x, (list, tuple)):
        abstract_of(x, label)
        return np.asarray(x)
    try:
        array = np.asarray(x)
    except ValueError as error:
        says = f"is a nested list, which is not an array: {error}"
        raise not_an_array_error(x, label, lambda _: says) from None
    if array.dtype.kind not in "biufcV":
        raise not_an_array_error(
            x, label, lambda given: f"is {brief(given)}, which is not an array of numbers"
        )
    return array


def as_ints(values: PyTree) -> tuple[int, ...]:
    """Return one integer or several as a tuple of integers."""
    if isinstance(values, (list, tuple)):
        return tuple(index(n) for n in values)
    if isinstance(values, Tracer) or not np.ndim(values):
        return (index(values),)
    return tuple(index(n) for n in np.asarray(values))


def to_hashable(values: PyTree) -> PyTree:
    """Convert arrays and lists of numbers to nested tuples, which can be static arguments."""
    try:
        return _to_hashable(values)
    except RecursionError:
        check_acyclic(values)
        raise


def _to_hashable(values: PyTree) -> PyTree:
    if isinstance(values, (list, tuple)):
        return tuple(_to_hashable(value) for value in values)
    if hasattr(values, "tolist") and not isinstance(values, (Tracer, type)):
        return _to_hashable(values.tolist()) if np.ndim(values) else values.tolist()
    return values


Ints = int | Sequence[int]
