"""What is known while tracing: Python's and NumPy's numbers, and arrays that are no tracers."""

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
    """Whether the numbers of an array, or of a container of arrays, are known."""
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
    """The numbers of `x`, which errors call `label`.

    Raises `TracedValueError` with `what` and `way_out` if it is traced, `NotAnArrayError` if it is
    no array.
    """
    if not is_known(x):
        raise TracedValueError(point(f"{what}, which are traced; {way_out}"))
    return numbers_of(x, label)


def numbers_of(x: Any, label: str) -> npt.NDArray[Any]:
    """The numbers of a known array or nested list; `NotAnArrayError` that mentions `label`."""
    if not isinstance(x, (list, tuple)):
        abstract_of(x, label)
        return np.asarray(x)
    try:
        found = np.asarray(x)
    except ValueError as error:
        raise no_array(x, label, f"is a nested list, which is no array: {error}") from None
    if found.dtype.kind not in "biufcV":
        raise no_array(x, label, f"is {brief(x)}, which is no array of numbers")
    return found


def as_ints(values: Any) -> tuple[int, ...]:
    """One integer or several, as a tuple."""
    if isinstance(values, (list, tuple)):
        return tuple(index(n) for n in values)
    if isinstance(values, Tracer) or not np.ndim(values):
        return (index(values),)
    return tuple(index(n) for n in np.asarray(values))


def frozen(values: Any) -> Any:
    """Arrays and lists of numbers as nested tuples, which can be static arguments."""
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
