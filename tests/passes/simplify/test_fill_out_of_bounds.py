"""`fill-out-of-bounds`: fill values are written to the out-of-bounds rows only."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.passes import Pipeline
from shardir.passes.simplify.fill_out_of_bounds import MAX_ROWS
from shardir.verify.verifier import verify
from tests.programs.near_misses import disagreements

BEFORE = """\
func @main(
  %x: f32[6, 32],
  %i: i32[5, 1],
  %found: bool[5],
) -> (f32[5, 32]) {
  %0 = gather(%x, %i, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[5, 32]
  %1 = broadcast(%found, dims=[0]) : bool[5, 32]
  %2 = constant(value=nan) : f32[5, 32]
  %3 = select(%1, %0, %2) : f32[5, 32]
  return %3
}
"""
AFTER = """\
func @main(
  %x: f32[6, 32],
  %i: i32[5, 1],
  %found: bool[5],
) -> (f32[5, 32]) {
  %0 = gather(%x, %i, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[5, 32]
  %2 = constant(value=nan) : f32[5, 32]
  %4 = iota(dim=0) : i32[5]
  %5 = constant(value=5) : i32[5]
  %6 = select(%found, %5, %4) : i32[5]
  %7 = reshape(%6) : i32[5, 1]
  %3 = scatter(%0, %7, %2, op="set", update_window_dims=[1], inserted_window_dims=[0], scatter_dims=[0]) : f32[5, 32]
  return %3
}
"""  # noqa: E501


def test_before_and_after() -> None:
    module = parse(BEFORE)
    made = Pipeline.parse("fill-out-of-bounds,dce")(module)
    verify(made)
    assert str(made) == AFTER


COLUMNS = """\
func @main(%x: f32[32, 6], %i: i32[5, 1], %found: bool[5]) -> (f32[32, 5]) {
  %0 = gather(%x, %i, offset_dims=[0], collapsed_dims=[1], start_index_map=[1]) : f32[32, 5]
  %1 = broadcast(%found, dims=[1]) : bool[32, 5]
  %2 = constant(value=-0.0) : f32[32, 5]
  %3 = select(%1, %0, %2) : f32[32, 5]
  return %3
}
"""


GRID = """\
func @main(%x: f32[32, 6], %i: i32[5, 4, 1], %found: bool[5, 4]) -> (f32[5, 32, 4]) {
  %0 = gather(%x, %i, offset_dims=[1], collapsed_dims=[1], start_index_map=[1]) : f32[5, 32, 4]
  %1 = broadcast(%found, dims=[0, 2]) : bool[5, 32, 4]
  %2 = constant(value=7.0) : f32[5, 32, 4]
  %3 = select(%1, %0, %2) : f32[5, 32, 4]
  return %3
}
"""


@pytest.mark.parametrize("text", [BEFORE, COLUMNS, GRID])
@pytest.mark.parametrize("found", [[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 1, 1, 0]])
def test_results_are_equal(text: str, found: list[int]) -> None:
    module = parse(text)
    made = Pipeline.parse("fill-out-of-bounds,dce")(module)
    assert "scatter" in str(made)
    params = module.functions[0].body.params
    x, i, flags = (np.zeros(param.type.shape, param.type.numpy) for param in params)
    x += np.random.default_rng(0).standard_normal(x.shape, np.float32)
    i += np.array([0, 5, 5, 2, 1]).reshape(5, *(1,) * (i.ndim - 1))
    flags += np.array(found, bool).reshape(5, *(1,) * (flags.ndim - 1))
    flags.reshape(-1)[:1] ^= True
    args = [x, i, flags]
    for want, got in zip(run(module, args), run(made, args), strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return %3", "%4 = add(%0, %3) : f32[5, 32]\n  return %4"),  # the value has another use
        ("%2 = constant(value=nan)", "%2 = neg(%0)"),  # a different fill value for each element
        ("select(%1, %0, %2)", "select(%1, %2, %0)"),  # the operands of the select are exchanged
    ],
)
def test_other_programs_are_not_changed(old: str, new: str) -> None:
    module = parse(BEFORE.replace(old, new))
    assert str(Pipeline.parse("fill-out-of-bounds")(module)) == str(module)


@pytest.mark.parametrize("text", [BEFORE, COLUMNS, GRID])
def test_programs_that_resemble_filled_gathers_keep_their_results(text: str) -> None:
    found = disagreements(parse(text), "fill-out-of-bounds,dce")
    assert not found, found[0]


def test_short_rows_are_not_changed() -> None:
    module = parse(BEFORE.replace("32]", "8]"))
    assert str(Pipeline.parse("fill-out-of-bounds")(module)) == str(module)


def test_a_function_without_gathers_is_returned_as_it_is() -> None:
    module = parse("func @main(%x: f32[9]) -> (f32[9]) {\n  return %x\n}\n")
    assert Pipeline.parse("fill-out-of-bounds")(module).main is module.main


MORE = "  %found: bool[5],\n"


@pytest.mark.parametrize(
    "changes",
    [
        # The mask is a parameter, or another operation than a broadcast.
        [(MORE, f"{MORE}  %mask: bool[5, 32],\n"), ("select(%1,", "select(%mask,")],
        [
            (MORE, f"{MORE}  %mask: bool[5, 32],\n"),
            ("  %3 =", "  %4 = not(%mask) : bool[5, 32]\n  %3 ="),
            ("select(%1,", "select(%4,"),
        ],
        # The rows are a parameter, or another operation than a gather.
        [(MORE, f"{MORE}  %rows: f32[5, 32],\n"), ("select(%1, %0,", "select(%1, %rows,")],
        [
            (MORE, f"{MORE}  %rows: f32[5, 32],\n"),
            ("  %3 =", "  %4 = exp(%rows) : f32[5, 32]\n  %3 ="),
            ("select(%1, %0,", "select(%1, %4,"),
        ],
        # The other numbers are a parameter, another operation, or not all the same.
        [(MORE, f"{MORE}  %rest: f32[5, 32],\n"), ("%0, %2)", "%0, %rest)")],
        [("constant(value=nan)", "iota(dim=0)")],
        # One flag is for all rows, as a dimension of size 1 or as a scalar.
        [("bool[5],", "bool[1],")],
        [("bool[5],", "bool[],"), ("dims=[0])", "dims=[])")],
    ],
)
def test_other_operations_stay(changes: list[tuple[str, str]]) -> None:
    text = BEFORE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    module = parse(text)
    verify(module)
    assert str(Pipeline.parse("fill-out-of-bounds")(module)) == str(module)


def test_numbers_that_differ_stay() -> None:
    text = """\
func @main(%x: f32[6, 32], %i: i32[1, 1], %found: bool[1]) -> (f32[1, 32]) {
  %0 = gather(%x, %i, offset_dims=[1], collapsed_dims=[0], start_index_map=[0]) : f32[1, 32]
  %1 = broadcast(%found, dims=[0]) : bool[1, 32]
  %2 = constant(value=dense(f32, NUMBERS)) : f32[1, 32]
  %3 = select(%1, %0, %2) : f32[1, 32]
  return %3
}
""".replace("NUMBERS", f"[[{', '.join(f'{i}.0' for i in range(32))}]]")
    module = parse(text)
    verify(module)
    assert str(Pipeline.parse("fill-out-of-bounds")(module)) == str(module)


@pytest.mark.parametrize(("rows", "name"), [(MAX_ROWS - 1, "scatter"), (MAX_ROWS, "select")])
def test_indices_of_rows_fit_into_i32(rows: int, name: str) -> None:
    module = parse(BEFORE.replace("[5", f"[{rows}"))
    made = Pipeline.parse("fill-out-of-bounds,dce")(module)
    assert made.main.body.ops[-1].name == name
