"""Errors of Python and NumPy that come out of a function of a namespace.

Most mistakes are found where their meaning is known, and have a text of their own. What is left
are values of a kind that nobody looked at: Python says of such a value what is wrong with it, but
not whose argument it is.
"""

import sys
from traceback import walk_tb
from typing import Any

import numpy as np

from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import is_internal, point

FOREIGN = (TypeError, ValueError, IndexError, AttributeError, OverflowError)
"""What Python and NumPy raise for values that they cannot take."""

_LIBRARIES = {"numpy", "ml_dtypes", "optree", *sys.stdlib_module_names} - {"__main__"}


def refusal(
    name: str, args: tuple[Any, ...], options: dict[str, Any], error: Exception
) -> ArgumentError | None:
    """The error for a call of `name` that met `error`; `None` if that is ours, or the user's.

    It is the user's if it was raised in a function that the call was given.
    """
    if isinstance(error, ShardirError):
        return None
    for frame, _ in walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__", ""))
        if not is_internal(frame.f_code) and module.partition(".")[0] not in _LIBRARIES:
            return None
    parts = [_shown(arg) for arg in args]
    parts += [f"{key}={_shown(value)}" for key, value in options.items()]
    return ArgumentError(point(f"{name} does not take ({', '.join(parts)}): {error}"))


def _shown(value: Any) -> str:
    """An array as its type, anything else as it is written, if that is short."""
    abstract = getattr(value, "abstract", None)
    if abstract is not None:
        return str(abstract.type)
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
