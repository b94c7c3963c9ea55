"""The collectives of one reshard in the order of OpenXLA Shardy."""

import pytest

from shardir.passes.resharding.greedy import greedy_collectives
from shardir.text.parser import parse


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("16@x, 16]", "16@x, 16]", []),
        ("16@y, 16]", "16, 16]", ["all-gather y"]),
        ("16@x, 16]", "16, 16@x]", ["all-to-all x"]),
        ("16@(x, y), 16]", "16@y, 16@x]", ["collective-permute", "all-to-all x"]),
        # A reduction is combined with a slice along all of its axes, of which a part may remain.
        ("16, 16] unreduced(x)", "16, 16]", ["all-reduce x"]),
        ("16, 16] unreduced(x)", "16@x, 16]", ["reduce-scatter x"]),
        ("16, 16] unreduced(x, y)", "16@x, 16@y]", ["reduce-scatter x y"]),
        ("16, 16] unreduced(x)", "16@(x, y), 16]", ["reduce-scatter x", "all-slice y"]),
        ("16, 16] unreduced(x)", "16@y, 16]", ["all-reduce x", "all-slice y"]),
        ("16, 16] unreduced(x, y)", "16@x, 16]", ["all-reduce x y", "all-slice x"]),
        ("16@y, 16] unreduced(x)", "16, 16@y]", ["all-reduce x", "all-to-all y"]),
        # Axes that remain unreduced, by the same reduction, need no collective.
        ("16, 16] unreduced(x)", "16, 16] unreduced(x)", []),
        ("16, 16] unreduced(x, y)", "16, 16] unreduced(x)", ["all-reduce y"]),
        ("16, 16] unreduced[max](x)", "16, 16] unreduced(x)", ["all-reduce x"]),
    ],
)
def test_the_collectives_of_a_reshard(source: str, target: str, expected: list[str]) -> None:
    module = parse(f"""\
mesh @m = [x=2, y=4]

func @f(%a: f32[{source}, %b: f32[{target}) -> (f32[16, 16]) {{
  return %a
}}
""")
    one, other = (param.sharding for param in module.main.body.params)
    assert one is not None
    # A parameter without axes states no sharding.
    goal = one.fully_replicated("m", 2) if other is None else other.close()
    found = [
        " ".join([each.kind.value, *(axis.name for axes in each.axes for axis in axes)])
        for each in greedy_collectives(one.close(), goal, (16, 16))
    ]
    assert found == expected
