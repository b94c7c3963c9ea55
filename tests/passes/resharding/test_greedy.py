"""The collectives of one reshard in the order of OpenXLA Shardy."""

import pytest

from shardir.passes.resharding.greedy import greedy_collectives
from shardir.text.parser import parse
from tests.passes.resharding.factor_rules import format_axes, shardings


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


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # All axes of the source remain, and one of the target waits for its place.
        (
            "z y",
            "y zu",
            [
                "all-to-all - yz",
                "all-slice u:(3)2 yzu:(1)3",
                "collective-permute y:(1)2 zuy:(2)2",
                "all-to-all y zu",
            ],
        ),
        # The parts of the axis are not parts of one split.
        ("u:(2)3 -", "u:(1)3 -", ["collective-permute u:(1)3 -"]),
        # A dimension is sliced along axes that an all-to-all moves away together with its own.
        ("zy -", "- wyxu", ["all-slice zyxu w", "all-to-all z wyxu", "all-gather - wyxu"]),
        # Not so: the target has axes there, or has none that follow, or they are in use, the
        # dimension of the all-to-all has axes, more axes would move, or the size does not divide.
        (
            "y -",
            "u yx",
            ["all-slice yu:(1)3 xu:(3)2", "collective-permute ux y", "all-to-all u yx"],
        ),
        ("zx -", "- x", ["all-to-all z x", "all-gather - x"]),
        ("u w", "wx -", ["collective-permute wx u:(1)3", "all-gather wx -"]),
        (
            "y xz -",
            "- u yz",
            [
                "all-slice y xz u",
                "collective-permute y u xz",
                "all-to-all - u xzy",
                "collective-permute - u yzx",
                "all-gather - u yz",
            ],
        ),
        (
            "- zyx",
            "xwy -",
            [
                "all-slice w zyx",
                "collective-permute w zxy",
                "all-to-all wxy z",
                "all-gather wxy -",
                "collective-permute xwy -",
            ],
        ),
        (
            "- xy:(1)2 u",
            "yu:(1)2 - -",
            [
                "all-slice - xy u",
                "collective-permute - yu:(1)2 xu:(2)3",
                "all-to-all yu:(1)2 - xu:(2)3",
                "all-gather yu:(1)2 - -",
            ],
        ),
        (
            "- wy:(2)2",
            "yuz -",
            [
                "all-slice y:(1)2uz wy:(2)2",
                "collective-permute ywz u",
                "all-to-all ywzu -",
                "collective-permute yuzw -",
                "all-gather yuz -",
            ],
        ),
        # Parts of axes fit if their sizes divide those of the parts that they replace.
        ("u", "w", ["collective-permute wu:(3)2", "all-gather w"]),
        ("uz", "y", ["all-slice uzy:(1)2", "collective-permute yu:(1)3z", "all-gather y"]),
        ("uxw", "y", ["all-gather -", "all-slice y"]),
        (
            "w xu",
            "x w",
            [
                "all-to-all - xuw",
                "collective-permute - wu:(3)2u:(1)3x",
                "all-to-all x wu:(3)2u:(1)3",
                "all-gather x w",
            ],
        ),
        (
            "w x",
            "- yw",
            [
                "collective-permute w y:(1)2",
                "all-to-all - y:(1)2w",
                "all-slice - y:(1)2wy:(2)2",
                "collective-permute - yw",
            ],
        ),
        (
            "- y x",
            "xw - y",
            [
                "all-slice w y x",
                "collective-permute w xy:(2)2 y:(1)2",
                "all-to-all w x y",
                "all-to-all wx - y",
                "collective-permute xw - y",
            ],
        ),
        ("uy", "w", ["collective-permute wu:(3)2y", "all-gather w"]),
        (
            "u z x",
            "z y ux",
            [
                "all-slice u zy x",
                "collective-permute zx yu:(2)3 u:(1)2",
                "all-to-all zx y u",
                "all-to-all z y ux",
            ],
        ),
        ("zxy", "u", ["collective-permute uy", "all-gather u"]),
        # The order of the axes that move to one dimension decides.
        ("- x", "xw -", ["all-slice - xw", "all-to-all xw -"]),
        (
            "yz wu",
            "uw -",
            [
                "collective-permute uy:(1)2 y:(2)2zw",
                "all-to-all uy:(1)2w y:(2)2z",
                "all-gather uy:(1)2w -",
                "collective-permute uwy:(1)2 -",
                "all-gather uw -",
            ],
        ),
    ],
)
def test_the_shardings_after_the_collectives(source: str, target: str, expected: list[str]) -> None:
    one, other = shardings([source, target])
    collectives = greedy_collectives(one, other, (1152,) * len(one.dims))
    assert collectives[-1].sharding == other
    assert [f"{each.kind.value} {format_axes(each.sharding.axes)}" for each in collectives] == (
        expected
    )


def test_another_order_of_devices_needs_a_permutation() -> None:
    (one,) = shardings(["x -"])
    (found,) = greedy_collectives(one, one, (1152, 1152), reordered=True)
    assert found.kind.value == "collective-permute"
    assert found.sharding == one
