"""`fill-out-of-bounds`: fill values are written to the out-of-bounds rows only."""

import numpy as np
import pytest

from shardir import parse
from shardir.interpret.interpreter import run
from shardir.passes import Pipeline
from shardir.verify.verifier import verify

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


def test_short_rows_are_not_changed() -> None:
    module = parse(BEFORE.replace("32]", "8]"))
    assert str(Pipeline.parse("fill-out-of-bounds")(module)) == str(module)
