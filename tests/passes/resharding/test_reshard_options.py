"""The options of `reshard`, and the operations and boundaries that it treats separately."""

import pytest

from shardir.errors import PartitionError
from shardir.passes import Partition, Reshard
from shardir.passes.resharding.resolve_conflicts import ResolveConflicts, received_bytes
from shardir.text.parser import parse
from tests.passes.op_lines import body, reasons
from tests.passes.resharding.reshard_programs import MESH, run_reshard

UNEVEN = """\
func @f(
  %h: f32[6@x],
  %g: f32[6@x],
) -> (f32[6@x]) {
  %a = add(%h, %g) : f32[6@x]
  %b = exp(%a) : f32[6@x]
  return %b
}
"""


def test_parameters_and_results_stay_uneven_if_other_values_are_replicated() -> None:
    module = Reshard(uneven="replicate")(parse(MESH + UNEVEN))
    assert [str(p.sharding) for p in module.main.body.params] == [
        str(p.sharding) for p in parse(MESH + UNEVEN).main.body.params
    ]
    assert body(module) == [
        "%h.sharded = reshard(%h) : f32[6@x:(1)2]",
        "%g.sharded = reshard(%g) : f32[6@x:(1)2]",
        "%a = add(%h.sharded, %g.sharded) : f32[6@x:(1)2]",
        "%b = exp(%a) : f32[6@x:(1)2]",
        "%b.sharded = reshard(%b) : f32[6@x]",
    ]
    assert reasons(module) == [
        "operand 0 of %a = add needs [x:(1)2], since 6 does not divide over x and the pass has "
        "uneven=replicate",
        "operand 1 of %a = add needs [x:(1)2], since 6 does not divide over x and the pass has "
        "uneven=replicate",
        "result 0 of @f needs [x]; dimension 0 of %b.sharded is padded from 6 to 8",
    ]


def test_only_uneven_shardings_are_errors() -> None:
    even = MESH + UNEVEN.replace("6@x", "8@x")
    assert str(Reshard(uneven="error")(parse(even))) == even
    with pytest.raises(PartitionError) as caught:
        Reshard(uneven="error")(parse(MESH + UNEVEN))
    assert str(caught.value) == (
        "dimension 0 of %h has size 6, which is not divisible by 4: it is sharded over x; "
        "pad it to 8, shard it otherwise, or set uneven=pad"
    )


def test_the_policy_of_shardy_needs_no_machine() -> None:
    text = """\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@-, 4@x],
) -> (f32[8@x, 4@-]) {
  %c = add(%a, %b) : f32[8@x, 4@-]
  return %c
}
"""
    module = Reshard(layouts="shardy")(parse(MESH + text))
    assert body(module)[0] == "%b.sharded = reshard(%b) : f32[8@x, 4@-]"


def test_partitioned_programs_and_programs_without_a_mesh_are_not_changed() -> None:
    partitioned = Partition()(run_reshard(UNEVEN.replace("6@x", "8@x")))
    assert str(Reshard()(partitioned)) == str(partitioned)
    assert str(ResolveConflicts()(partitioned)) == str(partitioned)
    plain = "func @f(\n  %a: f32[8],\n) -> (f32[8]) {\n  %b = exp(%a) : f32[8]\n  return %b\n}\n"
    assert str(ResolveConflicts()(parse(plain))) == plain


LOOP = """\
func @f(
  %h: f32[8@x],
  %v: f32[8@-],
) -> (f32[8@x]) {
  %a = scan(%h, carries=1, length=5) : f32[8@x] {
    (%c: f32[8@x]) =>
    %d = add(%c, %v) : f32[8@x]
    %e = mul(%d, %v) : f32[8@x]
    yield %e
  }
  return %a
}
"""


def test_a_loop_reshards_an_outer_value_once() -> None:
    assert body(run_reshard(LOOP)) == [
        "%a = scan(%h, carries=1, length=5) : f32[8@x] {",
        "%v.sharded = reshard(%v) : f32[8@x]",
        "%d = add(%c, %v.sharded) : f32[8@x]",
        "%e = mul(%d, %v.sharded) : f32[8@x]",
    ]


def test_the_operands_of_a_pipeline_are_unsharded() -> None:
    """Its parameters are, and operations of its block that need shards slice them."""
    module = run_reshard("""\
func @f(
  %a: f32[16@-, 8@x],
) -> (f32[]) {
  %loss = pipeline(%a, microbatches=4, schedule="1f1b", axis="y", batched=[0]) : f32[] {
    (%b: f32[4@-, 8@x]) =>
    %c = exp(%b) : f32[4@-, 8@x]
    %d = sum(%c, dims=[0, 1]) : f32[]
    yield %d
  }
  return %loss
}
""")
    assert body(module) == [
        "%a.unsharded = reshard(%a) : f32[16@-, 8@-]",
        '%loss = pipeline(%a.unsharded, microbatches=4, schedule="1f1b", axis="y", batched=[0]) : '
        "f32[] {",
        "%b.sharded = reshard(%b) : f32[4@-, 8@x]",
        "%c = exp(%b.sharded) : f32[4@-, 8@x]",
        "%d.partial = sum(%c, dims=[0, 1]) : f32[] unreduced(x)",
        "%d = reshard(%d.partial) : f32[]",
    ]


