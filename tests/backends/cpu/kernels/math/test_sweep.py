"""Bit patterns by the million: what is found by machine code is what NumPy finds, and in bounds."""

from typing import Any

import numpy as np
import pytest

from shardir.ir.types import NUMPY_DTYPES
from tests.backends.cpu.kernels.math.accuracy import SINGLE, TRUTHS, errors, patterns
from tests.backends.cpu.kernels.math.elementwise_runner import applied, specials
from tests.backends.cpu.kernels.math.error_search import judged, worst_of
from tests.backends.cpu.kernels.math.sweep import UNARY, main, number

ONCE = 0.5001
"""The error of what is rounded once to f16 or bf16, from a result in f32."""


@pytest.mark.parametrize("op", UNARY)
def test_f32_keeps_its_bound_all_over(op: str, request: pytest.FixtureRequest) -> None:
    """Every 7th of all patterns with --long; `sweep` takes all."""
    stride = 7 if request.config.getoption("--long") else 3001
    error, pattern = worst_of(op, "f32", stride, stride // 2)
    assert error <= SINGLE[op], number(pattern, "f32")


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("op", UNARY)
def test_all_numbers_of_short_types_are_rounded_once(op: str, dtype: str) -> None:
    error, pattern = worst_of(op, dtype)
    assert error <= ONCE, number(pattern, dtype)


@pytest.mark.parametrize("op", ["exp", "sinh", "log1p", "tan"])
def test_errors_are_those_that_numpy_finds(op: str) -> None:
    edges, x = specials("f32"), patterns(40009)
    whole = np.concatenate([x, edges])
    got = applied(op, [whole], ["f32"], "f32")
    with np.errstate(all="ignore"):
        exact = TRUTHS[op](whole.astype(np.float64))
    wanted = errors(got, exact)
    np.testing.assert_allclose(judged(got, exact, "f32"), wanted, rtol=1e-12)
    error, pattern = worst_of(op, "f32", 40009)
    assert pattern == 40009 * int(wanted[: x.size].argmax())
    assert error == pytest.approx(wanted[: x.size].max(), abs=1e-5)


WRONG = [
    (np.nan, 1.0, np.inf),
    (1.0, np.nan, np.inf),
    (np.nan, np.nan, 0.0),
    (-0.0, 0.0, np.inf),
    (0.0, 1e-60, 0.0),
    (np.inf, 1.0, np.inf),
    (1.0, np.inf, np.inf),
    (np.inf, -np.inf, np.inf),
    (np.inf, 1e300, 0.0),
    (3.4028234663852886e38, np.inf, 0.0),
    (2.0**-149, 0.0, 1.0),
    (1.0 + 2.0**-23, 1.0, 1.0),
    (1.0 - 2.0**-24, 1.0, 0.5),
]


@pytest.mark.parametrize(("got", "exact", "error"), WRONG)
def test_errors_of_special_numbers(got: float, exact: float, error: float) -> None:
    (found,) = judged(np.array([got]), np.array([exact]), "f32")
    assert found == pytest.approx(error)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_every_pattern_has_its_turn(dtype: str) -> None:
    """The last one, too: a NaN with all bits set, which is no error, and so is what is before."""
    last = (1 << 8 * NUMPY_DTYPES[dtype].itemsize) - 1
    assert np.isnan(number(last, dtype)).all()
    error, pattern = worst_of("sqrt", dtype, 1 << 12, 7)
    assert error <= 0.5
    assert pattern % (1 << 12) == 7


def test_the_tool_prints_a_line_for_each(capsys: Any) -> None:
    assert main(["exp", "sqrt", "--patterns", "1000003", "--numpy"]) == 0
    lines = capsys.readouterr().out.splitlines()[2:]
    assert [line.split(" | ")[:2] for line in lines] == [
        [f"| {op}", dtype] for op in ("exp", "sqrt") for dtype in ("f32", "f16", "bf16")
    ]
    with pytest.raises(SystemExit):
        main(["sine"])
    assert "no function 'sine'; there are exp, exp2" in capsys.readouterr().err
