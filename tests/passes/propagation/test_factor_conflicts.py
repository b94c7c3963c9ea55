"""The axes that one operation propagates along its factors if tensors disagree."""

import pytest

from tests.passes.propagation.propagation_result import types_of_operation

VECTOR = "f32[16]"


@pytest.mark.parametrize(
    ("shardings", "agreed"),
    [
        (["x", "x"], "x"),
        (["x", "y"], ""),
        (["(x, y)", "(x, y)"], "(x, y)"),
        (["x", "(x, y)"], "(x, y)"),
        (["(x, y)", "x"], "(x, y)"),
        (["(x, y)", "(x, z)"], "x"),
        # A shorter list of axes follows a conflict, or precedes it.
        (["(x, y)", "(x, z)", "(x, y)"], "x"),
        (["x", "(x, y)", "(x, z)"], "x"),
        (["(x, y)", "(x, z)", "z"], ""),
        # A part of an axis agrees with the axis only if no other axis follows it.
        (["z:(1)2", "z"], "z"),
        (["z", "z:(1)2"], "z"),
        (["z", "(z:(1)2, y)"], "z:(1)2"),
        (["(z:(1)2, y)", "z"], "z:(1)2"),
        (["(x, z:(1)2)", "(x, z, y)"], "(x, z, y)"),
        # After a conflict the list does not grow again.
        (["(z:(1)2, y)", "(z:(1)2, x)", "z"], "z:(1)2"),
        (["(z:(1)2, y)", "(z:(1)2, x)", "(z, y)"], "z:(1)2"),
    ],
)
def test_an_open_tensor_takes_the_axes_that_the_others_agree_on(
    shardings: list[str], agreed: str
) -> None:
    operands = [f"f32[16@{sharding}?]" for sharding in shardings]
    rule = f"({', '.join('[i]' for _ in operands)}) -> ([i]) {{i=16}}"
    *_, result = types_of_operation(rule, operands, VECTOR, level="basic", keep_open=True)
    assert result == (f"f32[16@{agreed}?]" if agreed else VECTOR)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        # A tensor keeps the axes that it has, also if its dimension is closed.
        ("f32[16@(x, y)?]", "f32[16@(x, y)]", "f32[16@(x, y)?]"),
        ("f32[16@(x, y)?]", "f32[16@x]", "f32[16@x?]"),
        ("f32[16@(x, y)?]", "f32[16@-]", VECTOR),
        ("f32[16@-]", "f32[16@(x, y)?]", VECTOR),
        ("f32[16@z?]", "f32[16@z:(1)2]", "f32[16@z:(1)2?]"),
        ("f32[16@z?]", "f32[16@z:(1)2?]", "f32[16@z?]"),
        # It takes no axes over which it is replicated or unreduced, and other tensors none behind.
        ("f32[16@(x, y)?]", "f32[16] replicated(x)", VECTOR),
        ("f32[16@(x, y)?]", "f32[16] replicated(y)", "f32[16@x?]"),
        ("f32[16@(x, y)?]", "f32[16] unreduced(x)", VECTOR),
        ("f32[16@(x, y)?]", "f32[16] unreduced(y)", "f32[16@x?]"),
        ("f32[16@(x, y)?]", "f32[16] replicated(x) unreduced(y)", VECTOR),
        ("f32[16@z?]", "f32[16] replicated(z:(2)2) unreduced(y)", "f32[16@z:(1)2?]"),
    ],
)
def test_basic_propagation_ends_at_the_first_axis_that_one_tensor_does_not_take(
    first: str, second: str, result: str
) -> None:
    rule = "([i], [i]) -> ([i]) {i=16}"
    types = types_of_operation(rule, [first, second], VECTOR, level="basic", keep_open=True)
    assert types[2] == result


@pytest.mark.parametrize(
    ("operands", "factors", "result"),
    [
        (["f32[16@x?]", "f32[16, 16@y]"], "i, j", "f32[16@x?]"),
        (["f32[16@x?]", "f32[16, 16@x]"], "i, j", VECTOR),
        (["f32[16@x?]", "f32[16, 16@x] replicated(z)"], "i, j", VECTOR),
        (["f32[16@(x, y)?]", "f32[16@x, 16@y]"], "i, j", "f32[16@x?]"),
        (["f32[16@z?]", "f32[16, 16@z:(2)2]"], "i, j", "f32[16@z:(1)2?]"),
        (["f32[16@x?]", "f32[16, 16@x, 16@y]"], "i, j, k", VECTOR),
        # The axis shards the dimension, but neither of its factors of sizes 3 and 4 evenly.
        (["f32[16@x?]", "f32[16, 12@x]"], "i, lm", VECTOR),
    ],
)
def test_basic_propagation_ends_where_an_axis_shards_another_dimension(
    operands: list[str], factors: str, result: str
) -> None:
    sizes = ", ".join(
        f"{name}={size}"
        for name, size in {"i": 16, "j": 16, "k": 16, "l": 3, "m": 4}.items()
        if name in factors
    )
    rule = f"([i], [{factors}]) -> ([i]) {{{sizes}}}"
    types = types_of_operation(rule, operands, VECTOR, level="basic", keep_open=True)
    assert types[2] == result
