"""The values that differ between devices, across loops, branches and calls of HLO modules."""

import pytest

from shardir.hlo.groups import Groups, parse_shard_groups
from shardir.hlo.parser import parse_hlo
from shardir.hlo.value_flow import ValueFlow, ValueNode


def groups(*members: tuple[int, ...]) -> Groups:
    return frozenset(map(frozenset, members))


ALL = groups((0, 1, 2, 3))
ROWS, COLUMNS = groups((0, 1), (2, 3)), groups((0, 2), (1, 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{replicated}", ALL),
        ("{devices=[4]<=[4]}", groups((0,), (1,), (2,), (3,))),
        ("{devices=[2,2]<=[4] last_tile_dim_replicate}", ROWS),
        ("{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}", COLUMNS),
        ("{devices=[2,2]0,2,1,3 last_tile_dim_replicate}", COLUMNS),
        ("{devices=[1,2,2]<=[4] last_tile_dims={replicated, manual}}", COLUMNS),
        ("{devices=[2,2]<=[4] last_tile_dim_replicate metadata={op_name=\"x\"}}", ROWS),
        ("{devices=[2]<=[4]}", None),
        ("{devices=[8]<=[8]}", None),
        ("{devices=[2]<=[2] last_tile_dims={manual, manual}}", None),
        ("{maximal device=0}", None),
        ("", None),
    ],
)  # fmt: skip
def test_devices_with_the_same_shard(text: str, expected: Groups | None) -> None:
    assert parse_shard_groups(text, 4) == expected


def differing(lines: str, over: Groups, computations: str = "") -> str:
    """Return the values of ENTRY that differ between devices of a group, of %x, which is equal in
    each row of devices, and %y, which is equal in each column."""
    module = parse_hlo(f"""HloModule m, num_partitions=4

{computations}
ENTRY main {{
  x = f32[4]{{0}} parameter(0), sharding={{devices=[2,2]<=[4] last_tile_dim_replicate}}
  y = f32[4]{{0}} parameter(1), sharding={{devices=[2,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  z = f32[4]{{0}} parameter(2)
{lines}
}}
""")
    flow = ValueFlow(module)
    found = flow.differing_values(over)
    assert flow.differing_values(over) is found
    names = (name for name in module.computations["main"].instructions if name not in "xyz")
    return " ".join(name for name in names if ValueNode("main", name) in found)


def collective(kind: str, operand: str, joined: str) -> str:
    return (
        f"f32[4]{{0}} {kind}({operand}), channel_id=1, replica_groups={joined}, "
        "use_global_device_ids=true\n"
    )


def test_arguments_differ_across_their_shards() -> None:
    lines = (
        "  a = f32[4]{0} negate(x)\n  b = f32[4]{0} negate(y)\n  c = f32[4]{0} add(x, z)\n"
        "  d = u32[] partition-id()\n  ROOT e = f32[4]{0} negate(z)\n"
    )
    assert differing(lines, ROWS) == "b d"
    assert differing(lines, COLUMNS) == "a c d"
    assert differing(lines, ALL) == "a b c d"


def test_copies_have_the_values_of_their_operands() -> None:
    lines = "  a = f32[4]{0} copy(y)\n  ROOT b = f32[4]{0} copy(z)\n"
    assert differing(lines, ROWS) == "a"


def test_each_element_of_another_tuple_may_depend_on_each_operand() -> None:
    lines = (
        '  s = (f32[4]{0}, f32[4]{0}) custom-call(y, z), custom_call_target="f"\n'
        "  ROOT a = f32[4]{0} get-tuple-element(s), index=1\n"
    )
    assert differing(lines, ROWS) == "s a"


def test_instructions_may_have_unknown_operands_and_indices() -> None:
    """An index that the tuple lacks stands for all elements."""
    pair = "(f32[4]{0}, f32[4]{0})"
    lines = (
        f"  s = {pair} tuple(y, unknown)\n  a = f32[4]{{0}} get-tuple-element(s), index=0\n"
        f"  t = {pair} tuple(z, y)\n  b = f32[4]{{0}} get-tuple-element(t), index=2\n"
        f"  u = f32[4]{{0}} get-tuple-element(unknown), index=0\n  v = {pair} copy(unknown)\n"
        f"  w = {pair} while(unknown), condition=condition, body=body\n"
        "  c = f32[4]{0} conditional(unknown), true_computation=kept, false_computation=kept\n"
        "  ROOT r = f32[4]{0} negate(z)\n"
    )
    assert differing(lines, ROWS, CALLED) == "s a t b"


def test_results_of_collectives_are_equal_in_their_groups() -> None:
    rows, columns, all_devices = "{{0,1},{2,3}}", "{{0,2},{1,3}}", "{{0,1,2,3}}"
    lines = (
        f"  a = {collective('all-gather', 'y', rows)}"
        f"  b = {collective('all-reduce', 'y', all_devices)}"
        f"  c = {collective('all-reduce', 'y', columns)}"
        f"  d = {collective('all-reduce', 'x', columns)}"
        f"  e = {collective('reduce-scatter', 'x', rows)}"
        f"  f = {collective('all-to-all', 'x', columns)}"
        f"  j = {collective('reduce-scatter', 'x', columns)}"
        f"  g = {collective('all-reduce', 'x', '{{0,3},{1,2}}')}"
        f"  i = {collective('all-reduce', 'x', '{{0,2},{1}}')}"
        "  h = f32[4]{0} collective-permute(x), source_target_pairs={{0,1}}\n"
        "  ROOT r = f32[4]{0} negate(a)\n"
    )
    assert differing(lines, ROWS) == "c e i h"


