"""Propagation into and out of manual computations, only along the free axes."""

import pytest

from shardir.errors import PropagateError
from shardir.passes.explain import explain
from shardir.text.parser import parse
from tests.passes.propagation.propagation_result import MESH, propagate, types_by_name

PROGRAM = """\
func @f(
  %a: f32[8, 16@x],
  %b: f32[16@x, 8@y],
  %e: f32[8@z, 8],
) -> (f32[8, 8]) {
  %c = manual_computation(%a, %b, HOW) : f32[8, 8] {
    (%p: f32[8, 8], %q: f32[8, 8]) =>
    %part = dot(%p, %q, dims="mk,kn->mn") : f32[8, 8]
    %sum = all-reduce(%part, axes=[x], op=add) : f32[8, 8]
    yield %sum
  }
  %d = add(%c, %e) : f32[8, 8]
  return %d
}
""".replace("HOW", "axes=[x], in_axes=[[[], [x]], [[x], []]], out_axes=[[[], []]]")


def test_free_axes_propagate_in_and_out() -> None:
    """`y` comes from an operand, `z` from a use of the result; `x` does not propagate."""
    before = """\
  %c = manual_computation(%a, %b, HOW) : f32[8@z, 8@y] {
    (%p: f32[8@z, 8@-], %q: f32[8@-, 8@y]) =>
    %part = dot(%p, %q, dims="mk,kn->mn") : f32[8@z, 8@y]
    %sum = all-reduce(%part, axes=[x], op=add) : f32[8@z, 8@y]
    yield %sum
  }
""".replace("HOW", "axes=[x], in_axes=[[[], [x]], [[x], []]], out_axes=[[[], []]]")
    text = str(propagate(PROGRAM))
    assert before in text
    assert text.startswith(MESH + "func @f(\n  %a: f32[8@z, 16@x],\n  %b: f32[16@x, 8@y],\n")


def test_manual_axes_precede_free_axes() -> None:
    module = propagate(
        """\
func @f(
  %a: f32[16@x@y, 4],
) -> (f32[16, 4]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []]]) : f32[16, 4] {
    (%p: f32[8, 4]) =>
    %q = neg(%p) : f32[8, 4]
    yield %q
  }
  return %r
}
""".replace("@x@y", "@(x, y)")
    )
    (op,) = module.main.body.ops
    outside, inside = op.result.sharding, op.blocks[0].params[0].sharding
    assert outside is not None
    assert inside is not None
    assert [axis.name for axis in outside.dims[0].axes] == ["x", "y"]
    assert [axis.name for axis in inside.dims[0].axes] == ["y"]


def test_the_sharding_of_a_parameter_applies_to_the_operand() -> None:
    """This holds for a closed sharding, if the operand has no other."""
    module = propagate("""\
func @f(
  %a: f32[16, 4],
) -> (f32[16, 4], f32[16, 4]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []]]) : f32[16, 4] {
    (%p: f32[8@y, 4@-]) =>
    yield %p
  }
  return %r, %a
}
""")
    (param,) = module.main.body.params
    assert param.sharding is not None
    assert [axis.name for axis in param.sharding.dims[0].axes] == ["x", "y"]


def test_a_manual_axis_of_another_dimension_does_not_propagate_in() -> None:
    """The operand is sharded over `x` along the other dimension; there is no `x` inside."""
    module = propagate("""\
func @f(
  %a: f32[16, 4@x?],
) -> (f32[16, 4]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[x], []]], out_axes=[[[x], []]]) : f32[16, 4] {
    (%p: f32[8, 4]) =>
    yield %p
  }
  return %r
}
""")
    assert "(%p: f32[8@-, 4@-]) =>" in str(module)


@pytest.mark.parametrize(
    ("outside", "inside"), [("4@y, 8@z", "4@z p1, 8"), ("4@y, 8@z?", "4, 8@z p1")]
)
def test_axes_of_a_later_priority_do_not_propagate_to_other_dimensions(
    outside: str, inside: str
) -> None:
    """The parameter has `z` along one dimension, from the priority of that dimension on."""
    module = propagate(f"""\
func @f(
  %a: f32[{outside}],
) -> (f32[4, 8]) {{
  %r = manual_computation(%a, axes=[x], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[4, 8] {{
    (%p: f32[{inside}]) =>
    %q = neg(%p) : f32[4, 8]
    yield %q
  }}
  return %r
}}
""")
    said = "(%p: f32[4@z, 8@-]) =>" if inside.startswith("4@z") else "(%p: f32[4@y, 8@z]) =>"
    assert said in str(module)


def test_a_result_of_a_later_priority_uses_no_axis_twice() -> None:
    module = propagate("""\
func @f(
  %a: f32[4, 8@z],
) -> (f32[4@z p1, 8]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[4@z p1, 8] {
    (%p: f32[4, 8]) =>
    %q = neg(%p) : f32[4, 8]
    yield %q
  }
  return %r
}
""")
    assert "manual_computation" in str(module)
    assert ": f32[4@z, 8@-] {" in str(module)


