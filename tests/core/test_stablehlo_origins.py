"""Sharding origins in StableHLO text: read, checked, and printed again."""

import re

import pytest

from shardir.errors import ParseError
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read, read_described

ORIGINS = re.compile(
    r'sdy\.(?:\w*sharding_origins|sharding_origin_name) = (?:\[[^\]]*\]|\{[^}]*\}|"[^"]*")'
)

PROGRAM = """\
sdy.mesh @m = <["a"=2, "b"=2, "c"=8]>
func.func @main(%x: tensor<8x8xf32> {
    sdy.sharding = #sdy.sharding<@m, [{"a"}, {"c":(1)4}]>,
    sdy.sharding_origins = {a = "self", "c:(1)4" = "mc_0_input: 0"}}, %w: tensor<8x8xf32>)
    -> (tensor<8x8xf32> {sdy.sharding_origins = {a = "input: 0"}}) {
  %y = sdy.sharding_constraint %x <@m, [{"a"}, {?}]> {
    sdy.sharding_origin_name = "constraint_0", sdy.sharding_origins = {a = "self"}}
    : tensor<8x8xf32>
  %z = stablehlo.add %y, %w {
    sdy.sharding = #sdy.sharding_per_value<[<@m, [{"a"}, {}]>]>,
    sdy.sharding_origins = [{a = "constraint_0", b = "input: 1"}]} : tensor<8x8xf32>
  %t = sdy.manual_computation(%z) in_shardings=[<@m, [{"a"}, {}]>]
      out_shardings=[<@m, [{"a"}, {}]>] manual_axes={"a"} (%p: tensor<4x8xf32>) {
    %q = stablehlo.negate %p : tensor<4x8xf32>
    sdy.return %q : tensor<4x8xf32>
  } {sdy.block_arg_sharding_origins = [{a = "self"}],
     sdy.result_sharding_origins = [{a = "self"}], sdy.sharding_origin_name = "mc_0"}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %u = stablehlo.custom_call @foo(%t) {sdy.sharding_origins = [{}]}
      : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %u : tensor<8x8xf32>
}
"""


def test_origins_are_printed_again() -> None:
    described = read_described(PROGRAM)
    text = show(described.module, debug=described.debug)
    assert sorted(ORIGINS.findall(text)) == sorted(ORIGINS.findall(PROGRAM))
    assert len(ORIGINS.findall(text)) == 9
    again = read_described(text)
    assert show(again.module, debug=again.debug) == text
    assert not ORIGINS.findall(show(read(PROGRAM)))


def test_origins_remain_at_what_the_passes_keep() -> None:
    unused = "  %dead = stablehlo.negate %w : tensor<8x8xf32>\n  return %u"
    described = read_described(PROGRAM.replace("  return %u", unused))
    smaller = Pipeline.parse("dce")(described.module)
    text = show(smaller, debug=described.attributes_of(smaller))
    of_results = 'sdy.sharding_origins = {a = "input: 0"}'
    assert sorted([*ORIGINS.findall(text), of_results]) == sorted(ORIGINS.findall(PROGRAM))
    propagated = Pipeline.parse("propagate")(described.module)
    text = show(propagated, debug=described.attributes_of(propagated))
    assert not ORIGINS.findall(text)  # All values have other shardings.


@pytest.mark.parametrize(
    ("before", "after", "fault"),
    [
        ('{a = "input: 0"}', '{d = "input: 0"}', "mesh @m has no axis called 'd'; it has a, b, c"),
        ('"c:(1)4" = ', '"c:(3)4" = ', "axis 'c' of size 8 has no sub-axis (3)4"),
        ('{a = "input: 0"}', "{a = 3}", 'origins are written as {axis = "origin"}'),
        ('{a = "input: 0"}', "{a}", 'origins are written as {axis = "origin"}'),
        ('{a = "input: 0"}', '"a"', 'origins are written as {axis = "origin"}'),
        ("[{}]", "[{}, {}]", "these are origins of 2 values, not of 1"),
        ("[{}]", "{}", 'origins of several values are written as [{axis = "origin"}]'),
        ('"constraint_0", ', "3, ", "sdy.sharding_origin_name is a name in quotes"),
    ],
)
def test_wrong_origins_are_refused(before: str, after: str, fault: str) -> None:
    with pytest.raises(ParseError) as caught:
        read_described(PROGRAM.replace(before, after, 1))
    assert str(caught.value).startswith(fault)
