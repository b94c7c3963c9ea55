"""What is known while tracing: Python's and NumPy's numbers, and arrays that are no tracers."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.frontend.errors import TracedValueError
from shardir.frontend.locations import point
from shardir.frontend.tracer import Tracer


def is_known(x: Any) -> bool:
    """Whether the numbers of an array, or of a container of arrays, are known."""
    if isinstance(x, (list, tuple)):
        return all(map(is_known, x))
    return not isinstance(x, Tracer)


def known_array(x: Any, what: str, way_out: str) -> npt.NDArray[Any]:
    """The numbers of `x`; raises `TracedValueError` with `what` and `way_out` if it is traced."""
    if not is_known(x):
        raise TracedValueError(point(f"{what}, which are traced; {way_out}"))
    return np.asarray(x)


def as_ints(values: Any) -> tuple[int, ...]:
    """One integer or several, as a tuple."""
    if isinstance(values, (list, tuple)):
        return tuple(index(n) for n in values)
    if isinstance(values, Tracer) or not np.ndim(values):
        return (index(values),)
    return tuple(index(n) for n in np.asarray(values))


def frozen(values: Any) -> Any:
    """Arrays and lists of numbers as nested tuples, which can be static arguments."""
    if isinstance(values, (list, tuple)):
        return tuple(frozen(value) for value in values)
    if hasattr(values, "tolist") and not isinstance(values, Tracer):
        return frozen(values.tolist()) if np.ndim(values) else values.tolist()
    return values


Ints = int | Sequence[int]
