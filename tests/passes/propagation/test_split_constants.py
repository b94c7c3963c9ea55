"""Which values count as constants, and are duplicated for each use."""

import pytest

from tests.passes.propagation.propagation_result import propagate


def lines(body: str) -> list[str]:
    """Return the operations after propagation, without types."""
    text = f"""\
func @f(
  %a: f32[4],
  %s: f32[],
) -> (f32[4]) {{
{body}
  return %a
}}
"""
    return [line.strip().partition(" : ")[0] for line in str(propagate(text)).splitlines()]


@pytest.mark.parametrize(
    ("operation", "is_copied"),
    [
        ("iota(dim=0) : i32[8]", True),
        ("neg(%k) : f32[4]", True),
        ("broadcast(%k, dims=[1]) : f32[8, 4]", True),
        ("reshape(%k) : f32[2, 2]", True),
        ("slice(%k, starts=[0], strides=[1]) : f32[2]", True),
        ("broadcast(%s, dims=[]) : f32[4]", True),
        ("stop_gradient(%k) : f32[4]", False),
        ("sharding_constraint(%k) : f32[4@x]", False),
        ("concatenate(%k, %k, dim=0) : f32[8]", False),
        ("broadcast(%a, dims=[1]) : f32[8, 4]", False),
        ("neg(%a) : f32[4]", False),
        ("add(%a, %k) : f32[4]", False),
    ],
)
def test_each_use_of_a_constant_gets_a_copy(operation: str, is_copied: bool) -> None:
    type = operation.partition(" : ")[2].replace("@x", "")
    found = lines(f"""\
  %k = constant(value=1.0) : f32[4]
  %c = {operation}
  %y = optimization_barrier(%c) : {type}
  %z = optimization_barrier(%c) : {type}""")
    assert "%y = optimization_barrier(%c)" in found
    assert ("%z = optimization_barrier(%c.1)" in found) == is_copied


def test_scalars_are_shared_by_the_copies_of_their_users() -> None:
    found = lines("""\
  %k = constant(value=2.0) : f32[]
  %c = broadcast(%k, dims=[]) : f32[4]
  %u = neg(%k) : f32[]
  %y = add(%c, %a) : f32[4]
  %z = clamp(%u, %c, %k) : f32[4]""")
    assert found[-8:-2] == [
        "%k = constant(value=2.0)",
        "%c = broadcast(%k, dims=[])",
        "%c.1 = broadcast(%k, dims=[])",
        "%u = neg(%k)",
        "%y = add(%c, %a)",
        "%z = clamp(%u, %c.1, %k)",
    ]


@pytest.mark.parametrize(
    "user",
    [
        "%u = reshape(%k) : f32[]\n  %q = optimization_barrier(%u) : f32[]",
        "%u = neg(%k) : f32[1]",
        'opaque(%k, operation="x.y", head="x.y %", attributes="", types="")',
    ],
)
def test_scalars_unused_constants_and_operations_without_results_are_uses(user: str) -> None:
    found = lines(f"""\
  %k = constant(value=2.0) : f32[1]
  {user}
  %y = broadcast(%a, dims=[0]) : f32[4, 1]
  %z = reshape(%k) : f32[1, 1]
  %v = optimization_barrier(%z) : f32[1, 1]""")
    assert user.partition(" : ")[0] in found
    assert "%z = reshape(%k.1)" in found


def calls(body: str, called: str, uses: str) -> list[str]:
    """Return the operations of a call of constants, and of what reads its results."""
    found = lines(f"""\
  %k = constant(value=1.0) : f32[4]
  %c, %d = call(%k, callee="f") : f32[4], f32[{called}] {{
    (%p: f32[4]) =>
{body}
  }}
{uses}""")
    return [line for line in found[found.index("%k = constant(value=1.0)") :] if "=" in line]


@pytest.mark.parametrize(
    ("operation", "is_copied"),
    [
        ("neg(%p) : f32[4]", True),
        ("constant(value=2.0) : f32[4]", True),
        ("stop_gradient(%p) : f32[4]", False),
        ("sort(%p, dim=0) : f32[4]", False),
    ],
)
def test_each_use_of_a_call_of_constants_gets_a_copy(operation: str, is_copied: bool) -> None:
    """A call is a constant if its block contains only operations that make constants."""
    found = calls(
        f"    %q = {operation}\n    yield %p, %q",
        "4",
        "  %y = optimization_barrier(%c) : f32[4]\n  %z = optimization_barrier(%d) : f32[4]",
    )
    name = operation.partition(" : ")[0]
    if not is_copied:
        assert found[-2:] == ["%y = optimization_barrier(%c)", "%z = optimization_barrier(%d)"]
        assert sum(line.startswith("%k") for line in found) == 1
        return
    assert found == [
        "%k = constant(value=1.0)",
        "%k.1 = constant(value=1.0)",
        '%c, %d = call(%k, callee="f")',
        "(%p: f32[4@-]) =>",
        f"%q = {name}",
        '%c.1, %d.1 = call(%k.1, callee="f")',
        "(%p.1: f32[4@-]) =>",
        f"%q.1 = {name.replace('%p', '%p.1')}",
        "%y = optimization_barrier(%c)",
        "%z = optimization_barrier(%d.1)",
    ]


