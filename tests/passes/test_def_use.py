"""Definitions and uses of values, and how often they are computed."""

import pytest

from shardir.passes.def_use import ASSUMED_WHILE_ITERATIONS, analyze_def_use
from shardir.text.parser import parse

WHILE = """\
  %y = while(%x) : f32[] {
    (%c: f32[]) =>
    %more = lt(%c, %x) : bool[]
    yield %more
  } {
    (%d: f32[]) =>
    %inner = neg(%d) : f32[]
    yield %inner
  }
"""
SCAN = """\
  %y = scan(%x, carries=1, length={length}) : f32[] {{
    (%d: f32[]) =>
    %inner = neg(%d) : f32[]
    yield %inner
  }}
"""


@pytest.mark.parametrize(
    ("loop", "count"),
    [
        (WHILE, ASSUMED_WHILE_ITERATIONS),
        (SCAN.format(length=3), 3),
        (SCAN.format(length=0), 1),
    ],
)
def test_values_in_a_loop_are_computed_in_each_iteration(loop: str, count: int) -> None:
    main = parse(f"func @f(%x: f32[]) -> (f32[]) {{\n{loop}  return %y\n}}\n").main
    times = {value.name: number for value, number in analyze_def_use(main).times.items()}
    assert (times["x"], times["y"], times["inner"]) == (1, 1, count)
