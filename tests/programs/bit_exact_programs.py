"""Programs whose results must agree bit for bit."""

import numpy as np

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import Array
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module


def must_be_exact(before: Module, after: Module) -> None:
    """Check that both modules return the same bits; any NaN equals any NaN."""
    arguments = random_arguments(before, whole=True)
    for want, got in zip(run(before, arguments), run(after, arguments), strict=True):
        assert want.dtype == got.dtype
        assert _without_nan(want).tobytes() == _without_nan(got).tobytes(), (want, got)


def _without_nan(x: Array) -> Array:
    if x.dtype.kind in "biu":
        return x
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    return np.array([np.where(np.isnan(part), np.ones_like(part), part) for part in parts])
