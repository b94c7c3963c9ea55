"""`propagate`: shardings propagate along factors in both directions, up to conflicts."""

import pytest

from shardir.errors import PipelineError
from shardir.passes import Pipeline, Propagate
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH, propagate, types_by_name


def test_a_sharding_propagates_forward_and_back_through_a_contraction() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x, 4],
  %b: f32[4, 6],
) -> (f32[8, 6@y]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8, 6]
  return %c
}
""")
    assert types == {
        "a": "f32[8@x, 4@-]",
        "b": "f32[4@-, 6@y]",
        "c": "f32[8@x, 6@y]",
        "->0": "f32[8@x, 6@y]",
    }


def test_a_contracted_axis_propagates_only_to_the_other_operand() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8, 4@x],
  %b: f32[4, 6],
) -> (f32[8, 6]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[8, 6]
  return %c
}
""")
    assert types["b"] == "f32[4@x, 6@-]"
    assert types["c"] == "f32[8@-, 6@-]"


def test_an_axis_shards_a_tensor_once() -> None:
    """Both operands have equal sizes, so that the factor of the first has priority."""
    types = types_by_name("""\
func @f(
  %a: f32[6@x, 4],
  %b: f32[4, 6@x],
) -> (f32[6, 6]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[6, 6]
  return %c
}
""")
    assert types["c"] == "f32[6@x, 6@-]"


def test_the_larger_tensor_has_priority_for_an_axis() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[4@x, 4],
  %b: f32[4, 6@x],
) -> (f32[4, 6]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[4, 6]
  return %c
}
""")
    assert types["c"] == "f32[4@-, 6@x]"


def test_in_an_elementwise_operation_more_shards_have_priority() -> None:
    text = """\
func @f(
  %a: f32[8@(x, y), 8],
  %b: f32[8, 8@x],
) -> (f32[8, 8]) {
  %c = add(%a, %b) : f32[8, 8]
  return %c
}
"""
    assert types_by_name(text)["c"] == "f32[8@(x, y), 8@-]"


def test_basic_propagation_does_not_resolve_conflicts() -> None:
    text = """\
func @f(
  %a: f32[6@x, 4@y],
  %b: f32[4, 6@x],
) -> (f32[6, 6]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[6, 6]
  return %c
}
"""
    types = types_by_name(text, level="basic")
    assert types["c"] == "f32[6@-, 6@-]"
    assert types["b"] == "f32[4@y, 6@x]"


def test_a_closed_dimension_gets_no_axes() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@(x, y)],
  %b: f32[8@x],
  %c: f32[8@x?],
  %d: f32[8@-],
) -> (f32[8], f32[8], f32[8]) {
  %e = add(%a, %b) : f32[8]
  %f = add(%a, %c) : f32[8]
  %g = add(%a, %d) : f32[8]
  return %e, %f, %g
}
""")
    assert types["b"] == "f32[8@x]"
    assert types["c"] == "f32[8@(x, y)]"
    assert types["d"] == "f32[8@-]"


def test_explicit_replication_keeps_an_axis_out_of_every_dimension() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x, 8@y],
) -> (f32[8, 8]) {
  %b = neg(%a) : f32[8, 8] replicated(x)
  %c = neg(%b) : f32[8, 8]
  return %c
}
""")
    assert types["b"] == "f32[8@-, 8@y]"
    assert types["c"] == "f32[8@-, 8@y]"


def test_unreduced_axes_do_not_propagate() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@y?] unreduced(x),
) -> (f32[8]) {
  %b = neg(%a) : f32[8]
  return %b
}
""")
    assert types["a"] == "f32[8@y] unreduced(x)"
    assert types["b"] == "f32[8@y]"


def test_a_reshape_propagates_sub_axes() -> None:
    """z has size 4: the major dimension gets a sub-axis of size 2, and the minor one the other."""
    types = types_by_name("""\
func @f(
  %a: f32[16@z, 3],
) -> (f32[2, 8, 3]) {
  %b = reshape(%a) : f32[2, 8, 3]
  return %b
}
""")
    assert types["b"] == "f32[2@z:(1)2, 8@z:(2)2, 3@-]"


def test_a_reverse_reshape_merges_sub_axes() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[2@z:(1)2, 8@z:(2)2],
) -> (f32[16]) {
  %b = reshape(%a) : f32[16]
  return %b
}
""")
    assert types["b"] == "f32[16@z]"


def test_a_reshape_makes_no_strided_shards() -> None:
    """Sharding only the minor dimension would give each device every fourth element of the
    result.
    """
    types = types_by_name("""\
func @f(
  %a: f32[4, 8@x],
) -> (f32[32]) {
  %b = reshape(%a) : f32[32]
  return %b
}
""")
    assert types["b"] == "f32[32@-]"


def test_axes_beyond_the_size_of_a_factor_do_not_propagate() -> None:
    """Three rows are not divisible by two, so that the columns of the reshape are not sharded
    either.
    """
    types = types_by_name("""\
