"""Programs whose results must agree bit for bit."""

from collections.abc import Sequence

import numpy as np

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import Array
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray


def must_be_exact(before: Module, after: Module) -> None:
    """Check that both modules return the same bits; any NaN equals any NaN."""
    difference = exact_difference(before, after, random_arguments(before, whole=True))
    assert not difference, difference


def exact_difference(before: Module, after: Module, arguments: Sequence[NumpyArray]) -> str:
    """Return how the bits of two modules' results differ, or an empty text; any NaN equals any
    NaN."""
    for want, got in zip(run(before, arguments), run(after, arguments), strict=True):
        if want.dtype != got.dtype or _without_nan(want).tobytes() != _without_nan(got).tobytes():
            return f"{got} instead of {want}"
    return ""


def _without_nan(x: Array) -> Array:
    if x.dtype.kind in "biu":
        return x
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    return np.array([np.where(np.isnan(part), np.ones_like(part), part) for part in parts])