def test_the_copy_of_a_call_contains_the_copies_of_the_constants_in_its_block() -> None:
    found = calls(
        """\
    %i, %j = call(%p, callee="g") : f32[4], f32[4] {
      (%r: f32[4]) =>
      %t = constant(value=3.0) : f32[4]
      yield %t, %t
    }
    %q = add(%i, %j) : f32[4]
    yield %p, %q""",
        "4",
        "  %y = optimization_barrier(%d) : f32[4]\n  %z = optimization_barrier(%d) : f32[4]",
    )
    assert [line for line in found if "constant(value=3.0)" in line] == [
        "%t = constant(value=3.0)",
        "%t.1 = constant(value=3.0)",
        "%t.2 = constant(value=3.0)",
        "%t.1.1 = constant(value=3.0)",
    ]


def test_a_call_of_which_scalar_results_are_used_stays_for_these_uses() -> None:
    """Scalars are shared, so that the other results are those of a copy."""
    found = calls(
        """\
    %u = slice(%p, starts=[0], strides=[1]) : f32[1]
    %q = reshape(%u) : f32[]
    yield %p, %q""",
        "",
        "  %y = optimization_barrier(%c) : f32[4]\n  %z = optimization_barrier(%d) : f32[]",
    )
    assert found[-2:] == ["%y = optimization_barrier(%c.1)", "%z = optimization_barrier(%d)"]


def test_a_group_of_shardings_in_a_call_of_constants_does_not_prevent_copies() -> None:
    found = calls(
        "    %q = neg(%p) : f32[4]\n    sharding_group(%q, group=0)\n    yield %p, %q",
        "4",
        "  %y = optimization_barrier(%c) : f32[4]\n  %z = optimization_barrier(%d) : f32[4]",
    )
    assert found[-2:] == ["%y = optimization_barrier(%c)", "%z = optimization_barrier(%d.1)"]


def sharding_groups(body: str) -> list[str]:
    """Return the calls and `sharding_group` operations of the propagated program, in order."""
    return [line for line in lines(body) if line.startswith("sharding_group") or "call(" in line]


TWO_RESULTS = """\
  %k = constant(value=1.0) : f32[4]
  %c, %d = call(%k, callee="f") : f32[4], f32[4] {{
    (%p: f32[4]) =>
    yield %p, %p
  }}
  sharding_group(%{member}, group=0)
  sharding_group(%{member}, group=1)
  sharding_group(%a, group=0)
  %y = optimization_barrier(%{first}) : f32[4]
  %z = optimization_barrier(%{second}) : f32[4]"""


@pytest.mark.parametrize(
    ("first", "second", "members"),
    [
        ("c", "c", ["c", "c.1"]),
        ("c", "d", ["c"]),
        ("d", "c", ["c.1"]),
        ("d", "d", []),
    ],
)
def test_only_the_used_result_of_a_copy_of_a_call_is_in_groups(
    first: str, second: str, members: list[str]
) -> None:
    """Another result of the copy has no users, and its group would shard the used result."""
    found = sharding_groups(TWO_RESULTS.format(member="c", first=first, second=second))
    expected: list[str] = []
    for call in ("%c, %d = call(%k", "%c.1, %d.1 = call(%k.1"):
        expected.append(f'{call}, callee="f")')
        name = call[1:].partition(",")[0]
        if name in members:
            expected += [f"sharding_group(%{name}, group=1)", f"sharding_group(%{name}, group=0)"]
    assert found == [*expected, "sharding_group(%a, group=0)"]


def test_a_constant_that_depends_on_two_results_of_a_call_has_the_groups_of_the_first() -> None:
    found = sharding_groups(
        TWO_RESULTS.format(member="c", first="e", second="g").replace(
            "  %y",
            "  %e = add(%d, %c) : f32[4]\n  %g = add(%c, %d) : f32[4]\n  %y",
        )
    )
    assert found == [
        '%c, %d = call(%k, callee="f")',
        '%c.1, %d.1 = call(%k.1, callee="f")',
        "sharding_group(%c.1, group=1)",
        "sharding_group(%c.1, group=0)",
        "sharding_group(%a, group=0)",
    ]


def test_a_constant_that_is_only_in_a_group_has_constants_of_its_own() -> None:
    """It is not copied, and its group does not shard the constant that another operation uses."""
    found = lines("""\
  %k = constant(value=1.0) : f32[4]
  %u = neg(%k) : f32[4]
  sharding_group(%u, group=0)
  sharding_group(%a, group=0)
  %y = optimization_barrier(%k) : f32[4]""")
    assert "%u = neg(%k)" in found
    assert "%y = optimization_barrier(%k.1)" in found
