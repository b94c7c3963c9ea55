"""The nodes of the planning problem of a program, and the placements of a solution."""

from typing import Any

import pytest

from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.types import TensorType
from shardir.passes.planning.programs.placements import PARTIAL, UNSHARDED, Placement
from shardir.passes.planning.programs.strategy_problem import (
    StrategyProblem,
    _Source,
    _Use,
    build_strategy_problem,
)
from shardir.text.parser import parse

LINE = Mesh("mesh", (("x", 4),))
ROWS, COLUMNS, PARTIAL_SUM = (0,), (1,), (PARTIAL,)


@pytest.mark.parametrize(
    ("source", "needed", "placement"),
    [
        (ROWS, [], ROWS),
        (PARTIAL_SUM, [], None),
        (PARTIAL_SUM, [(PARTIAL_SUM,)], None),
        # The placement of a result is free: any of these suffices.
        (PARTIAL_SUM, [(ROWS, COLUMNS)], None),
        (PARTIAL_SUM, [(PARTIAL_SUM,), (ROWS, COLUMNS), (COLUMNS,), (ROWS,)], COLUMNS),
    ],
)
def test_a_partial_sum_has_the_placement_of_its_first_complete_use(
    source: Placement, needed: list[tuple[Placement, ...]], placement: Placement | None
) -> None:
    value = Value(TensorType((8, 8), "f32"), "v")
    uses = {value: [_Use(number, [each]) for number, each in enumerate(needed, 1)]}
    unused: Any = None
    problem = StrategyProblem(unused, {}, {value: _Source(0, [source])}, uses)
    expected = {} if placement is None else {value: placement}
    assert problem.place_values((0,) * (len(needed) + 1)) == expected


@pytest.mark.parametrize(
    ("count", "pads", "sharded"),
    [
        (None, False, (False, False)),
        (1, False, (False, True)),
        (2, False, (False, False)),
        (None, True, (True, True)),
        (1, True, (True, True)),
    ],
)
def test_only_arguments_need_even_shards(
    count: int | None, pads: bool, sharded: tuple[bool, bool]
) -> None:
    """The second parameter is an array that the function captures if there is one argument. Four
    devices do not divide six elements."""
    module = parse("""\
func @f(%x: f32[6], %w: f32[6]) -> (f32[6]) {
  %y = add(%x, %w) : f32[6]
  return %y
}
""")
    found = build_strategy_problem(module, LINE, {}, count=count, pads=pads)
    placements = [found._sources[value].placements for value in module.main.body.params]
    assert all((UNSHARDED,) in each for each in placements)
    assert tuple(ROWS in each for each in placements) == sharded


@pytest.mark.parametrize(
    ("loop", "nodes"),
    [
        # The loop returns `w` as it is, so that its body uses the value before the loop.
        (
            "%a, %b = scan(%x, %w, carries=2, length=5) : f32[8, 8], f32[8, 8] {\n"
            "    (%k: f32[8, 8], %v: f32[8, 8]) =>\n"
            '    %d = dot(%k, %v, dims="ik,kj->ij") : f32[8, 8]\n    yield %d, %v\n  }',
            # Two arguments, what the loop carries, the product, and two results.
            6,
        ),
        # The rows that the loop returns differ from `s`.
        (
            "%a, %b = scan(%x, %s, carries=1, length=5) : f32[8, 8], f32[5, 8, 8] {\n"
            "    (%k: f32[8, 8], %v: f32[8, 8]) =>\n"
            '    %d = dot(%k, %v, dims="ik,kj->ij") : f32[8, 8]\n    yield %d, %v\n  }',
            # The slices have a node of their own.
            7,
        ),
    ],
    ids=["carried without a change", "slices"],
)
def test_a_value_that_a_loop_does_not_change_has_one_placement(loop: str, nodes: int) -> None:
    argument, type = ("%w", "f32[8, 8]") if "%w" in loop else ("%s", "f32[5, 8, 8]")
    module = parse(
        f"func @f(%x: f32[8, 8], {argument}: {type}) -> (f32[8, 8]) {{\n  {loop}\n  return %a\n}}\n"
    )
    found = build_strategy_problem(module, LINE, {})
    carried = module.main.body.ops[0].blocks[0].params[1]
    assert len({source.node for source in found._sources.values()}) == nodes
    assert (carried in found._sources) is (nodes == 7)
