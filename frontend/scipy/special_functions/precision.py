"""Computation of half-precision and single-precision floats in wider types."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shardir.frontend.config import config
from shardir.frontend.tracing.operands import convert


def compute_in_single(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Extend a function of f32 and f64 to narrower floats: compute in f32, round once."""

    def compute(x: Any) -> Any:
        if x.dtype.itemsize >= 4:
            return function(x)
        return function(x.astype(np.float32)).astype(x.dtype)

    return compute


def compute_in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Extend a function of f64 to narrower floats: compute in f64, round once.

    The computation and its derivatives are f64 independent of `enable_x64`.
    """

    def compute(*xs: Any) -> Any:
        first = xs[0]
        with config(enable_x64=True):
            result = function(*(convert(x, "f64") for x in xs))
        return convert(result, first.value.type.dtype, first.weak_type)

    return compute
