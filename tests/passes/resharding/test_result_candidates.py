"""The cost of the reshards of one operation, whose tensors have given shardings."""

import pytest

from shardir.passes.resharding.result_candidates import operation_reshard_cost
from shardir.text.parser import parse
from shardir.verify.verifier import verify

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
