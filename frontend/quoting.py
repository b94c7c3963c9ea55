"""Text of user objects for error messages: on one line and of bounded length."""

from itertools import islice
from pathlib import PurePath
from typing import Any

import numpy as np

from shardir.frontend.arrays.abstract_value import ArrayBase

MAX_OBJECT_CHARACTERS = 60
"""Maximum length of a quoted object, in characters."""
MAX_TEXT_CHARACTERS = 300
"""Maximum length of a quoted name or path, in characters."""
MAX_CONTAINER_DEPTH = 4
"""Number of levels of lists, tuples and dicts in which arrays are quoted by their types."""


def brief(x: object) -> str:
    """Return the element type and shape of an array, or the shortened `repr` of any other
    object.

    Arrays in lists, tuples and dicts are quoted by element type and shape too.
    """
    try:
        text = " ".join(_object_text(x, MAX_CONTAINER_DEPTH).split())
    except Exception:  # A class of the user may fail, or an object may not be initialized yet.
        text = f"one {type(x).__name__}"
    return text if len(text) <= MAX_OBJECT_CHARACTERS else text[: MAX_OBJECT_CHARACTERS - 3] + "..."


def brief_with_type(x: object) -> str:
    """Return `brief(x)` followed by the name of the class of `x`."""
    return f"{brief(x)} of type {type(x).__name__}"


def quote_text(text: str) -> str:
    """Return `repr(text)`, with the middle omitted where it is long.

    The result has no control characters and no lone surrogates.
    """
    return _omit_middle(repr(text))


def quote_message(text: str) -> str:
    """Return a message of a library or of the system on one line, without control characters."""
    line = " ".join(text.split())
    return _omit_middle(line if line.isprintable() else ascii(line)[1:-1])


def quote_path(path: PurePath) -> str:
    """Return a path as text, quoted where it has characters that cannot be printed."""
    text = str(path)
    return _omit_middle(text) if text.isprintable() else quote_text(text)


def _object_text(x: Any, depth: int) -> str:
    """Return `repr(x)` with the types of arrays in place of the arrays.

    Of a container, it has as many items as fit into `MAX_OBJECT_CHARACTERS`.
    """
    if isinstance(x, ArrayBase):
        return str(x.abstract.type)
    if isinstance(x, np.ndarray) and x.ndim:
        return f"{x.dtype}{[*x.shape]}"
    if type(x) not in (list, tuple, dict) or not x or not depth:
        return repr(x)
    some = islice(x, MAX_OBJECT_CHARACTERS)
    if type(x) is dict:
        texts = [f"{key!r}: {_object_text(x[key], depth - 1)}" for key in some]
        return f"{{{', '.join(texts)}}}"
    items = ", ".join(_object_text(item, depth - 1) for item in some)
    if type(x) is list:
        return f"[{items}]"
    return f"({items},)" if len(x) == 1 else f"({items})"


def _omit_middle(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARACTERS:
        return text
    return f"{text[: MAX_TEXT_CHARACTERS // 2 - 2]}...{text[1 - MAX_TEXT_CHARACTERS // 2 :]}"
