"""Results have the dtypes of JAX for operands of every dtype, with `enable_x64` and without.

The expressions are in `tests.dtype_table`. `tests/data/dtype_differences.json` has the rows with
differences, which `docs/numerics.md` explains. Each test evaluates each expression for some of the
columns.
"""

import importlib.util
import json

import pytest

from shardir.frontend.config import enable_x64
from tests.dtype_table import FILE, WEAK, Library, columns, needs_arrays

TABLE: dict[str, dict[str, str]] = json.loads(FILE.read_text("utf-8"))
DIFFERENCES: dict[str, dict[str, str]] = json.loads(
    FILE.with_name("dtype_differences.json").read_text("utf-8")
)
PARTS = 4


def sample(mode: str, number: int) -> list[int]:
    """Return the tested columns of an expression.

    They are one that changes between expressions, in the mode x32 one of weakly typed arrays, and
    in the mode x64 i32, for which the modes differ.
    """
    names = [name for name in columns(mode) if name not in WEAK]
    if mode == "x64":
        return sorted({number * 7 % len(names), names.index("i32")})
    return [number * 5 % len(names), len(names) + number % len(WEAK)]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("mode", ["x32", "x64"])
def test_results_have_the_dtypes_of_jax(mode: str, part: int) -> None:
    library, names, wrong = Library("shardir"), columns(mode), []
    with enable_x64(mode == "x64"):
        for number, (expression, row) in enumerate(TABLE[mode].items()):
            if number % PARTS != part:
                continue
            expected = row.split()
            allowed = DIFFERENCES[mode].get(expression, row).split()
            for i in sample(mode, number):
                if expected[i] in ("-", "."):
                    continue
                found = library.types(expression, names[i])
                if found not in (expected[i], allowed[i]):
                    wrong.append((expression, names[i], expected[i], found))
    assert not wrong


def test_listed_differences_still_differ() -> None:
    for mode, rows in DIFFERENCES.items():
        for expression, row in rows.items():
            assert row != TABLE[mode][expression], expression


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_the_table_has_the_dtypes_of_jax() -> None:
    library = Library("jax")
    for mode in ("x32", "x64"):
        names = columns(mode)
        with library.top.enable_x64(mode == "x64"):
            for number, (expression, row) in enumerate(TABLE[mode].items()):
                column = number % len(names)
                if number % 16 or row.split()[column] == ".":
                    continue
                found = library.types(expression, names[column])
                assert found == row.split()[column], (expression, names[column])


def test_columns_of_python_numbers_skip_expressions_with_arrays() -> None:
    assert needs_arrays("snp.mean(m, 0)")
    assert needs_arrays("t + 1")
    assert not needs_arrays("snp.minimum(x, x)")
