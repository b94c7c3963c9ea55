"""The shipped polynomials equal the computed ones and reach the accuracy of their targets."""

import mpmath as mp
import pytest

from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from tests.backends.cpu.kernels.math.fit_coefficients import Grid, fit_target, value_at
from tests.backends.cpu.kernels.math.fit_targets import TARGETS

pytestmark = pytest.mark.sample(3)

DEFAULT_NAMES = ("exp.f32", "log.f32", "sin.f32", "cos.short", "log_rest.f64")


def test_the_table_has_the_names_of_the_targets() -> None:
    assert list(POLYNOMIALS) == list(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_polynomials_can_be_reproduced(name: str, request: pytest.FixtureRequest) -> None:
    """With --long all polynomials are computed again, otherwise a few; the errors of all are
    checked."""
    target = TARGETS[name]
    if name in DEFAULT_NAMES or request.config.getoption("--long"):
        assert [float(c) for c in fit_target(target).coefficients] == list(POLYNOMIALS[name])
    grid = Grid(target, 60)
    made = [mp.mpf(c) for c in POLYNOMIALS[name]]
    errors = [
        abs(value_at(made, x) - value) * weight
        for x, value, weight in zip(grid.x, grid.values, grid.weights, strict=True)
    ]
    rounding = 3 if target.kind == "f32" else 1  # bits lost by rounding the coefficients
    if target.kind == "f64":
        rounding = max(rounding, target.bits - 51)
    assert max(errors) <= mp.mpf(2) ** (rounding - target.bits)
