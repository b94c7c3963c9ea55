"""sin, cos and tan of f64 numbers next to multiples of pi / 2, where the reduction cancels most
digits."""

from typing import Any

import mpmath as mp
import numpy as np
import pytest

from tests.backends.cpu.kernels.math.accuracy import F64_BOUNDS_ULP
from tests.backends.cpu.kernels.math.elementwise_runner import Array, run_operation

FUNCTIONS: dict[str, Any] = {"sin": mp.sin, "cos": mp.cos, "tan": mp.tan}
MAX_MULTIPLE = 170_000_000
"""Up to this multiple, numbers are below 2^28 and reduced one by one."""


def closest_numbers() -> Array:
    """Return the numbers with the smallest distances to multiples, among many nearest numbers."""
    rng = np.random.default_rng(0)
    found = []
    with mp.workdps(60):
        for k in [*range(1, 500), *rng.integers(1, MAX_MULTIPLE, 20_000).tolist()]:
            exact = k * mp.pi / 2
            near = float(exact)
            found.append((abs(near - exact) / float(np.spacing(near)), near))
    return np.array([near for _, near in sorted(found)[:400]])


@pytest.mark.parametrize("op", FUNCTIONS)
def test_errors_near_multiples_are_within_the_bound(op: str) -> None:
    x = closest_numbers()
    got = run_operation(op, [x], ["f64"], "f64")
    with mp.workdps(60):
        for argument, value in zip(x.tolist(), got.tolist(), strict=True):
            exact = FUNCTIONS[op](mp.mpf(argument))
            distance = abs(mp.mpf(value) - exact) / float(np.spacing(abs(float(exact))))
            assert distance <= F64_BOUNDS_ULP[op], argument
