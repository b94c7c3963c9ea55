"""What users passed, as errors quote it: on one line, and in few words where it is long."""

from pathlib import PurePath
from typing import Any

import numpy as np

from shardir.frontend.operators import Operators

LONGEST = 60
MAX_TEXT = 300
"""Characters of a name or a path that an error quotes."""


def brief(x: Any) -> str:
    """An array as its element type and shape, anything else as Python shows it, cut off."""
    if isinstance(x, Operators):
        return str(x.abstract.type)
    if isinstance(x, np.ndarray) and x.ndim:
        return f"{x.dtype}{[*x.shape]}"
    try:
        text = " ".join(repr(x).split())
    except Exception:  # The user's class, or one of ours that is not made yet.
        text = f"one {type(x).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def brief_with_type(x: Any) -> str:
    """The same, with the name of its class."""
    return f"{brief(x)} of type {type(x).__name__}"


def quoted(text: str) -> str:
    """A name as Python writes it, its middle left out where it is long. There are no control
    characters and no lone surrogates in it."""
    return _without_middle(repr(text))


def shown(text: str) -> str:
    """What a library or the system says, in one line and without control characters."""
    line = " ".join(text.split())
    return _without_middle(line if line.isprintable() else ascii(line)[1:-1])


def shown_path(path: PurePath) -> str:
    """A path as it is, or quoted where it has characters that cannot be printed."""
    text = str(path)
    return _without_middle(text) if text.isprintable() else quoted(text)


def _without_middle(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[: MAX_TEXT // 2 - 2]}...{text[1 - MAX_TEXT // 2 :]}"
