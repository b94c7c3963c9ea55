"""The cost of the reshards of one operation, whose tensors have given shardings."""

import pytest

from shardir.ir.module import Op
from shardir.ir.sharding import Sharding
from shardir.passes.resharding.result_candidates import (
    has_conflict,
    operation_reshard_cost,
    result_candidates,
)
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.resharding.factor_rules import format_axes

OPAQUE = 'opaque({}, operation="o", head="o({})", attributes="", types="")'


@pytest.mark.parametrize(
    ("op", "cost"),
    [
        ("constant(value=1.0) : f32[8@x]", (0, 0)),
        (OPAQUE.format("%a", "%") + " : f32[8@-]", (24, 1)),
        (OPAQUE.format("%a", "%") + " : f32[8@x]", (24, 1)),
        (OPAQUE.format("%b", "%") + " : f32[8@-] unreduced(x)", (192, 1)),
        ("max(%b, dims=[0]) : f32[8@-] unreduced[max](x)", (0, 0)),
        ("sum(%b, dims=[0]) : f32[8@-] unreduced(x)", (0, 0)),
    ],
)
def test_the_reshards_of_an_operation_cost(op: str, cost: tuple[int, int]) -> None:
    module = parse(f"""\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[8@x],
  %b: f32[8@x, 8@-],
) -> (f32[8]) {{
  %c = {op}
  return %c
}}
""")
    verify(module)
    (made,) = module.main.body.ops
    places = tuple(value.sharding for value in made.tensors if value.sharding)
    assert operation_reshard_cost(made, places) == cost


def sharded_operation(op: str) -> tuple[Op, tuple[Sharding, ...]]:
    """Return an operation, and the shardings of its operands and results."""
    module = parse(f"""\
mesh @m = [x=2, y=4]

func @f(
  %a: f32[8@x, 8@y],
  %b: f32[8@-, 8@y],
  %c: f32[6@-, 8@y],
  %u: f32[8@-, 1024@-],
  %w: f32[1024@x, 8@-],
) -> (f32[8@x, 8@y]) {{
  %r = {op}
  return %a
}}
""")
    (made,) = module.main.body.ops
    whole = (Sharding.fully_replicated("m", value.type.rank) for value in made.tensors)
    places = zip(made.tensors, whole, strict=True)
    return made, tuple((value.sharding or other).close() for value, other in places)


@pytest.mark.parametrize(
    ("op", "is_conflict"),
    [
        pytest.param("argmax(%a, dim=1) : i32[8@x]", False, id="no data moves"),
        pytest.param("argmax(%a, dim=1) : i32[8@-]", True, id="the result is gathered"),
        pytest.param(OPAQUE.format("%a", "%") + " : f32[8@-]", False, id="no factors"),
        pytest.param(
            'dot(%u, %w, dims="ik,kj->ij") : f32[8@-, 8@-]', False, id="a sum of local products"
        ),
        pytest.param(
            'dot(%b, %a, dims="ik,kj->ij") : f32[8@-, 8@y]', True, id="other axes of the sum"
        ),
    ],
)
def test_an_operation_is_in_conflict_if_data_moves(op: str, is_conflict: bool) -> None:
    assert has_conflict(*sharded_operation(op)) == is_conflict


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        pytest.param("neg(%b) : f32[8@-, 8@-]", ["- y", "y -"], id="moved axes"),
        pytest.param("neg(%c) : f32[6@-, 8@-]", ["- y"], id="a size that the axes do not divide"),
        pytest.param("roll(%b, shift=1, dim=0) : f32[8@-, 8@-]", ["- y"], id="exchanged rows"),
        pytest.param("sum(%b, dims=[0]) : f32[8@-]", ["y"], id="a sum"),
        pytest.param(OPAQUE.format("%a", "%") + " : f32[8@-]", [], id="no factors"),
    ],
)
def test_operands_suggest_shardings_of_the_result(op: str, expected: list[str]) -> None:
    made, places = sharded_operation(op)
    count = len(made.operands)
    found = result_candidates(made, places[:count], places[count])
    assert [format_axes(sharding.axes) for sharding in found] == expected