def test_explanations_state_paths_into_manual_computations() -> None:
    explained = explain(parse(MESH + PROGRAM), "part")
    assert [(chain.axis, chain.annotation.name) for chain in explained.chains] == [
        ("z", "%e"),
        ("y", "%b"),
    ]
    assert [link.op for link in explained.chains[1].links] == [
        "%q of manual_computation",
        "%part = dot",
    ]


def test_a_group_does_not_cross_the_boundary() -> None:
    with pytest.raises(PropagateError) as error:
        propagate("""\
func @f(
  %a: f32[8],
) -> (f32[8]) {
  %r = manual_computation(%a, axes=[x], in_axes=[[[]]], out_axes=[[[]]]) : f32[8] {
    (%p: f32[8]) =>
    sharding_group(%p, group=1)
    yield %p
  }
  sharding_group(%r, group=1)
  return %r
}
""")
    assert str(error.value) == (
        "sharding group 1 has members inside and outside of a manual_computation; use "
        "another group inside"
    )


RESULT_IN_GROUP = """\
func @f(
  %x: f32[8, 8],
  %z: f32[8@x?, 8] MORE,
) -> (f32[8, 8], f32[8, 8]) {
  %r = manual_computation(%x, axes=[x], in_axes=[[[], []]], out_axes=[[[], []]]) : f32[8, 8] {
    (%p: f32[8, 8]) =>
    %q = tanh(%p) : f32[8, 8]
    yield %q
  }
  %w = neg(%z) : f32[8, 8] SAID
  sharding_group(%r, group=2)
  sharding_group(%w, group=2)
  return %r, %w
}
"""


def test_a_group_does_not_shard_a_result_over_manual_axes() -> None:
    """OpenXLA Shardy may do so, and its program is then invalid."""
    with pytest.raises(PropagateError) as raised:
        propagate(RESULT_IN_GROUP.replace(" MORE", "").replace(" SAID", ""))

    assert str(raised.value) == (
        "sharding group 2 would change how dimension 0 of %r, a result of a manual_computation, is "
        "sharded over the manual axis x; remove it from the group, or state replicated(x) on "
        "another member"
    )


def test_the_error_states_only_the_manual_axes_that_would_change() -> None:
    with pytest.raises(PropagateError, match=r"over the manual axis x; .* replicated\(x\) on"):
        propagate(
            RESULT_IN_GROUP.replace(" MORE", "").replace(" SAID", "").replace("=[x]", "=[x, y]")
        )


def test_a_group_may_shard_a_result_over_free_axes() -> None:
    said = RESULT_IN_GROUP.replace(" MORE", "").replace(" SAID", " replicated(x)")
    assert types_by_name(said)["r"] == "f32[8@-, 8@-]"
    assert types_by_name(said.replace("8@x?", "8@y"))["r"] == "f32[8@y, 8@-]"


def test_values_without_a_sharding_are_on_the_mesh_of_the_function() -> None:
    module = propagate("""\
mesh @single = [] devices=[0]
mesh @a = [x=2]
mesh @b = [x=4]

func @f(
  %a: f32[8@x] on @b,
  %s: f32[4],
) -> (f32[8], f32[4]) {
  %r = neg(%a) : f32[8]
  %t = neg(%s) : f32[4] on @single
  %u = neg(%s) : f32[4]
  %v = add(%t, %u) : f32[4]
  return %r, %v
}

func @g(
  %c: f32[8@x] on @b,
  %d: f32[8@x] on @a,
  %e: f32[4],
) -> (f32[4]) {
  return %e
}
""")
    used, mixed = (
        [p.sharding and p.sharding.mesh for p in f.body.params] for f in module.functions
    )
    assert used == ["b", "b"]
    assert mixed == ["b", "a", "a"]


@pytest.mark.parametrize(
    ("axes", "stated", "mesh"),
    [
        # The first mesh of several devices that has the manual axes.
        ("", "f32[8]", "a"),
        ("x", "f32[8]", "b"),
        # The axis of this size.
        ("y:(1)3", "f32[8]", "d"),
        # That of a stated sharding.
        ("x", "f32[8] on @c", "c"),
    ],
)
def test_a_manual_computation_is_on_the_mesh_of_its_shardings(
    axes: str, stated: str, mesh: str
) -> None:
    module = propagate(f"""\
mesh @single = [] devices=[0]
mesh @a = [y=2]
mesh @b = [x=2]
mesh @c = [x=2, y=4]
mesh @d = [y=3]

func @f(
  %a: f32[8],
) -> (f32[8]) {{
  %r = manual_computation(%a, axes=[{axes}], in_axes=[[[]]], out_axes=[[[]]]) : {stated} {{
    (%p: f32[8]) =>
    %q = neg(%p) : f32[8]
    yield %q
  }}
  return %r
}}
""")
    (op,) = module.main.body.ops
    values = op.result, op.blocks[0].params[0]
    assert [value.sharding and value.sharding.mesh for value in values] == [mesh, mesh]
