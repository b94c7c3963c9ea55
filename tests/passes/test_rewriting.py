"""Traversals and rewrites of functions that several passes use."""

import pytest

from shardir.errors import PartitionError
from shardir.passes.global_programs import place_single_devices
from shardir.passes.pipeline import Pipeline
from shardir.passes.rewriting import has_nested_effect
from shardir.text.parser import parse

SINGLE = """\
mesh @m = [x=2]
mesh @one = [] devices=[1]

func @main(
  %a: f32[4@x] on @m,
  %b: f32[4],
) -> (f32[4@x] on @m, f32[4@-] on @one, f32[4]) {
  %c = opaque(%a, operation="d.op", head="", attributes="", types="") : f32[4@x] on @m
  %d = sin(%c) : f32[4@-] on @one
  %e = add(%b, %d) : f32[4]
  return %c, %d, %e
}
"""


def test_values_on_a_single_device_alone_are_replicated() -> None:
    """The program has values without a sharding, and an operation with an effect on all devices."""
    module = parse(SINGLE)
    function = place_single_devices(module.main, module)
    shardings = [str(value.sharding) for value in function.body.values()]
    before = [str(value.sharding) for value in module.main.body.values()]
    replicated = str(
        parse(SINGLE.replace("4@-] on @one", "4@-] on @m")).main.body.ops[1].result.sharding
    )
    assert shardings == [*before[:3], replicated, before[4]]
    a, _, _ = module.main.result_shardings
    assert [str(each) for each in function.result_shardings] == [str(a), replicated, "None"]


def program(mesh: str, type: str) -> str:
    return f"""\
{mesh}
func @f(
  %a: {type},
) -> ({type}) {{
  %b = neg(%a) : {type}
  return %b
}}
"""


def test_a_program_without_shardings_runs_on_the_first_mesh() -> None:
    text = program("mesh @m = [x=2]\nmesh @n = [y=4]\n", "f32[4]")
    module = Pipeline.parse("partition")(parse(text))
    assert "-> (f32[4] of f32[4@-]) {" in str(module)
    assert Pipeline.parse("partition")(module) is module
    unsharded = parse(program("", "f32[4]"))
    assert Pipeline.parse("partition")(unsharded) is unsharded


@pytest.mark.parametrize(
    ("params", "second", "result", "found"),
    [
        ("%a: f32[4@-]", "f32[4@-]", "f32[4@-]", "the argument %a"),
        ("%z: f32[4], %a: f32[4@-]", "f32[4]", "f32[4]", "the argument %a"),
        ("%a: f32[4]", "f32[4@-]", "f32[4@-]", "%c"),
        ("%a: f32[4]", "f32[4]", "f32[4@-]", "result 1"),
    ],
)
def test_a_program_on_a_single_device_is_refused(
    params: str, second: str, result: str, found: str
) -> None:
    text = f"""\
mesh @m = [] devices=[0]
func @f({params}) -> (f32[4], {result}) {{
  %b = neg(%a) : f32[4]
  %c = neg(%b) : {second}
  return %b, %c
}}
"""
    with pytest.raises(PartitionError) as caught:
        Pipeline.parse("partition")(parse(text))
    assert str(caught.value) == (
        f"@f has values on the single device of @m, such as {found}; a program that is "
        "partitioned runs on a mesh with axes: shard an argument, or leave the sharding out"
    )


def test_the_value_on_another_mesh_is_named() -> None:
    text = """\
mesh @m = [x=2]
mesh @n = [y=2]
func @f(%a: f32[4]) -> (f32[4@x] on @m, f32[4@y] on @n) {
  %b = neg(%a) : f32[4]
  return %b, %b
}
"""
    with pytest.raises(PartitionError) as caught:
        Pipeline.parse("partition")(parse(text))
    assert str(caught.value) == (
        "@f has values on the meshes @m and @n; a program runs on one mesh: state the sharding of "
        "result 1 on @m"
    )


def test_a_loop_has_the_effects_of_its_operations() -> None:
    loop = """\
func @f(%x: f32[]) -> (f32[]) {
  %y = scan(%x, carries=1, length=2) : f32[] {
    (%c: f32[]) =>
    OPERATION
    yield %c
  }
  return %y
}
"""
    for operation, expected in (
        ('callback(%c, function="f")', True),
        ("%d = neg(%c) : f32[]", False),
    ):
        (op,) = parse(loop.replace("OPERATION", operation)).main.body.ops
        assert has_nested_effect(op) == expected
