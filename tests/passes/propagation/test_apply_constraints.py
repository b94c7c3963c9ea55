"""Constraints that apply to their operands, and users that read the end of a chain of them."""

import pytest

from tests.passes.propagation.propagation_result import propagate, types_by_name


def lines(body: str, results: str = "(f32[8])", param: str = "f32[8]") -> list[str]:
    """Return the operations of a function of `%a` after propagation."""
    text = f"func @f(\n  %a: {param},\n  %i: i32[],\n) -> {results} {{\n{body}\n}}\n"
    return [line.strip() for line in str(propagate(text)).splitlines()]


@pytest.mark.parametrize(
    ("constraint", "operand"), [("f32[8@x]", "f32[8@x]"), ("f32[8@x?]", "f32[8@y]")]
)
def test_only_a_closed_constraint_is_the_sharding_of_its_operand(
    constraint: str, operand: str
) -> None:
    """An open one only suggests axes, after those of the only use of `%a`."""
    types = types_by_name(f"""\
func @f(
  %a: f32[8@y],
) -> (f32[8], f32[8]) {{
  %b = neg(%a) : f32[8]
  %c = sharding_constraint(%b) : {constraint}
  %d = exp(%b) : f32[8]
  return %c, %d
}}
""")
    assert types["b"] == operand


CHAIN = """\
  %b = neg(%a) : {}
  %c = sharding_constraint(%b) : f32[8@x]
  %d = sharding_constraint(%c) : f32[8@y]
"""
READER = "  %e = exp(%b) : f32[8]\n"


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (CHAIN.format("f32[8]") + READER, "d"),
        # The operand has a sharding, or another constraint.
        (CHAIN.format("f32[8@z]") + READER, "b"),
        (CHAIN.format("f32[8]") + "  %g = sharding_constraint(%b) : f32[8@z]\n" + READER, "b"),
        # There is no chain, because the first constraint has another user.
        (CHAIN.format("f32[8]") + "  %g = neg(%c) : f32[8]\n" + READER, "b"),
        # The chain forks at its end.
        (
            CHAIN.format("f32[8]")
            + "  %g = sharding_constraint(%d) : f32[8@x]\n"
            + "  %h = sharding_constraint(%d) : f32[8@z]\n"
            + READER,
            "b",
        ),
        # The operand is a constraint, which states no sharding.
        ("  %b = sharding_constraint(%a) : f32[8]\n" + CHAIN.partition("\n")[2] + READER, "b"),
        # The user is above the end of the chain.
        (CHAIN.format("f32[8]").replace("  %d =", READER + "  %d ="), "b"),
    ],
)
def test_users_below_a_chain_of_constraints_read_its_end(body: str, read: str) -> None:
    (user,) = (line for line in lines(body + "  return %e") if line.startswith("%e = exp"))
    assert user.startswith(f"%e = exp(%{read}) ")


def test_constraints_of_a_constraint_are_no_chain_of_their_own() -> None:
    """`%e` reads `%c`, whose operand has a chain already that ends at `%d`."""
    body = CHAIN.format("f32[8]").replace(
        "  %d =", "  %c2 = sharding_constraint(%c) : f32[8@z]\n  %d ="
    )
    body = body.replace("(%c) : f32[8@y]", "(%c2) : f32[8@y]")
    found = lines(body + "  %e = exp(%b) : f32[8]\n  return %e")
    assert "%c2 = sharding_constraint(%c) : f32[8@z]" in found
    assert "%e = exp(%d) : f32[8@y]" in found


def test_the_chain_itself_reads_its_operand() -> None:
    found = lines(CHAIN.format("f32[8]") + READER + "  return %e")
    assert "%c = sharding_constraint(%b) : f32[8@x]" in found


def test_results_of_a_function_are_not_below_a_chain() -> None:
    """The function returns the operand of the chain."""
    found = lines(CHAIN.format("f32[8]") + "  return %b")
    assert "return %b" in found


BRANCHES = """\
  %r = case(%i) : f32[8] {{
    %b = neg(%a) : f32[8]
    %c = sharding_constraint(%b) : f32[8@x]
    %d = sharding_constraint(%c) : f32[8@y]
{}
    yield {}
  }} {{
    %h = exp(%a) : f32[8]
    yield %h
  }}
  return %r"""


def test_the_result_of_a_branch_is_below_a_chain() -> None:
    assert "yield %d" in lines(BRANCHES.format("", "%b"))


def test_users_in_other_blocks_are_not_below_a_chain() -> None:
    inner = """\
    %e = case(%i) : f32[8] {
      %f = exp(%b) : f32[8]
      yield %f
    } {
      %u = neg(%i) : i32[]
      %v = neg(%u) : i32[]
      %w = neg(%v) : i32[]
      %g = sin(%b) : f32[8]
      yield %b
    }"""
    found = lines(BRANCHES.format(inner, "%e"))
    assert "yield %b" in found
    assert [line for line in found if "(%b)" in line and "exp" in line]
    assert [line for line in found if "(%b)" in line and "sin" in line]


def test_the_first_constraint_of_a_carried_value_shards_it() -> None:
    """The loop returns a broadcast, which has no sharding of its own."""
    types = types_by_name("""\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %b = scan(%a, carries=1, length=4) : f32[8] {
    (%c: f32[8]) =>
    %d = sharding_constraint(%c) : f32[8@x]
    %s = sum(%d, dims=[0]) : f32[]
    %e = broadcast(%s, dims=[]) : f32[8]
    yield %e
  }
  return %b
}
""")
    assert {types[name] for name in "abce"} == {"f32[8@x]"}


def test_elements_of_a_scan_have_the_sharding_of_the_whole_before_a_constraint_applies() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[4, 8@y],
) -> (f32[4]) {
  %b = scan(%a, carries=0, length=4) : f32[4] {
    (%c: f32[8]) =>
    %d = sharding_constraint(%c) : f32[8@x]
    %s = sum(%d, dims=[0]) : f32[]
    yield %s
  }
  return %b
}
""")
    assert types["c"] == "f32[8@y]"


def test_a_value_that_is_several_operands_of_a_manual_computation_gets_one_constraint() -> None:
    """The operands are the result of a branch, which is not annotated itself."""
    found = lines(
        """\
  %b = case(%i) : f32[8] {
    yield %a
  } {
    %n = neg(%a) : f32[8]
    yield %n
  }
  %c = manual_computation(%b, %b, axes=[x], in_axes=[[[x]], [[x]]], out_axes=[[[x]]]) : f32[8] {
    (%l: f32[4@-], %k: f32[4@-]) =>
    %s = add(%l, %k) : f32[4]
    yield %s
  }
  return %c"""
    )
    assert [line.partition(", axes")[0] for line in found if "%b" in line] == [
        "%b = case(%i) : f32[8@x] {",
        "%b.1 = sharding_constraint(%b) : f32[8@x]",
        "%c = manual_computation(%b.1, %b.1",
    ]
