"""`reshard`: every change of sharding is an operation, and no reshard is redundant."""

import pytest
from hypothesis import given, strategies as st

from shardir.errors import PartitionError
from shardir.passes import Reshard
from shardir.text.parser import parse
from shardir.verify.verifier import verify
from tests.passes.op_lines import body, reasons
from tests.passes.resharding.reshard_programs import MESH, run_reshard
from tests.passes.sharded_evaluation import annotate_randomly
from tests.programs.strategies import modules


def test_compatible_shardings_are_not_changed() -> None:
    text = """\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[4@-, 8@y],
) -> (f32[8@x, 8@y]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@x, 8@y]
  return %c
}
"""
    assert str(run_reshard(text)) == MESH + text


def test_a_sum_over_a_sharded_factor_is_unreduced_until_its_reshard() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@y, 4@x],
  %b: f32[4@x, 8@-],
) -> (f32[8@y, 8@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@y, 8@-]
  return %c
}
""")
    assert body(module) == [
        '%c.partial = dot(%a, %b, dims="ik,kj->ij") : f32[8@y, 8@-] unreduced(x)',
        "%c = reshard(%c.partial) : f32[8@y, 8@-]",
    ]
    assert reasons(module) == ["sum over 'k' of %c = dot"]


def test_partial_maxima_are_unreduced_by_max() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@y, 4@x],
) -> (f32[8@y]) {
  %c = max(%a, dims=[1]) : f32[8@y]
  return %c
}
""")
    assert body(module)[0] == "%c.partial = max(%a, dims=[1]) : f32[8@y] unreduced[max](x)"
    assert reasons(module) == ["maximum over dimension 1 of %a of %c = max"]


def test_empty_arrays_are_not_unreduced() -> None:
    """An unsharded value cannot become unreduced: for complex products that is an error."""
    module = run_reshard("""\
func @f(
  %a: c64[0@x, 0@-],
) -> (c64[0@x]) {
  %b.partial = prod(%a, dims=[0]) : c64[0@-] unreduced[mul](x)
  %b = reshard(%b.partial) : c64[0@x]
  return %b
}
""")
    assert body(module) == ["%b.partial = prod(%a, dims=[0]) : c64[0@-]"]


def test_operands_follow_the_sharding_of_most_of_the_data() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 4@-],
  %b: f32[8@-, 4@x],
) -> (f32[8@x, 4@-]) {
  %c = add(%a, %b) : f32[8@x, 4@-]
  return %c
}
""")
    assert body(module) == [
        "%b.sharded = reshard(%b) : f32[8@x, 4@-]",
        "%c = add(%a, %b.sharded) : f32[8@x, 4@-]",
    ]
    assert reasons(module) == [
        "operand 1 of %c = add needs [x, -]: x shards dimension 0 of %a, not dimension 1 of %a"
    ]


def test_a_result_with_another_sharding_is_resharded() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@-, 4@x]) {
  %c = exp(%a) : f32[8@-, 4@x]
  return %c
}
""")
    assert body(module) == [
        "%c.before_reshard = exp(%a) : f32[8@x, 4@-]",
        "%c = reshard(%c.before_reshard) : f32[8@-, 4@x]",
    ]
    assert reasons(module) == [
        "%c = exp is computed with the sharding [x, -] and needed with [-, x]"
    ]


def test_one_mesh_axis_shards_one_factor_only() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 64@-],
  %b: f32[64@-, 6@x],
) -> (f32[8@x, 6@-]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8@x, 6@-]
  return %c
}
""")
    assert body(module) == [
        "%b.unsharded = reshard(%b) : f32[64@-, 6@-]",
        '%c = dot(%a, %b.unsharded, dims="ik,kj->ij") : f32[8@x, 6@-]',
    ]


def test_an_unshardable_factor_moves_its_axes_to_another() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[8@x, 4@-]) {
  %c = sort(%a, dim=0) : f32[8@x, 4@-]
  return %c
}
""")
    assert body(module) == [
        "%a.sharded = reshard(%a) : f32[8@-, 4@x]",
        "%c.before_reshard = sort(%a.sharded, dim=0) : f32[8@-, 4@x]",
        "%c = reshard(%c.before_reshard) : f32[8@x, 4@-]",
    ]


def test_equal_reshards_of_a_value_are_one() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x],
  %b: f32[8@-],
) -> (f32[8@x], f32[8@x]) {
  %c = add(%a, %b) : f32[8@x]
  %d = mul(%b, %a) : f32[8@x]
  return %c, %d
}
""")
    assert body(module) == [
        "%b.sharded = reshard(%b) : f32[8@x]",
        "%c = add(%a, %b.sharded) : f32[8@x]",
        "%d = mul(%b.sharded, %a) : f32[8@x]",
    ]


def test_uses_read_the_value_before_its_reshard() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x],
) -> (f32[8@x]) {
  %c = reshard(%a) : f32[8@-]
  %d = add(%c, %a) : f32[8@x]
  return %d
}
""")
    assert body(module) == [
        "%c = reshard(%a) : f32[8@-]",
        "%d = add(%a, %a) : f32[8@x]",
    ]


def test_a_constraint_becomes_a_reshard_or_nothing() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x],
) -> (f32[8@y]) {
  %b = sharding_constraint(%a) : f32[8@x]
  %c = sharding_constraint(%b) : f32[8@y]
  return %c
}
""")
    assert body(module) == ["%c = reshard(%a) : f32[8@y]"]
    assert reasons(module) == ["%c = sharding_constraint states [y]"]


def test_results_have_the_shardings_of_the_function() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x],
) -> (f32[8@-], f32[8]) {
  return %a, %a
}
""")
    assert body(module) == ["%a.unsharded = reshard(%a) : f32[8@-]"]
    assert reasons(module) == ["result 0 of @f needs [-]"]
    assert [str(v.name) for v in module.main.body.returns] == ["a.unsharded", "a"]


