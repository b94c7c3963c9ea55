"""Cheap operations that `fuse` duplicates into the groups that use their results."""

from itertools import pairwise

import pytest

from shardir.ops.control_flow.fused import fused
from shardir.passes.fusion.fuse import Fuse
from shardir.text.parser import parse
from tests.passes.fusion.test_fuse import after

HEAD = """\
func @f(
  %x: f32[4, 8],
  %y: f32[4, 8],
  %v: f32[4, 8],
) -> (f32[4, 8]) {
"""
BETWEEN = """\
  %d = dot(%u, %y, dims="ij,kj->ik") : f32[4, 4]
  %e = dot(%d, %y, dims="ij,jk->ik") : f32[4, 8]
"""
"""Operations between two groups: the first computes %u, and the second uses %e."""


def last_group(first: str, last: str, returned: str = "", pass_: Fuse | None = None) -> str:
    """Return the operations and operands of the last group of a program, whose first group has
    the operations `first`."""
    head = HEAD.replace("-> (", "-> (f32[4, 8], ") if returned else HEAD
    module = after(parse(f"{head}{first}{BETWEEN}{last}  return {returned}%z\n}}\n"), pass_)
    op = next(op for op in reversed(module.main.body.ops) if op.spec is fused)
    operations = " ".join(inner.name for inner in op.blocks[0].ops)
    return f"{operations}: {', '.join(value.name for value in op.operands)}"


EXP = "  %u = exp(%a) : f32[4, 8]\n"
MUL = "  %q = mul(%e, %a) : f32[4, 8]\n  %z = sin(%q) : f32[4, 8]\n"
NEG = "  %a = neg(%x) : f32[4, 8]\n"


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        pytest.param(NEG + EXP, MUL, "neg mul sin: x, e", id="one tensor less is stored"),
        pytest.param(
            "  %a = mul(%x, %y) : f32[4, 8]\n" + EXP, MUL, "mul sin: e, a", id="no traffic is saved"
        ),
        pytest.param(
            NEG + "  %r = reshape(%a) : f32[4, 1, 8]\n"
            "  %g = exp(%r) : f32[4, 1, 8]\n"
            "  %u = reshape(%g) : f32[4, 8]\n",
            MUL,
            "neg mul sin: x, e",
            id="its own group uses the value with another shape",
        ),
        pytest.param(
            NEG + EXP,
            "  %r = reshape(%a) : f32[4, 1, 8]\n"
            "  %h = reshape(%e) : f32[4, 1, 8]\n"
            "  %t = mul(%h, %r) : f32[4, 1, 8]\n"
            "  %z = sum(%t, dims=[1]) : f32[4, 8]\n",
            "reshape reshape mul: e, a",
            id="another group uses the value with another shape",
        ),
        pytest.param(
            "  %c = constant(value=2.0) : f32[4, 8]\n  %a = mul(%x, %c) : f32[4, 8]\n" + EXP,
            MUL,
            "constant mul mul sin: x, e",
            id="constants are not read",
        ),
        pytest.param(
            "  %s = sum(%x, dims=[1]) : f32[4]\n"
            "  %c = constant(value=8.0) : f32[4]\n"
            "  %m = div(%s, %c) : f32[4]\n"
            "  %w = broadcast(%m, dims=[0]) : f32[4, 8]\n"
            "  %a = sub(%x, %w) : f32[4, 8]\n" + EXP,
            MUL,
            "broadcast sub mul sin: x, m, e",
            id="a reduced value is small",
        ),
        pytest.param(
            "  %t = tanh(%x) : f32[4, 8]\n  %a = neg(%t) : f32[4, 8]\n" + EXP,
            MUL,
            "mul sin: e, a",
            id="another value would be stored instead",
        ),
        pytest.param(
            "  %b = add(%x, %v) : f32[4, 8]\n"
            '  %k = dot(%b, %y, dims="ij,kj->ik") : f32[4, 4]\n'
            '  %l = dot(%k, %y, dims="ij,jk->ik") : f32[4, 8]\n'
            "  %a = neg(%l) : f32[4, 8]\n"
            "  %u = exp(%a) : f32[4, 8]\n",
            MUL,
            "neg mul sin: l, e",
            id="a value that no group computes",
        ),
    ],
)
def test_operations_of_the_last_group(first: str, last: str, expected: str) -> None:
    assert last_group(first, last) == expected


def test_a_value_that_is_stored_anyway_is_read() -> None:
    used = NEG + EXP.replace("%a", "%h")
    used = used.replace("  %u", '  %h = dot(%a, %y, dims="ij,ij->ij") : f32[4, 8]\n  %u')
    assert last_group(used, MUL) == "mul sin: e, a"
    first = NEG + "  %c = abs(%a) : f32[4, 8]\n  %u = exp(%c) : f32[4, 8]\n"
    last = MUL.replace("%a", "%c")
    assert last_group(first, last) == "neg abs mul sin: x, e"
    assert last_group(first, last, "%a, ") == "abs mul sin: a, e"


def test_values_of_another_group_are_read() -> None:
    """%b belongs to the group of %t, and %a to that of %u."""
    first = """\
  %b = mul(%x, %v) : f32[4, 8]
  %t = exp(%b) : f32[4, 8]
  %k = dot(%t, %y, dims="ij,kj->ik") : f32[4, 4]
  %l = dot(%k, %y, dims="ij,jk->ik") : f32[4, 8]
  %a = add(%l, %b) : f32[4, 8]
  %u = exp(%a) : f32[4, 8]
"""
    last = "  %q = mul(%e, %a) : f32[4, 8]\n  %z = add(%q, %l) : f32[4, 8]\n"
    assert last_group(first, last) == "add mul add: l, b, e"