@pytest.mark.parametrize(
    ("loop", "runs"),
    [
        ("scan(%h, carries=1, length=5) : f32[8@x] {", 5),
        ("scan(%h, carries=1, length=1) : f32[8@x] {", 1),
        (
            "while(%h) : f32[8@x] {\n    (%i: f32[8@x]) =>\n    %t = constant(value=false) : "
            "bool[]\n    yield %t\n  } {",
            2,
        ),
    ],
    ids=["scan of 5", "scan of 1", "while"],
)
def test_the_reshards_of_loops_count_once_per_iteration(loop: str, runs: int) -> None:
    """The all-gather of f32[8] from 4 shards receives 24 bytes."""
    text = LOOP.replace("scan(%h, carries=1, length=5) : f32[8@x] {", loop)
    text = text.replace("%d = add(%c, %v) : f32[8@x]", "%d = reshard(%c) : f32[8@-]")
    text = text.replace("%e = mul(%d, %v) : f32[8@x]", "%e = reverse(%d, dims=[0]) : f32[8@-]")
    assert received_bytes(parse(MESH + text)) == 24 * runs


def test_sharding_groups_are_left_out() -> None:
    text = "func @f(\n  %h: f32[8@x],\n) -> (f32[8@x]) {\n"
    module = run_reshard(text + "  sharding_group(%h, group=1)\n  return %h\n}\n")
    assert str(module) == MESH + text + "  return %h\n}\n"


def test_a_barrier_has_the_shardings_of_its_results() -> None:
    module = run_reshard("""\
func @f(
  %h: f32[8@x],
  %g: f32[8@-],
) -> (f32[8@y], f32[8@x]) {
  %a, %b = optimization_barrier(%h, %g) : f32[8@y], f32[8@x]
  return %a, %b
}
""")
    assert body(module) == [
        "%h.sharded = reshard(%h) : f32[8@y]",
        "%g.sharded = reshard(%g) : f32[8@x]",
        "%a, %b = optimization_barrier(%h.sharded, %g.sharded) : f32[8@y], f32[8@x]",
    ]
    assert reasons(module) == [
        "operand 0 of %a = optimization_barrier needs [y]",
        "operand 1 of %a = optimization_barrier needs [x]",
    ]


def test_an_explicit_reshard_keeps_its_reason() -> None:
    module = run_reshard("""\
func @f(
  %h: f32[8@x],
) -> (f32[8@y]) {
  %a = reshard(%h) : f32[8@y] why("gradient of %h")
  return %a
}
""")
    assert reasons(module) == ["gradient of %h"]


def test_an_operation_that_cannot_pad_states_why() -> None:
    module = run_reshard("""\
func @f(
  %h: f32[6@x, 8@-],
) -> (f32[6@x, 8@-]) {
  %a = sort(%h, dim=0) : f32[6@x, 8@-]
  return %a
}
""")
    assert reasons(module) == [
        "operand 0 of %a = sort needs [-, x:(1)2], since 6 does not divide over x and sort cannot "
        "pad",
        "%a = sort is computed with the sharding [-, x:(1)2] and needed with [x, -]; dimension 0 "
        "of %a is padded from 6 to 8",
    ]


def test_an_operation_that_can_pad_does_not_state_that_it_cannot() -> None:
    """Here the other operands decide against the padded dimension."""
    module = run_reshard("""\
func @f(
  %a: f32[8@x:(1)2, 4@x:(2)2],
  %b: f32[8@x, 4@-],
  %p: bool[8@-, 4@(x, y)],
) -> (f32[8@x, 4@y]) {
  %k = select(%p, %a, %b) : f32[8@x, 4@y]
  return %k
}
""")
    assert reasons(module)[0] == (
        "operand 0 of %k = select needs [x, y]: x shards dimension 0 of %p, not dimension 1 of %p"
    )


def test_the_module_equals_the_one_that_its_text_describes() -> None:
    """A complete value has no kind of reduction, also behind a maximum."""
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@y]) {
  %c = max(%a, dims=[1]) : f32[8@y]
  return %c
}
""")
    shardings = [op.result.sharding for op in module.main.body.ops]
    assert shardings == [op.result.sharding for op in parse(str(module)).main.body.ops]
    assert [sharding.reduction for sharding in shardings if sharding] == ["add", "add"]


def test_constants_are_made_with_the_sharding_of_their_result() -> None:
    text = "func @f() -> (f32[8@x], i32[8@x]) {\n"
    text += "  %a = constant(value=1.0) : f32[8@x]\n  %i = iota(dim=0) : i32[8@x]\n"
    text += "  return %a, %i\n}\n"
    assert str(run_reshard(text)) == MESH + text


def test_reasons_of_operations_are_kept_where_results_become_padded() -> None:
    text = UNEVEN.replace("(\n  %h: f32[6@x],\n  %g: f32[6@x],\n)", "(\n  %h: f32[6@-],\n)")
    text = text.replace("add(%h, %g) : f32[6@x]", "iota(dim=0) : f32[6@x]WHY")
    padded = "dimension 0 of %a is padded from 6 to 8"
    assert Reshard()(parse(MESH + text.replace("WHY", ""))).main.body.ops[0].why == padded
    stated = parse(MESH + text.replace("WHY", ' why("rows")'))
    assert stated.main.body.ops[0].why == "rows"
    assert Reshard()(stated).main.body.ops[0].why == "rows"
