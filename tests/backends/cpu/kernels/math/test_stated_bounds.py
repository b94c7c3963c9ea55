"""docs/numerics.md states the bounds that the tests assert, for every elementwise operation."""

from pathlib import Path

import pytest

from shardir.ir.operation import OPS
from tests.backends.cpu.kernels.math import test_basic_rules
from tests.backends.cpu.kernels.math.accuracy import F32_BOUNDS_ULP, F64_BOUNDS_ULP
from tests.frontend.scipy.accuracy import BOUNDS

PAGE = Path(__file__).parents[5] / "docs/numerics.md"
EXACT_OPERATIONS = {
    *test_basic_rules.UNARY_DTYPES,
    *test_basic_rules.BINARY_DTYPES,
    "select",
    "clamp",
    "convert",
}
"""Operations with exact results, which have no stated bound."""
RANDOM_OPERATIONS = {"random_hash", "random_fold_in"}
ANNOTATIONS = {
    "checkpoint-name",
    "pipeline-stage",
    "propagation_barrier",
    "reshard",
    "sharding_constraint",
    "vary",
}
"""Annotations, which do not change their operand."""


def page_table(first: str) -> dict[str, list[str]]:
    """Return the rows of the page's table with this first heading, by their first cell."""
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


FUNCTIONS = page_table("function")
COMPOSITE_FUNCTIONS = page_table("function of `scipy.special`")


def test_every_elementwise_operation_is_exact_or_has_a_bound() -> None:
    elementwise = {name for name, spec in OPS.items() if spec.elementwise}
    assert elementwise == EXACT_OPERATIONS | RANDOM_OPERATIONS | ANNOTATIONS | set(FUNCTIONS)
    assert not (RANDOM_OPERATIONS | ANNOTATIONS) & set(FUNCTIONS)
    assert set(FUNCTIONS) == set(F32_BOUNDS_ULP) == set(F64_BOUNDS_ULP)
    assert set(COMPOSITE_FUNCTIONS) == set(BOUNDS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_stated_bounds_equal_those_of_the_tests(name: str) -> None:
    single, bound, _, double, wide, _ = FUNCTIONS[name]
    assert (float(bound), float(wide)) == (F32_BOUNDS_ULP[name], F64_BOUNDS_ULP[name])
    assert float(single) <= float(bound)
    assert float(double) <= float(wide)


@pytest.mark.parametrize("name", COMPOSITE_FUNCTIONS)
def test_stated_bounds_of_composite_functions_equal_those_of_the_tests(name: str) -> None:
    single, bound, double, wide = map(float, COMPOSITE_FUNCTIONS[name])
    assert {"f32": bound, "f64": wide} == BOUNDS[name]
    assert single <= bound
    assert double <= wide
