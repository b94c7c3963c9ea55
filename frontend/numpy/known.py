"""Access to concrete values while tracing: Python scalars, NumPy arrays, arrays that are not
tracers.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend.errors import TracedValueError
from shardir.frontend.locations import point
from shardir.frontend.operands import abstract_of, no_array
from shardir.frontend.quoting import brief
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import check_ends


def is_known(x: Any) -> bool:
    """Return whether the elements of an array, or of a container of arrays, are concrete."""
    try:
        return _is_known(x)
    except RecursionError:
        check_ends(x)
        raise


def _is_known(x: Any) -> bool:
    if isinstance(x, (list, tuple)):
        return all(map(_is_known, x))
    return not isinstance(x, Tracer)


def known_array(x: Any, label: str, what: str, way_out: str) -> npt.NDArray[Any]:
    """Return the elements of `x`, which error messages call `label`, as a NumPy array.

    Raise `TracedValueError` with `what` and `way_out` if `x` is traced, and `NotAnArrayError` if it
    is not an array.
    """
    if not is_known(x):
        raise TracedValueError(point(f"{what}, which are traced; {way_out}"))
    return numbers_of(x, label)


def numbers_of(x: Any, label: str) -> npt.NDArray[Any]:
    """Return the elements of a concrete array or nested list as a NumPy array.

    Raise `NotAnArrayError`, which mentions `label`, if `x` is not an array.
    """
    if not isinstance(x, (list, tuple)):
        abstract_of(x, label)
        return np.asarray(x)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise no_array(x, label, f"is a nested list, which is no array: {error}") from None
    if array.dtype.kind not in "biufcV":
        raise no_array(x, label, f"is {brief(x)}, which is no array of numbers")
    return array


def as_ints(values: Any) -> tuple[int, ...]:
    """Return one integer or several as a tuple of integers."""
    if isinstance(values, (list, tuple)):
        return tuple(index(n) for n in values)
    if isinstance(values, Tracer) or not np.ndim(values):
        return (index(values),)
    return tuple(index(n) for n in np.asarray(values))


def frozen(values: Any) -> Any:
    """Convert arrays and lists of numbers to nested tuples, which can be static arguments."""
    try:
        return _frozen(values)
    except RecursionError:
        check_ends(values)
        raise


def _frozen(values: Any) -> Any:
    if isinstance(values, (list, tuple)):
        return tuple(_frozen(value) for value in values)
    if hasattr(values, "tolist") and not isinstance(values, Tracer):
        return _frozen(values.tolist()) if np.ndim(values) else values.tolist()
    return values


Ints = int | Sequence[int]
