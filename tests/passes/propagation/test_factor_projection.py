"""Dimensions of several factors: their axes are distributed to the factors, and merged again."""

import pytest

from tests.passes.propagation.propagation_result import types_by_name, types_of_operation


@pytest.mark.parametrize(
    ("rule", "operands", "result", "expected"),
    [
        # x shards the twelve rows, and neither of their factors of sizes 3 and 4: the other
        # dimension keeps them as they are.
        (
            "([ij, k]) -> ([i, j, k]) {i=3, j=4, k=8}",
            ["f32[12@x?, 8]"],
            "f32[3, 4, 8@y?]",
            ["f32[12@x?, 8@y?]", "f32[3, 4, 8@y?]"],
        ),
        # Their second factor takes no axes, so that no other tensor takes them.
        (
            "([ij], [i, j]) -> ([i, j]) {i=3, j=4}",
            ["f32[12@x?]", "f32[3, 4@y?]"],
            "f32[3, 4]",
            ["f32[12@x?]", "f32[3, 4@y?]", "f32[3, 4]"],
        ),
        # The first factor of six takes half of z, as its shards must be even; the second one none.
        (
            "([i, j]) -> ([ij]) {i=6, j=4}",
            ["f32[6@z?, 4]"],
            "f32[24]",
            ["f32[6@z?, 4]", "f32[24@z:(1)2?]"],
        ),
        (
            "([i, j]) -> ([ij]) {i=3, j=4}",
            ["f32[3@x?, 4]"],
            "f32[12]",
            ["f32[3@x?, 4]", "f32[12]"],
        ),
        # A dimension is closed for all of its factors.
        (
            "([i, j]) -> ([ij]) {i=2, j=4}",
            ["f32[2@x?, 4@y?]"],
            "f32[8@x]",
            ["f32[2@x?, 4@y?]", "f32[8@x]"],
        ),
        # A dimension without factors stays as it is.
        (
            "([i, _]) -> ([i]) {i=8}",
            ["f32[8, 4@x p1]"],
            "f32[8@y?]",
            ["f32[8@y?, 4@x p1]", "f32[8@y?]"],
        ),
    ],
)
def test_axes_are_distributed_to_factors_and_merged(
    rule: str, operands: list[str], result: str, expected: list[str]
) -> None:
    assert types_of_operation(rule, operands, result, level="basic", keep_open=True) == expected


def test_axes_of_size_1_shard_any_factor() -> None:
    """They are distributed like other axes if preparation does not remove them."""
    program = """\
mesh @m = [one=1, x=2]

func @f(
  %a: f32[12@(one, x)?],
) -> (f32[2, 6]) {
  %b = reshape(%a) : f32[2, 6]
  return %b
}
"""
    types = types_by_name(program, prepare=False, keep_open=True)
    assert types["b"] == "f32[2@(one, x)?, 6]"
