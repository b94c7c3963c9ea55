"""The table of the f64 logarithm has the documented properties."""

from fractions import Fraction
from itertools import pairwise

import mpmath as mp
import numpy as np
import pytest

from shardir.backends.cpu.kernels.math.logarithm_double import (
    BINARY_LOGS,
    BINARY_RESTS,
    FIRST_STEP_BITS,
    INVERSES,
    LN2_PARTS,
    NATURAL_LOGS,
    NATURAL_RESTS,
)
from tests.backends.cpu.kernels.math.elementwise_runner import run_operation
from tests.backends.cpu.kernels.math.fit_targets import REDUCED_INTERVAL

STEP = 1 << 48


def steps() -> list[tuple[Fraction, Fraction]]:
    """Return the first and last m of each step."""
    first = [FIRST_STEP_BITS + step * STEP for step in range(len(INVERSES) + 1)]
    return [(_number(start), _number(following - 1)) for start, following in pairwise(first)]


def _number(bits: int) -> Fraction:
    return Fraction(float(np.array(bits).view(np.float64)))


def test_reduced_arguments_are_exact_and_small() -> None:
    """The product of m and its inverse has at most 53 bits."""
    for (low, high), inverse in zip(steps(), map(Fraction, INVERSES), strict=True):
        last = Fraction(1, (1 << 53 if low < 1 else 1 << 52) * inverse.denominator)
        for m in (low, high):
            assert REDUCED_INTERVAL[0] <= float(m * inverse - 1) <= REDUCED_INTERVAL[1]
            assert abs(m * inverse - 1) <= last * 2**53


def test_the_step_around_one_has_the_inverse_one() -> None:
    (at,) = (step for step, (low, high) in enumerate(steps()) if low < 1 < high)
    assert INVERSES[at] == 1
    assert NATURAL_LOGS[at] == NATURAL_RESTS[at] == BINARY_LOGS[at] == BINARY_RESTS[at] == 0


def test_logarithms_are_accurate_in_two_parts() -> None:
    with mp.workdps(50):
        for inverse, *parts in zip(
            INVERSES, NATURAL_LOGS, NATURAL_RESTS, BINARY_LOGS, BINARY_RESTS, strict=True
        ):
            logarithm = -mp.log(mp.mpf(inverse))
            assert abs(mp.mpf(parts[0]) + parts[1] - logarithm) < mp.mpf(2) ** -94
            assert abs(mp.mpf(parts[2]) + parts[3] - logarithm / mp.log(2)) < mp.mpf(2) ** -94
        assert abs(mp.mpf(LN2_PARTS[0]) + LN2_PARTS[1] - mp.log(2)) < mp.mpf(2) ** -94
    for high_part in (*NATURAL_LOGS, *BINARY_LOGS, LN2_PARTS[0]):
        assert float(high_part * 2**42).is_integer()


@pytest.mark.parametrize("op", ["log", "log2"])
def test_logarithms_of_subnormal_numbers_are_accurate(op: str) -> None:
    x = 2.0 ** -np.arange(1022.0, 1075.0)
    expected = -np.arange(1022.0, 1075.0) * (1 if op == "log2" else np.log(2))
    np.testing.assert_allclose(run_operation(op, [x], ["f64"], "f64"), expected, rtol=2**-52)
