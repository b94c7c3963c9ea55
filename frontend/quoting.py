"""What users passed, as errors quote it: on one line, and in few words where it is long."""

from typing import Any

import numpy as np

from shardir.frontend.operators import Operators

LONGEST = 60


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
