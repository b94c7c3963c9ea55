"""Floats of 16 bits in functions of many steps, each of which would be rounded."""

from collections.abc import Callable
from typing import Any

import numpy as np


def in_single(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of arrays of f32 and f64 that takes narrower floats, too: by f32, rounded once."""

    def widened(x: Any) -> Any:
        if x.dtype.itemsize >= 4:
            return function(x)
        return function(x.astype(np.float32)).astype(x.dtype)

    return widened
