"""Which operations `fuse` puts into one group, and which stay outside."""

import pytest

from shardir.passes.fusion.fuse import Fuse
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.fusion.test_fuse import after, inside, names

HEAD = """\
func @f(
  %x: f32[4, 8],
  %y: f32[4, 8],
  %k: f32[4, 4],
  %b: f32[8],
  %i: bool[],
) -> (TYPES) {
"""


def groups_of(lines: str, types: str, pass_: Fuse | None = None) -> list[str]:
    """Return the operations after the pass, those of a group joined by `+`."""
    module = after(parse(f"{HEAD.replace('TYPES', types)}{lines}}}\n"), pass_)
    found, number = [], 0
    for op in module.main.body.ops:
        if op.name == "fused":
            found.append("+".join(inside(module, number)))
            number += 1
        else:
            found.append(op.name)
    return found


@pytest.mark.parametrize(
    ("lines", "types", "expected"),
    [
        pytest.param(
            """\
  %a = exp(%x) : f32[4, 8]
  %r = reshape(%a) : f32[32]
  %z = neg(%r) : f32[32]
  return %z
""",
            "f32[32]",
            ["exp", "reshape", "neg"],
            id="a reshape that divides dimensions",
        ),
        pytest.param(
            """\
  %a = exp(%x) : f32[4, 8]
  %r = sin(%y) : f32[4, 8]
  %z = add(%a, %r) : f32[4, 8]
  return %z
""",
            "f32[4, 8]",
            ["exp+sin+add"],
            id="two groups become one",
        ),
        pytest.param(
            """\
  %a = exp(%x) : f32[4, 8]
  %n = neg(%a) : f32[4, 8]
  %w = broadcast(%n, dims=[1, 2]) : f32[3, 4, 8]
  %v = sin(%w) : f32[3, 4, 8]
  %z = cos(%v) : f32[3, 4, 8]
  return %z
""",
            "f32[3, 4, 8]",
            ["exp+neg", "broadcast+sin+cos"],
            id="loops of another shape",
        ),
        pytest.param(
            """\
  %s = sum(%x, dims=[0]) : f32[8]
  %t = sum(%s, dims=[0]) : f32[]
  return %t
""",
            "f32[]",
            ["sum", "sum"],
            id="a reduction of the loops that another one keeps",
        ),
        pytest.param(
            """\
  %a = exp(%x) : f32[4, 8]
  %s = sum(%a, dims=[1]) : f32[4]
  %w = broadcast(%s, dims=[0]) : f32[4, 3]
  %v = sin(%w) : f32[4, 3]
  %z = cos(%v) : f32[4, 3]
  return %z
""",
            "f32[4, 3]",
            ["exp+sum", "broadcast+sin+cos"],
            id="the result of a reduction along other loops",
        ),
        pytest.param(
            """\
  %a = exp(%k) : f32[4, 4]
  %s = sum(%a, dims=[1]) : f32[4]
  %w = broadcast(%s, dims=[1]) : f32[4, 4]
  %z = mul(%w, %a) : f32[4, 4]
  return %z
""",
            "f32[4, 4]",
            ["exp+sum", "broadcast+mul"],
            id="the result of a reduction along the reduced loop",
        ),
        pytest.param(
            """\
  %a = exp(%b) : f32[8]
  %e = neg(%x) : f32[4, 8]
  %s = sum(%e, dims=[0]) : f32[8]
  %z = add(%a, %s) : f32[8]
  %u = sin(%s) : f32[8]
  return %z, %u
""",
            "f32[8], f32[8]",
            ["neg+sum+sin", "exp+add"],
            id="a value of all loops and one of a reduction",
        ),
        pytest.param(
            """\
  %w = broadcast(%b, dims=[1]) : f32[4, 8]
  %a = exp(%w) : f32[4, 8]
  %v = broadcast(%b, dims=[1]) : f32[3, 8]
  %z = exp(%v) : f32[3, 8]
  return %a, %z
""",
            "f32[4, 8], f32[3, 8]",
            ["broadcast+exp", "broadcast+exp"],
            id="groups of other shapes with a common operand",
        ),
        pytest.param(
            """\
  %p = mul(%x, %y) : f32[4, 8]
  %q = add(%x, %y) : f32[4, 8]
  return %p, %q
""",
            "f32[4, 8], f32[4, 8]",
            ["mul+add"],
            id="groups with two common operands",
        ),
        pytest.param(
            """\
  %c = constant(value=1.0) : f32[0, 8]
  %a = exp(%c) : f32[0, 8]
  %z = neg(%a) : f32[0, 8]
  return %z
""",
            "f32[0, 8]",
            ["constant", "exp", "neg"],
            id="arrays without elements",
        ),
    ],
)
def test_groups(lines: str, types: str, expected: list[str]) -> None:
    assert groups_of(lines, types) == expected


