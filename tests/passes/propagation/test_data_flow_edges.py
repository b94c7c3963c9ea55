"""Edges at calls become constraints if their sides have different shardings."""

import pytest

from shardir.passes.propagation.data_flow_edges import remove_data_flow_edges
from shardir.text.parser import parse


@pytest.mark.parametrize(
    ("source", "target", "is_removed", "is_removed_if_exact"),
    [
        ("f32[8@x]", "f32[8@x]", True, True),
        ("f32[8@x]", "f32[8@y]", False, False),
        ("f32[8@x?]", "f32[8@x]", True, False),
        ("f32[8]", "f32[8]", True, True),
        ("f32[8]", "f32[8@x]", False, False),
        ("f32[8@x]", "f32[8]", False, False),
    ],
)
def test_an_edge_between_equal_shardings_is_removed(
    source: str, target: str, is_removed: bool, is_removed_if_exact: bool
) -> None:
    """Open and closed dimensions differ only in an exact comparison."""
    module = parse(f"""\
mesh @m = [x=2, y=2]

func @f(%a: {source}) -> (f32[8]) {{
  %b = data_flow_edge(%a) : {target}
  %c = neg(%b) : f32[8]
  return %c
}}
""")
    for exact, expected in ((False, is_removed), (True, is_removed_if_exact)):
        names = [op.name for op in remove_data_flow_edges(module.main, exact=exact).body.ops]
        assert names == (["neg"] if expected else ["sharding_constraint", "neg"])
