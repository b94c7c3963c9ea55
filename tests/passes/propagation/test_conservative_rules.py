"""Factor rules of conservative propagation."""

import pytest

from shardir.passes import Propagate
from shardir.passes.propagation.conservative_rules import conservative_rule
from shardir.text.parser import parse

CONVOLUTION = (
    "convolution(%x, %w, strides=[1], padding=[[0, 0]], lhs_dilation=[1], rhs_dilation=[1], "
    'dims="0fb,o0i->b0f", groups=1, batch_groups=2) : f32[2, 8, 32]'
)
STATED = "([i, j]) -> ([i, j]) {i=32, j=4} need-replication={i} permutation={j}"


def in_text(operation: str, attributes: str = "") -> str:
    """Return an operation of StableHLO that this IR does not contain."""
    return (
        f'opaque(%x, operation="stablehlo.{operation}", head="", attributes="{attributes}", '
        f'types="", rule="{STATED}") : f32[32, 4]'
    )


@pytest.mark.parametrize(
    ("params", "operation", "expected"),
    [
        (
            "%x: f32[4, 3], %y: f32[4, 5]",
            "concatenate(%x, %y, dim=1) : f32[4, 8]",
            "([i, j], [i, k]) -> ([i, l]) {i=4, j=1, k=1, l=1}",
        ),
        (
            "%x: f32[8, 8, 4], %w: f32[32, 1, 8]",
            CONVOLUTION,
            "([m, k, ij], [il, n, k]) -> ([j, o, il]) "
            "{i=2, j=2, k=8, l=16, m=1, n=1, o=1} reduction={k}",
        ),
        (
            "%x: f32[32, 4]",
            "slice(%x, starts=[0, 1], strides=[1, 1]) : f32[32, 1]",
            "([i, j]) -> ([i, j]) {i=32, j=4} permutation={j} blocked={j}",
        ),
        (
            "%x: f32[32, 4]",
            "reverse(%x, dims=[1]) : f32[32, 4]",
            "([i, j]) -> ([i, j]) {i=32, j=4} permutation={j}",
        ),
        (
            "%x: f32[4, 8], %y: f32[4, 1]",
            "select_and_scatter(%x, %y, op=max, window=[1, 8], strides=[1, 8], "
            "padding=[[0, 0], [0, 0]], base_dilation=[1, 1], window_dilation=[1, 1]) : f32[4, 8]",
            "([i, k], [i, j]) -> ([i, k]) {i=4, j=1, k=8} "
            "need-replication={j} permutation={k} blocked={j, k}",
        ),
        ("%x: f32[32, 4]", in_text("slice"), STATED),
        ("%x: f32[32, 4]", in_text("reduce_window"), f"{STATED} blocked={{j}}"),
        ("%x: f32[32, 4]", in_text("select_and_scatter"), f"{STATED} blocked={{i, j}}"),
        ("%x: f32[32, 4]", in_text("concatenate"), "([i, j]) -> ([k, l]) {i=1, j=1, k=1, l=1}"),
        # Its rule is stated by the user.
        ("%x: f32[32, 4]", in_text("reduce_window", "sdy.sharding_rule = r"), STATED),
    ],
)
def test_rules(params: str, operation: str, expected: str) -> None:
    result = operation.rpartition(" : ")[2]
    module = parse(f"func @main({params}) -> ({result}) {{\n  %r = {operation}\n  return %r\n}}\n")
    (op,) = module.main.body.ops
    rule = op.factors()
    assert rule is not None
    assert str(conservative_rule(op, rule)) == expected


def test_registered_rules_do_not_change() -> None:
    """The rule of another operation stands for one that a user registered."""
    module = parse("""\
func @main(%x: f32[8]) -> (f32[8], f32[8]) {
  %r = reverse(%x, dims=[0]) : f32[8]
  %s = slice(%x, starts=[0], strides=[1]) : f32[8]
  return %r, %s
}
""")
    reverse, whole = module.main.body.ops
    stated = reverse.factors()
    assert stated is not None
    assert conservative_rule(whole, stated) == stated


def test_the_size_of_a_window_does_not_decide_which_factor_propagates() -> None:
    """The operand is sharded along the contracted factor, as if its window had the size 1."""
    module = parse(f"""\
mesh @m = [x=4, y=4]

func @main(%x: f32[8, 8, 4], %w: f32[32, 1, 8@x?]) -> (f32[2, 8, 32]) {{
  %r = {CONVOLUTION.replace("f32[2, 8, 32]", "f32[2@x?, 8@-, 32]")}
  return %r
}}
""")
    done = Propagate(level="aggressive", keep_open=True, conservative=True)(module)
    assert "%x: f32[8, 8@x?, 4]" in str(done)


def test_parts_of_axes_propagate_through_barriers() -> None:
    module = parse("""\
mesh @m = [x=2, y=4]

func @main(%x: f32[8, 4@y:(2)2?]) -> (f32[8, 4], f32[8, 4]) {
  %b = propagation_barrier(%x, direction=forward) : f32[8, 4]
  %n = neg(%x) : f32[8, 4]
  return %b, %n
}
""")
    done = Propagate(level="basic", keep_open=True, conservative=True)(module)
    assert str(done.main.result_shardings[0]) != str(done.main.result_shardings[1])
    assert "%b = propagation_barrier(%x, direction=forward) : f32[8, 4@y:(2)2?]" in str(done)
    assert "%n = neg(%x) : f32[8, 4]\n" in str(done)