def test_limits_of_groups_with_a_common_operand() -> None:
    lines = """\
  %p = mul(%x, %y) : f32[4, 8]
  %u = neg(%p) : f32[4, 8]
  %w = broadcast(%b, dims=[1]) : f32[4, 8]
  %q = add(%x, %w) : f32[4, 8]
  %v = sin(%q) : f32[4, 8]
  return %u, %v
"""
    types = "f32[4, 8], f32[4, 8]"
    apart = ["mul+neg", "broadcast+add+sin"]
    (together,) = groups_of(lines, types, Fuse(most_operands=3, most_ops=4))
    assert together == "mul+neg+broadcast+add+sin"
    assert groups_of(lines, types, Fuse(most_operands=2, most_ops=4)) == apart
    assert groups_of(lines, types, Fuse(most_operands=3, most_ops=3)) == apart


def test_a_group_of_one_element_states_its_reason() -> None:
    module = parse("""\
func @f(%x: f32[]) -> (f32[]) {
  %a = exp(%x) : f32[]
  %z = neg(%a) : f32[]
  return %z
}
""")
    (op,) = after(module).main.body.ops
    assert op.why == "exp, neg over one element"


SYNCHRONIZED = """\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
  %y: f32[4] of f32[8@x],
) -> (f32[4] of f32[4@-], f32[4] of f32[8@x]) {
  %a = exp(%x) : f32[4]
  %k = dot(%y, %y, dims="i,j->ij") : f32[4, 4]
  %n = dot(%k, %y, dims="ij,j->i") : f32[4]
  %w = dot(%a, %n, dims="i,i->i") : f32[4]
  %p = all-reduce(%w, axes=[x], op=add) : f32[4]
OTHER
  %z = add(%a, %q) : f32[4]
  return %p, %z
}
"""
REDUCED = "  %q = all-reduce(%y, axes=[x], op=add) : f32[4]"
NESTED = """\
  %q = scan(%y, carries=1, length=2) : f32[4] {
    (%d: f32[4]) =>
    %r = all-reduce(%d, axes=[x], op=add) : f32[4]
    yield %r
  }"""


@pytest.mark.parametrize("other", [REDUCED, NESTED])
def test_operations_between_devices_keep_their_order(other: str) -> None:
    """One group of %a and %z would need %q before %w."""
    module = parse(SYNCHRONIZED.replace("OTHER", other))
    made = Fuse()(module)
    verify(made)
    assert [op.results[0].name for op in made.main.body.ops] == [
        *("a", "k", "n", "w", "p", "q", "z"),
    ]


def test_the_end_of_a_collective_stays_between_others() -> None:
    module = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
  %y: f32[4] of f32[8@x],
) -> (f32[4] of f32[4@-], f32[4] of f32[8@x]) {
  %s = all-reduce-start(%y, axes=[x], op=add) : f32[4]
  %a = exp(%x) : f32[4]
  %k = dot(%y, %y, dims="i,j->ij") : f32[4, 4]
  %n = dot(%k, %y, dims="ij,j->i") : f32[4]
  %o = dot(%k, %n, dims="ij,j->i") : f32[4]
  %w = dot(%a, %o, dims="i,i->i") : f32[4]
  %p = all-reduce(%w, axes=[x], op=add) : f32[4]
  %q = done(%s) : f32[4]
  %z = add(%a, %q) : f32[4]
  return %p, %z
}
""")
    made = Fuse()(module)
    verify(made)
    assert made is module


def test_operations_with_effects_stay_though_nothing_uses_them() -> None:
    module = parse("""\
mesh @m = [x=2]

spmd func @f(
  %x: f32[4] of f32[8@x],
) -> (f32[4] of f32[8@x]) {
  %a = exp(%x) : f32[4]
  %z = neg(%a) : f32[4]
  %b = sin(%x) : f32[4]
  %g = cos(%b) : f32[4]
  %p = all-reduce(%g, axes=[x], op=add) : f32[4]
  callback(%z, function="f")
  %c = scan(%z, carries=1, length=2) : f32[4] {
    (%d: f32[4]) =>
    callback(%d, function="f")
    yield %d
  }
  %u = tanh(%z) : f32[4]
  return %z
}
""")
    made = Fuse()(module)
    verify(made)
    assert sorted(names(made)) == ["all-reduce", "callback", "fused", "scan"]
    assert Fuse()(made) is made


def test_operations_of_manual_computations_stay() -> None:
    module = parse("""\
mesh @m = [i=2]

func @f(
  %x: f32[4@i],
) -> (f32[4@i]) {
  %r = manual_computation(%x, axes=[i], in_axes=[[[i]]], out_axes=[[[i]]]) : f32[4] {
    (%p: f32[2]) =>
    %a = exp(%p) : f32[2]
    %y = neg(%a) : f32[2]
    yield %y
  }
  return %r
}
""")
    assert Fuse()(module) is module