def test_collectives_of_equal_values_in_parts_of_groups() -> None:
    """Sums of equal values are equal. The parts that `reduce-scatter` distributes are different."""
    rows = "{{0,1},{2,3}}"
    lines = (
        f"  a = {collective('all-reduce', 'z', rows)}"
        f"  ROOT b = {collective('reduce-scatter', 'z', rows)}"
    )
    assert differing(lines, ALL) == "b"


def test_results_differ_from_those_of_devices_outside_of_the_collective() -> None:
    lines = (
        f"  a = {collective('all-reduce', 'x', '{{1,3}}')}"
        f"  b = {collective('all-reduce', 'x', '{{0,2}}')}"
        f"  ROOT c = {collective('all-reduce', 'x', '{{0,2},{1,3}}')}"
    )
    assert differing(lines, ROWS) == "a b"


@pytest.mark.parametrize("over", [groups((0, 1)), groups((0, 1), (2,), (3,))], ids=str)
def test_results_of_operands_from_devices_in_no_common_group_differ(over: Groups) -> None:
    lines = f"  ROOT a = {collective('all-reduce', 'x', '{{0,2},{1,3}}')}"
    assert differing(lines, over) == "a"


CALLED = """\
doubled {
  p = f32[4]{0} parameter(0)
  q = f32[4]{0} parameter(1)
  ROOT s = f32[4]{0} add(p, p)
}

kept {
  p = f32[4]{0} parameter(0)
  ROOT s = f32[4]{0} negate(p)
}

body {
  t = (f32[4]{0}, f32[4]{0}, f32[4]{0}) parameter(0)
  a = f32[4]{0} get-tuple-element(t), index=0
  b = f32[4]{0} get-tuple-element(t), index=1
  c = f32[4]{0} get-tuple-element(t), index=2
  ROOT n = (f32[4]{0}, f32[4]{0}, f32[4]{0}) tuple(b, c, c)
}

zero {
  p = f32[4]{0} parameter(0)
  ROOT s = f32[4]{0} constant(0)
}

always {
  p = f32[4]{0} parameter(0)
  ROOT m = pred[] constant(true)
}

condition {
  t = (f32[4]{0}, f32[4]{0}, f32[4]{0}) parameter(0)
  ROOT m = pred[] constant(true)
}
"""


@pytest.mark.parametrize("opcode", ["call", "fusion"])
def test_calls_have_the_values_of_their_operands(opcode: str) -> None:
    attribute = "to_apply" if opcode == "call" else "kind=kLoop, calls"
    lines = (
        f"  a = f32[4]{{0}} {opcode}(z, y), {attribute}=doubled\n"
        "  ROOT r = f32[4]{0} negate(y)\n"
    )  # fmt: skip
    assert differing(lines, ROWS, CALLED) == "r"


def test_constants_in_calls_are_no_parameters() -> None:
    lines = "  a = f32[4]{0} call(y), to_apply=zero\n  ROOT r = f32[4]{0} negate(a)\n"
    assert differing(lines, ROWS, CALLED) == ""


def test_branches_differ_with_their_predicate() -> None:
    branches = "true_computation=kept, false_computation=kept"
    lines = (
        "  t = pred[] constant(true)\n  d = u32[] partition-id()\n"
        f"  a = f32[4]{{0}} conditional(t, z, x), {branches}\n"
        f"  b = f32[4]{{0}} conditional(d, z, x), {branches}\n"
        "  ROOT r = f32[4]{0} negate(a)\n"
    )
    assert differing(lines, ROWS, CALLED) == "d b"
    other = CALLED.replace("kept", "other", 1).partition("body")[0].rpartition("other")[2]
    branches = "branch_computations={kept, other}"
    lines = (
        "  t = s32[] constant(1)\n"
        f"  a = f32[4]{{0}} conditional(t, z, y), {branches}\n  ROOT r = f32[4]{{0}} negate(a)\n"
    )
    assert differing(lines, ROWS, CALLED + "other" + other) == "a r"


def test_each_element_of_a_branch_differs_with_the_predicate() -> None:
    state = "(f32[4]{0}, f32[4]{0}, f32[4]{0})"
    lines = (
        f"  d = u32[] partition-id()\n  s = {state} tuple(z, z, z)\n"
        f"  c = {state} conditional(d, s, s), branch_computations={{body, body}}\n"
        "  ROOT a = f32[4]{0} get-tuple-element(c), index=2\n"
    )
    assert differing(lines, ROWS, CALLED) == "d c a"


def test_a_loop_may_have_the_result_of_no_iteration() -> None:
    lines = (
        "  a = f32[4]{0} while(y), condition=always, body=zero\n  ROOT r = f32[4]{0} negate(a)\n"
    )
    assert differing(lines, ROWS, CALLED) == "a r"


def test_carried_values_differ_in_later_iterations() -> None:
    state = "(f32[4]{0}, f32[4]{0}, f32[4]{0})"
    lines = (
        f"  s = {state} tuple(y, z, z)\n  o = {state} optimization-barrier(s)\n"
        f"  w = {state} while(o), condition=condition, body=body\n"
        "  a = f32[4]{0} get-tuple-element(w), index=0\n"
        "  b = f32[4]{0} get-tuple-element(w), index=1\n"
        "  ROOT c = f32[4]{0} get-tuple-element(w), index=2\n"
    )
    assert differing(lines, ROWS, CALLED) == "s o w a"
    lines = lines.replace("(y, z, z)", "(z, z, y)")
    assert differing(lines, ROWS, CALLED) == "s o w a b c"
