"""sin, cos and tan of f64 beside multiples of pi / 2, where nearly all of x cancels."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from tests.backends.cpu.kernels.math.accuracy import DOUBLE
from tests.backends.cpu.kernels.math.elementwise_runner import Array, applied

FUNCTIONS: dict[str, Any] = {"sin": mp.sin, "cos": mp.cos, "tan": mp.tan}
LAST = 170_000_000
"""Multiples up to here are below 2^28, where each number is reduced by itself."""


def closest() -> Array:
    """Of many numbers that are the nearest to a multiple, those that are so most of all."""
    rng = np.random.default_rng(0)
    found = []
    with mp.workdps(60):
        for k in [*range(1, 500), *rng.integers(1, LAST, 20_000).tolist()]:
            exact = k * mp.pi / 2
            near = float(exact)
            found.append((abs(near - exact) / float(np.spacing(near)), near))
    return np.array([near for _, near in sorted(found)[:400]])


@pytest.mark.parametrize("op", FUNCTIONS)
def test_errors_beside_multiples(op: str) -> None:
    x = closest()
    got = applied(op, [x], ["f64"], "f64")
    with mp.workdps(60):
        for place, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = FUNCTIONS[op](mp.mpf(place))
            apart = abs(mp.mpf(value) - exact) / float(np.spacing(abs(float(exact))))
            assert apart <= DOUBLE[op], place