func @f(
  %a: f32[12@x],
) -> (f32[3, 4]) {
  %b = reshape(%a) : f32[3, 4]
  return %b
}
""")
    assert types["a"] == "f32[12@x]"
    assert types["b"] == "f32[3@-, 4@-]"


def test_a_blocked_factor_does_not_propagate() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x, 8@y],
  %i: i32[],
) -> (f32[8, 4]) {
  %b = dynamic_slice(%a, %i, %i) : f32[8, 4]
  return %b
}
""")
    assert types["b"] == "f32[8@x, 4@-]"


def test_an_operation_on_several_meshes_does_not_propagate() -> None:
    types = types_by_name("""\
mesh @m = [x=2]
mesh @n = [x=4]
mesh @k = [x=2]

func @f(
  %a: f32[8@x],
  %b: f32[8] on @n,
  %c: f32[8@x?] on @k,
  %d: f32[8@x] on @n,
) -> (f32[8], f32[8]) {
  %e = add(%a, %d) : f32[8]
  %f = add(%a, %c) : f32[8]
  return %e, %f
}
""")
    assert types["e"] == "f32[8@-]"
    assert types["f"] == "f32[8@x]"


def test_values_without_a_sharding_are_replicated_on_the_first_mesh() -> None:
    module = propagate("""\
mesh @m = [x=2]
mesh @n = [x=4]

func @f(
  %a: f32[8],
  %b: f32[4],
) -> (f32[8]) {
  %c = neg(%a) : f32[8]
  return %c
}
""")
    assert [str(v.sharding and v.sharding.mesh) for v in module.main.body.values()] == ["m"] * 3
    assert all(v.sharding and v.sharding.is_closed for v in module.main.body.values())


def test_a_module_without_meshes_is_not_changed() -> None:
    module = parse("func @f(\n  %a: f32[8],\n) -> (f32[8]) {\n  return %a\n}\n")
    assert Propagate()(module) is module


def test_a_program_of_one_device_is_not_changed() -> None:
    text = (
        MESH
        + """\
spmd func @f(
  %a: f32[4] of f32[8@x],
) -> (f32[4] of f32[8@x]) {
  %b = neg(%a) : f32[4]
  return %b
}
"""
    )
    module = parse(text)
    assert str(Propagate()(module)) == text


def test_dimensions_can_be_kept_open() -> None:
    text = """\
func @f(
  %a: f32[8@x, 8],
  %b: f32[8],
) -> (f32[8, 8]) {
  %c = neg(%a) : f32[8, 8]
  return %c
}
"""
    assert types_by_name(text, keep_open=True) == {
        "a": "f32[8@x, 8]",
        "b": "f32[8]",
        "c": "f32[8@x?, 8]",
        "->0": "f32[8@x?, 8]",
    }


def test_parameters_and_results_are_sharded_evenly() -> None:
    """z does not divide six. A sub-axis of size 2 does, but parameters and results do not keep
    sub-axes of an axis.
    """
    types = types_by_name("""\
func @f(
  %a: f32[6],
  %b: f32[6@z],
) -> (f32[6], f32[6]) {
  %c = add(%a, %b) : f32[6]
  %d = neg(%c) : f32[6]
  return %c, %d
}
""")
    assert types["a"] == "f32[6@-]"
    assert types["b"] == "f32[6@z:(1)2]"
    assert types["c"] == "f32[6@z]"
    assert types["->1"] == "f32[6@-]"


def test_axes_of_size_1_are_removed() -> None:
    types = types_by_name("""\
mesh @m = [x=2, one=1]

func @f(
  %a: f32[8@(one, x), 8],
) -> (f32[8, 8]) {
  %b = neg(%a) : f32[8, 8]
  return %b
}
""")
    assert types["a"] == "f32[8@x, 8@-]"
    assert types["b"] == "f32[8@x, 8@-]"


def test_the_sharding_of_the_result_propagates_back() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8, 8],
) -> (f32[8@x, 8@y]) {
  %b = transpose(%a, perm=[1, 0]) : f32[8, 8]
  return %b
}
""")
    assert types["a"] == "f32[8@y, 8@x]"


def test_unused_operations_are_kept() -> None:
    types = types_by_name("""\
func @f(
  %a: f32[8@x],
) -> (f32[8]) {
  %b = exp(%a) : f32[8]
  %c = constant(value=1.0) : f32[8]
  return %a
}
""")
    assert types["b"] == "f32[8@x]"
    assert types["c"] == "f32[8@-]"


def test_options_are_those_of_the_levels() -> None:
    text = "propagate{level=aggressive,order=fifo}"
    assert str(Pipeline.parse(text)) == text
    with pytest.raises(PipelineError) as error:
        Pipeline.parse("propagate{level=strong}")
    assert str(error.value) == (
        "option 'level' of pass 'propagate' cannot be 'strong'; "
        "it is one of basic, aggressive, op-priority, user-priority"
    )
