"""`fold-diagonals`: sums of masked diagonals as sums of slices."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.passes import Pipeline
from shardir.verify.verifier import verify
from tests.programs.near_misses import disagreements

BEFORE = """\
func @main(
  %x: f32[6, 9],
) -> (f32[]) {
  %0 = iota(dim=0) : i32[6, 9]
  %1 = iota(dim=1) : i32[6, 9]
  %2 = constant(value=-2) : i32[6, 9]
  %3 = add(%0, %2) : i32[6, 9]
  %4 = eq(%3, %1) : bool[6, 9]
  %5 = constant(value=0.0) : f32[6, 9]
  %6 = select(%4, %x, %5) : f32[6, 9]
  %7 = sum(%6, dims=[0, 1]) : f32[]
  return %7
}
"""
AFTER = """\
func @main(
  %x: f32[6, 9],
) -> (f32[]) {
  %8 = reshape(%x) : f32[54]
  %9 = slice(%8, starts=[18], strides=[10]) : f32[4]
  %7 = sum(%9, dims=[0]) : f32[]
  return %7
}
"""


def test_before_and_after() -> None:
    module = parse(BEFORE)
    made = Pipeline.parse("fold-diagonals,dce")(module)
    verify(made)
    assert str(made) == AFTER
    arguments = random_arguments(module, whole=True)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


STACKED = """\
func @main(%x: i8[2, 5, 4, 3]) -> (i32[2, 3]) {{
  %0 = iota(dim=1) : i32[5, 4]
  %1 = iota(dim=0) : i32[5, 4]
  %2 = constant(value={offset}) : i32[5, 4]
  %3 = {side}(%0, %2) : i32[5, 4]
  %4 = eq(%1, %3) : bool[5, 4]
  %5 = broadcast(%4, dims=[1, 2]) : bool[2, 5, 4, 3]
  %6 = convert(%x) : i32[2, 5, 4, 3]
  %7 = constant(value=0) : i32[2, 5, 4, 3]
  %8 = select(%5, %6, %7) : i32[2, 5, 4, 3]
  %9 = sum(%8, dims=[1, 2]) : i32[2, 3]
  return %9
}}
"""


@pytest.mark.parametrize("offset", [-3, -1, 0, 1, 3])
@pytest.mark.parametrize("side", ["add", "sub"])
def test_batches_of_matrices_of_narrow_dtypes(offset: int, side: str) -> None:
    module = parse(STACKED.format(offset=offset, side=side))
    made = Pipeline.parse("fold-diagonals,cse,dce")(module)
    verify(made)
    # Only the elements that are read are converted.
    names = [op.name for op in made.main.body.ops]
    assert names == ["reshape", "slice", "convert", "sum"]
    arguments = random_arguments(module, whole=True)
    for want, got in zip(run(module, arguments), run(made, arguments), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dims=[0, 1]) : f32[]", "dims=[1]) : f32[6]"),
        ("value=0.0", "value=1.0"),
        ("iota(dim=1)", "iota(dim=0)"),
        ("eq(", "le("),
        ("add(", "mul("),
        ("value=-2", "value=-6"),
    ],
)
def test_other_masks_are_not_changed(old: str, new: str) -> None:
    text = BEFORE.replace(old, new)
    if "f32[6]" in new:
        text = text.replace("-> (f32[])", "-> (f32[6])")
    module = parse(text)
    assert str(Pipeline.parse("fold-diagonals")(module)) == str(module)


def test_a_function_without_iotas_is_returned_as_it_is() -> None:
    module = parse("func @main(%x: f32[9]) -> (f32[9]) {\n  return %x\n}\n")
    assert Pipeline.parse("fold-diagonals")(module).main is module.main


@pytest.mark.parametrize("text", [BEFORE, STACKED.format(offset=-1, side="add")])
def test_programs_that_resemble_diagonals_keep_their_results(text: str) -> None:
    found = disagreements(parse(text), "fold-diagonals,dce")
    assert not found, found[0]


MASK, ZERO = "  %4 = eq(%3, %1) : bool[6, 9]\n", "  %5 = constant(value=0.0) : f32[6, 9]\n"


@pytest.mark.parametrize(
    ("param", "changes"),
    [
        # The sum is of a parameter, of another operation, or along dimensions that are apart.
        ("", [("sum(%6,", "sum(%x,")]),
        ("", [("select(%4, %x, %5)", "exp(%x)")]),
        # The other numbers are a parameter, or another operation than a constant.
        ("%zero: f32[6, 9]", [("%x, %5)", "%x, %zero)")]),
        ("", [("constant(value=0.0)", "iota(dim=0)")]),
        # The mask is a parameter, or spread from one.
        ("%mask: bool[6, 9]", [("select(%4", "select(%mask")]),
        ("%mask: bool[6]", [(MASK, "  %4 = broadcast(%mask, dims=[0]) : bool[6, 9]\n")]),
        ("%mask: bool[6, 9]", [(MASK, "  %4 = broadcast(%mask, dims=[0, 1]) : bool[6, 9]\n")]),
        # A side of the comparison is a parameter, or shifted by one, or by another operation.
        ("%row: i32[6, 9]", [("eq(%3,", "eq(%row,")]),
        ("%row: i32[6, 9]", [("eq(%3, %1)", "eq(%1, %row)")]),
        ("%row: i32[6, 9]", [("add(%0, %2)", "add(%0, %row)")]),
        ("%row: i32[6, 9]", [("add(%0, %2)", "add(%row, %2)")]),
        ("", [("constant(value=-2)", "iota(dim=0)")]),
    ],
)
def test_other_operations_stay(param: str, changes: list[tuple[str, str]]) -> None:
    text = BEFORE.replace("f32[6, 9],\n", f"f32[6, 9],\n  {param},\n" if param else "f32[6, 9],\n")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = parse(text)
    verify(module)
    assert str(Pipeline.parse("fold-diagonals")(module)) == str(module)


@pytest.mark.parametrize("dtype", ["i8", "f32"])
def test_positions_of_other_types_stay(dtype: str) -> None:
    """Positions in 8 bits repeat after 256 rows."""
    module = parse(BEFORE.replace("i32", dtype))
    verify(module)
    assert str(Pipeline.parse("fold-diagonals")(module)) == str(module)


def test_dimensions_that_are_apart_stay() -> None:
    module = parse("""\
func @main(%x: f32[6, 2, 9]) -> (f32[2]) {
  %0 = iota(dim=0) : i32[6, 2, 9]
  %1 = iota(dim=2) : i32[6, 2, 9]
  %2 = eq(%0, %1) : bool[6, 2, 9]
  %3 = constant(value=0.0) : f32[6, 2, 9]
  %4 = select(%2, %x, %3) : f32[6, 2, 9]
  %5 = sum(%4, dims=[0, 2]) : f32[2]
  return %5
}
""")
    verify(module)
    assert str(Pipeline.parse("fold-diagonals")(module)) == str(module)


def test_other_operations_than_conversions_are_kept() -> None:
    text = BEFORE.replace("  %6 = ", "  %y = exp(%x) : f32[6, 9]\n  %6 = ")
    module = parse(text.replace("%4, %x,", "%4, %y,"))
    made = Pipeline.parse("fold-diagonals,dce")(module)
    assert [op.name for op in made.main.body.ops] == ["exp", "reshape", "slice", "sum"]
