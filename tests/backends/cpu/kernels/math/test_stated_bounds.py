"""docs/numerics.md states the bounds that the tests assert, of every elementwise operation."""

from pathlib import Path

import pytest

from shardir.ir.operation import OPS
from tests.backends.cpu.kernels.math import test_basic_rules
from tests.backends.cpu.kernels.math.accuracy import DOUBLE, SINGLE
from tests.frontend.scipy.accuracy import BOUNDS

PAGE = Path(__file__).parents[5] / "docs/numerics.md"
EXACT = {*test_basic_rules.UNARY, *test_basic_rules.BINARY, "select", "clamp", "convert"}
"""Operations whose results are exact, so that no error bound is stated."""
WORDS = {"random_hash", "random_fold_in"}
UNCHANGED = {
    "checkpoint-name",
    "data_flow_edge",
    "propagation_barrier",
    "reshard",
    "sharding_constraint",
    "vary",
}
"""What says something of a value, and leaves its numbers alone."""


def table(first: str) -> dict[str, list[str]]:
    """The rows of the page's table whose first heading is this, by their first cell."""
    lines = iter(PAGE.read_text("utf-8").splitlines())
    rows = {}
    assert any(line.startswith(f"| {first} |") for line in lines), f"no table of {first}"
    assert next(lines).startswith("|---")
    for line in lines:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[name] = cells
    return rows


FUNCTIONS = table("function")
MADE = table("function of `scipy.special`")


def test_every_elementwise_operation_is_exact_or_has_a_bound() -> None:
    elementwise = {name for name, spec in OPS.items() if spec.elementwise}
    assert elementwise == EXACT | WORDS | UNCHANGED | set(FUNCTIONS)
    assert not (WORDS | UNCHANGED) & set(FUNCTIONS)
    assert set(FUNCTIONS) == set(SINGLE) == set(DOUBLE)
    assert set(MADE) == set(BOUNDS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bounds_are_those_of_the_tests(name: str) -> None:
    single, bound, _, double, wide, _ = FUNCTIONS[name]
    assert (float(bound), float(wide)) == (SINGLE[name], DOUBLE[name])
    assert float(single) <= float(bound)
    assert float(double) <= float(wide)


@pytest.mark.parametrize("name", MADE)
def test_bounds_of_what_is_made_of_operations(name: str) -> None:
    single, bound, double, wide = map(float, MADE[name])
    assert {"f32": bound, "f64": wide} == BOUNDS[name]
    assert single <= bound
    assert double <= wide
