"""Floats of less than 64 bits in functions of many steps, each of which would be rounded."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.frontend.config import config
from shardir.frontend.operands import convert


def in_single(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of arrays of f32 and f64 that takes narrower floats, too: by f32, rounded once."""

    def widened(x: Any) -> Any:
        if x.dtype.itemsize >= 4:
            return function(x)
        return function(x.astype(np.float32)).astype(x.dtype)

    return widened


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays of f64 that takes narrower floats, too: by f64, rounded once.

    What is inside is f64 whether `enable_x64` is set or not, and so are its derivatives.
    """

    def widened(*xs: Any) -> Any:
        first = xs[0]
        with config(enable_x64=True):
            made = function(*(convert(x, "f64") for x in xs))
        return convert(made, first.value.type.dtype, first.weak_type)

    return widened
