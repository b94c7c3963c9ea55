"""The polynomials that ship are those that the tool derives, and as good as their targets say."""

import mpmath as mp
import pytest

from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from tests.backends.cpu.kernels.math.fit_coefficients import Grid, fitted, value_at
from tests.backends.cpu.kernels.math.fit_targets import TARGETS

QUICK = ("exp.f32", "log.f32", "sin.f32", "cos.short", "log_rest.f64")


def test_the_table_has_what_there_are_targets_for() -> None:
    assert list(POLYNOMIALS) == list(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_a_polynomial_is_derived_again(name: str, request: pytest.FixtureRequest) -> None:
    """All of them with --long; a few otherwise, the rest are only held to their bounds."""
    target = TARGETS[name]
    if name in QUICK or request.config.getoption("--long"):
        assert [float(c) for c in fitted(target).coefficients] == list(POLYNOMIALS[name])
    grid = Grid(target, 60)
    made = [mp.mpf(c) for c in POLYNOMIALS[name]]
    errors = [
        abs(value_at(made, x) - value) * weight
        for x, value, weight in zip(grid.x, grid.values, grid.weights, strict=True)
    ]
    rounding = 3 if target.kind == "f32" else 1  # bits that rounded coefficients may cost
    if target.kind == "f64":
        rounding = max(rounding, target.bits - 51)
    assert max(errors) <= mp.mpf(2) ** (rounding - target.bits)