def test_a_value_that_a_product_uses_is_read() -> None:
    first = NEG + EXP + '  %h = dot(%a, %y, dims="ij,kj->ik") : f32[4, 4]\n'
    last = '  %m = dot(%h, %y, dims="ij,jk->ik") : f32[4, 8]\n'
    last += "  %q = mul(%e, %a) : f32[4, 8]\n  %z = add(%q, %m) : f32[4, 8]\n"
    assert last_group(first, last) == "mul add: e, a, m"


def test_a_value_that_a_third_group_reads_is_stored_anyway() -> None:
    first = """\
  %t = tanh(%x) : f32[4, 8]
  %a = neg(%t) : f32[4, 8]
  %b = exp(%a) : f32[4, 8]
  %k = dot(%b, %y, dims="ij,kj->ik") : f32[4, 4]
  %l = dot(%k, %y, dims="ij,jk->ik") : f32[4, 8]
  %p = mul(%l, %a) : f32[4, 8]
  %u = sin(%p) : f32[4, 8]
"""
    last = "  %q = mul(%e, %t) : f32[4, 8]\n  %z = sin(%q) : f32[4, 8]\n"
    module = after(parse(f"{HEAD}{first}{BETWEEN}{last}  return %z\n}}\n"))
    _, second, _ = (op for op in module.main.body.ops if op.spec is fused)
    assert [value.name for value in second.operands] == ["t", "l"]


def test_a_reduced_loop_uses_the_value() -> None:
    module = parse("""\
func @f(%x: f32[4, 8], %v: f32[4]) -> (f32[4], f32[4]) {
  %a = neg(%v) : f32[4]
  %u = exp(%a) : f32[4]
  %d = dot(%u, %x, dims="i,ij->ij") : f32[4, 8]
  %t = exp(%d) : f32[4, 8]
  %s = sum(%t, dims=[1]) : f32[4]
  %z = mul(%s, %a) : f32[4]
  return %z, %u
}
""")
    *_, last = after(module).main.body.ops
    assert [value.name for value in last.operands] == ["d", "a"]


@pytest.mark.parametrize(("count", "expected"), [(16, "x, e"), (17, "e, a17")])
def test_the_number_of_duplicated_operations_is_limited(count: int, expected: str) -> None:
    names = ["x", *(f"a{i}" for i in range(1, count + 1))]
    chain = [f"  %{new} = neg(%{old}) : f32[4, 8]\n" for old, new in pairwise(names)]
    found = last_group(
        "".join(chain) + EXP.replace("%a", f"%a{count}"), MUL.replace("%a", f"%a{count}")
    )
    assert found.rpartition(": ")[2] == expected


def test_the_operands_of_a_group_are_limited() -> None:
    first = (
        "  %a = mul(%x, %y) : f32[4, 8]\n  %b = mul(%y, %v) : f32[4, 8]\n"
        "  %t = add(%a, %b) : f32[4, 8]\n  %u = exp(%t) : f32[4, 8]\n"
    )
    last = "  %g = mul(%e, %a) : f32[4, 8]\n  %z = mul(%g, %b) : f32[4, 8]\n"
    assert last_group(first, last, pass_=Fuse(4)) == "mul mul mul mul: x, y, v, e"
    assert last_group(first, last, pass_=Fuse(3)) == "mul mul: e, a, b"


def test_constants_do_not_count_as_operands() -> None:
    last = "  %c = constant(value=2.0) : f32[4, 8]\n  %g = mul(%e, %a) : f32[4, 8]\n"
    last += "  %z = mul(%g, %c) : f32[4, 8]\n"
    assert last_group(NEG + EXP, last, pass_=Fuse(2)) == "neg mul constant mul: x, e"


def test_a_program_with_an_operation_without_results() -> None:
    module = parse(f'{HEAD}{NEG}{EXP}{BETWEEN}  callback(%d, function="f")\n{MUL}  return %z\n}}\n')
    *_, last = Fuse()(module).main.body.ops
    assert [value.name for value in last.operands] == ["x", "e"]


def test_values_after_a_reduction_are_not_duplicated() -> None:
    module = after(
        parse(
            """\
func @f(
  %x: f32[4, 8],
  %w: f32[8],
) -> (f32[4]) {
  %s = sum(%x, dims=[1]) : f32[4]
  %a = neg(%s) : f32[4]
  %b = abs(%s) : f32[4]
  %c = add(%a, %b) : f32[4]
  %g = broadcast(%c, dims=[0]) : f32[4, 8]
  %u = mul(%x, %g) : f32[4, 8]
  %e = dot(%u, %w, dims="ij,j->i") : f32[4]
  %q = add(%a, %e) : f32[4]
  %z = mul(%q, %b) : f32[4]
  return %z
}
"""
        )
    )
    first, _, last = module.main.body.ops
    assert [value.name for value in first.results] == ["a", "b", "u"]
    assert [value.name for value in last.operands] == ["a", "e", "b"]
    assert [op.name for op in last.blocks[0].ops] == ["add", "mul"]