def test_shards_of_a_reshape_follow_common_factors() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x, 4@-],
) -> (f32[2, 16]) {
  %b = reshape(%a) : f32[2@x:(1)2, 16@x:(2)2]
  return %b
}
""")
    assert body(module) == ["%b = reshape(%a) : f32[2@x:(1)2, 16@x:(2)2]"]


def test_factors_of_one_side_of_a_reshape_are_not_sharded() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[4@x, 27@-],
) -> (f32[6, 18]) {
  %b = reshape(%a) : f32[6@-, 18@-]
  return %b
}
""")
    assert body(module) == [
        "%a.sharded = reshard(%a) : f32[4@x:(1)2, 27@-]",
        "%b.before_reshard = reshape(%a.sharded) : f32[6@x:(1)2, 18@-]",
        "%b = reshard(%b.before_reshard) : f32[6@-, 18@-]",
    ]


def test_a_carried_value_has_one_sharding() -> None:
    module = run_reshard("""\
func @f(
  %h: f32[8@-],
  %n: i32[],
) -> (f32[8]) {
  %out, %k = while(%h, %n) : f32[8@x], i32[] {
    (%c: f32[8@-], %i: i32[]) =>
    %zero = constant(value=0) : i32[]
    %more = gt(%i, %zero) : bool[]
    yield %more
  } {
    (%c1: f32[8@y], %i1: i32[]) =>
    %one = constant(value=1) : i32[]
    %left = sub(%i1, %one) : i32[]
    %e = exp(%c1) : f32[8@x]
    %f = reshard(%e) : f32[8@y]
    %g = neg(%f) : f32[8@y]
    yield %g, %left
  }
  return %out
}
""")
    loop = module.main.body.ops[1]
    assert loop.name == "while"
    assert reasons(module)[0] == "operand 0 of %out = while needs [x]"
    assert reasons(module)[-1] == "what while yields for %out needs [x]"
    flowing = [block.params[0].sharding for block in loop.blocks]
    flowing += [loop.operands[0].sharding, loop.blocks[1].returns[0].sharding]
    assert all(sharding == loop.results[0].sharding for sharding in flowing)


def test_a_scan_reads_unsharded_slices() -> None:
    module = run_reshard("""\
func @f(
  %xs: f32[4@x, 8@-],
) -> (f32[4@x, 8]) {
  %ys = scan(%xs, carries=0, length=4, reverse=false) : f32[4@x, 8@y] {
    (%s: f32[8@y]) =>
    %e = exp(%s) : f32[8@y]
    yield %e
  }
  return %ys
}
""")
    assert [line for line in body(module) if "scan" in line or "reshard" in line] == [
        "%xs.sharded = reshard(%xs) : f32[4@-, 8@y]",
        (
            "%ys.before_reshard = scan(%xs.sharded, carries=0, length=4, reverse=false) : "
            "f32[4@-, 8@y] {"
        ),
        "%ys = reshard(%ys.before_reshard) : f32[4@x, 8@y]",
        "%ys.sharded = reshard(%ys) : f32[4@x, 8@-]",
    ]


def test_a_value_carried_twice_is_resharded_for_each_parameter() -> None:
    module = run_reshard("""\
func @f(
  %h: f32[8@-],
) -> (f32[8], f32[8]) {
  %a, %b = scan(%h, %h, carries=2, length=3, reverse=false) : f32[8@x], f32[8@y] {
    (%c: f32[8@x], %d: f32[8@y]) =>
    yield %c, %d
  }
  return %a, %b
}
""")
    assert body(module)[:2] == [
        "%h.sharded = reshard(%h) : f32[8@x]",
        "%h.sharded.1 = reshard(%h) : f32[8@y]",
    ]
    assert "scan(%h.sharded, %h.sharded.1" in body(module)[2]


def test_new_operations_have_the_source_line_of_their_user() -> None:
    module = run_reshard("""\
func @f(
  %a: f32[8@x],
) -> (f32[8@-]) {
  %c = exp(%a) : f32[8@-] loc("mlp.py":12:3)
  return %c
}
""")
    assert {str(op.loc) for op in module.main.body.ops} == {"mlp.py:12"}


def test_a_module_without_meshes_is_not_changed() -> None:
    module = parse("func @f(\n  %a: f32[8],\n) -> (f32[8]) {\n  return %a\n}\n")
    assert str(Reshard()(module)) == str(module)


def test_values_on_two_meshes_are_errors() -> None:
    with pytest.raises(PartitionError) as caught:
        Reshard()(parse(MESH + """\
mesh @n = [z=8]

func @f(
  %a: f32[8@x],
  %b: f32[8@z] on @n,
) -> (f32[8]) {
  return %a
}
"""))  # fmt: skip
    assert str(caught.value) == (
        "@f has values on the meshes @m and @n; a program runs on one mesh: state the sharding of "
        "the argument %b on @m"
    )


@given(st.data())
def test_resharding_again_changes_nothing(data: st.DataObject) -> None:
    module = Reshard()(annotate_randomly(data, data.draw(modules()), lambda _: True))
    verify(module)
    assert str(Reshard()(module)) == str(module)
