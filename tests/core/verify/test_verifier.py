"""The verifier accepts valid modules, and reports the location of every violation."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardir.errors import VerifyError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Loc, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import REPLICATED_DIM, Axis, DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.text.parser import parse
from shardir.verify.verifier import find_faults, verify
from tests.programs.strategies import any_modules

X4, Y2 = Axis("x", 1, 4), Axis("y", 1, 2)
MESH = Mesh("m", (("x", 4), ("y", 2)))
ROW = TensorType((8,), "f32")

PROGRAM = """\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[8@x],
  %b: f32[8],
) -> (f32[8]) {
  %c = add(%a, %b) : f32[8@x] loc("mlp.py":12:9)
  %d = exp(%c) : f32[8]
  return %d
}
"""


def change_operation(at: int, **changes: Any) -> Module:
    """Return the program with one changed operation."""
    module = parse(PROGRAM)
    body = module.main.body
    ops = list(body.ops)
    ops[at] = replace(ops[at], **changes)
    return replace(module, functions=(replace(module.main, body=replace(body, ops=tuple(ops))),))


def messages(module: Module) -> list[str]:
    return [fault.message for fault in find_faults(module)]


def of_params(*params: Value, mesh: Mesh = MESH, spmd: Any = None) -> Module:
    """Return a function with these parameters and an empty body."""
    return Module((mesh,), (Function("f", Block(params, (), ()), (), spmd),))


def of_sharding(sharding: Sharding) -> list[str]:
    """Return the violations of a sharding of a tensor of rank 2."""
    value = Value(TensorType((8, 8), "f32"), "v", sharding)
    return messages(of_params(value))


@given(any_modules())
def test_every_random_module_is_valid(module: Module) -> None:
    verify(module)


def test_all_violations_are_reported_together() -> None:
    module = parse(PROGRAM)
    body = module.main.body
    add, exp = body.ops
    ghost = Value(ROW, "ghost")
    ops = (
        replace(add, operands=(body.params[0], ghost)),
        replace(exp, attrs={"fast": True}, loc=Loc("mlp.py", 13, 1)),
    )
    function = replace(module.main, body=replace(body, ops=ops, returns=(ghost,)))
    with pytest.raises(VerifyError) as error:
        verify(replace(module, functions=(function,)))

    assert (
        str(error.value)
        == """\
the module has 3 faults

%ghost is not defined
 --> @f, from mlp.py:12
  |
  | %c = add(%a, %ghost) : f32[8@x]
  |              ^^^^^^

exp: has no attribute 'fast'; it has none
 --> @f, from mlp.py:13
  |
  | %d = exp(%c, fast=true) : f32[8]
  |      ^^^

%ghost is not defined
 --> @f
  |
  | return %ghost
  |        ^^^^^^"""
    )


def test_a_single_violation_is_reported_without_a_count() -> None:
    module = change_operation(1, results=(Value(ROW.with_dtype("f64"), "d"),))
    module = replace(
        module,
        functions=(
            replace(
                module.main,
                body=replace(module.main.body, returns=module.main.body.ops[1].results),
            ),
        ),
    )
    with pytest.raises(VerifyError) as error:
        verify(module)

    assert (
        str(error.value)
        == """\
the result of exp is f32[8], not f64[8]
 --> @f
  |
  | %d = exp(%c) : f64[8]
  |                ^^^^^^"""
    )


def test_a_violation_has_its_operation_and_value() -> None:
    module = parse(PROGRAM)
    ghost = Value(ROW, "ghost")
    op = replace(module.main.body.ops[0], operands=(ghost, ghost))
    body = replace(module.main.body, ops=(op, *module.main.body.ops[1:]))
    fault = find_faults(replace(module, functions=(replace(module.main, body=body),)))[0]

    assert fault.op is op
    assert fault.value is ghost
    assert fault.loc == Loc("mlp.py", 12, 9)


def test_names_and_definitions_are_unique() -> None:
    a, other = Value(ROW, "a"), Value(ROW, "a")

    assert messages(of_params(a, other)) == ["two values are called %a"]
    assert messages(of_params(a, a)) == ["%a is defined twice"]
    assert messages(of_params(Value(ROW), Value(ROW))) == []


def test_a_value_is_used_after_its_definition() -> None:
    module = parse(PROGRAM)
    body = module.main.body
    late = replace(body, ops=tuple(reversed(body.ops)))

    assert messages(replace(module, functions=(replace(module.main, body=late),))) == [
        "%c is used before it is defined"
    ]


def test_blocks_may_use_outer_values_but_not_the_reverse() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %s = scan(%x, carries=1, length=3) : f32[4] {
    (%c: f32[4]) =>
    %n = add(%c, %x) : f32[4]
    yield %n
  }
  return %s
}
"""
    module = parse(text)
    verify(module)
    body = module.main.body
    inner = body.ops[0].blocks[0].ops[0].result

    assert messages(Module((), (replace(module.main, body=replace(body, returns=(inner,))),))) == [
        "%n is defined in a block that has ended; let the block yield it"
    ]


def test_block_signatures_match_their_operation() -> None:
    x = Value(ROW, "x")
    block = Block((), (), ())
    result = Value(ROW, "y")
    scan = Op(OPS["scan"], (x,), (result,), {"carries": 1, "length": 2}, (block,))
    two = replace(scan, blocks=(block, block))
    for op, message in (
        (scan, "scan: its body takes (), expected (f32[8])"),
        (two, "scan: takes 1 block, got 2"),
    ):
        body = Block((x,), (op,), (result,))
        assert messages(Module((), (Function("f", body, (None,)),))) == [message]


@pytest.mark.parametrize(
    ("attr", "kind"),
    [([1, 0], "list"), (np.int64(1), "int64"), ((1, np.float32(0)), "float32"), (None, "NoneType")],
)
def test_attributes_have_types_with_a_text_form(attr: Any, kind: str) -> None:
    x = Value(TensorType((2, 2), "f32"), "x")
    op = Op(OPS["transpose"], (x,), (Value(x.type, "y"),), {"perm": attr})
    found = messages(Module((), (Function("f", Block((x,), (op,), ()), ()),)))

    assert found[0] == (
        f"attribute 'perm' of transpose is a {kind}; attributes are bool, int, float, complex, "
        "str, Symbol, Axis, Dense, or tuples of them"
    )


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [
        (Sharding.open("n", 2), ["no mesh is called 'n'; the module has @m"]),
        (Sharding.open("m", 1), ["the sharding is of rank 1, the tensor of rank 2"]),
        (
            Sharding.of("m", [(Axis("z", 1, 2),), ()]),
            ["mesh @m has no axis called 'z'; it has x, y"],
        ),
        (
            Sharding.of("m", [(Axis("x", 1, 3),), ()]),
            ["axis 'x' of size 4 has no sub-axis (1)3; 1 * 3 must divide 4"],
        ),
        (
            Sharding.of("m", [(Axis("x", 2, 1),), ()]),
            ["x:(2)1 is a sub-axis of size 1, which does not shard; leave it out"],
        ),
        (Sharding.of("m", [(X4,), (X4,)]), ["x is used twice in one sharding"]),
        (
            Sharding("m", (DimSharding((X4,)), REPLICATED_DIM), (X4,)),
            ["x is used twice in one sharding"],
        ),
        (
            Sharding("m", (DimSharding((X4,)), REPLICATED_DIM), (), (Axis("x", 1, 2),)),
            ["x and x:(1)2 share positions of 'x'"],
        ),
        (
            Sharding.of("m", [(Axis("x", 1, 2), Axis("x", 2, 2)), ()]),
            ["x:(1)2 and x:(2)2 follow one another; write x"],
        ),
        (
            Sharding("m", (REPLICATED_DIM, REPLICATED_DIM), (Y2, X4)),
            ["replicated axes are in the order of the mesh; write replicated(x, y)"],
        ),
        (
            Sharding("m", (REPLICATED_DIM, REPLICATED_DIM), (), (Y2, X4)),
            ["unreduced axes are in the order of the mesh; write unreduced(x, y)"],
        ),
        (
            Sharding("m", (REPLICATED_DIM, REPLICATED_DIM), (), (X4,), "mean"),
            ["partial values cannot be combined by 'mean'; it is one of add, max, min, mul"],
        ),
        (
            Sharding("m", (DimSharding((), False, 1), REPLICATED_DIM)),
            ["a closed dimension without axes must not have the priority p1"],
        ),
        (
            Sharding("m", (DimSharding((X4,), True, -1), REPLICATED_DIM)),
            ["a priority is 0 or more, not -1"],
        ),
    ],
)
def test_shardings_are_well_formed(sharding: Sharding, expected: list[str]) -> None:
    assert of_sharding(sharding) == expected


@pytest.mark.parametrize(
    ("dtype", "reduction", "expected"),
    [
        ("f32", "max", []),
        ("bool", "add", []),
        ("c64", "mul", []),
        ("c64", "max", ["values of c64 do not combine by max"]),
        ("key", "add", ["values of key do not combine by add"]),
    ],
)
def test_unreduced_values_have_a_dtype_that_combines(
    dtype: str, reduction: str, expected: list[str]
) -> None:
    sharding = Sharding("m", (), unreduced=(X4,), reduction=reduction)

    assert messages(of_params(Value(TensorType((), dtype), "v", sharding))) == expected


def test_sub_axes_fit_into_one_reshape() -> None:
    mesh = Mesh("m", (("x", 6),))
    sharding = Sharding.of("m", [(Axis("x", 1, 2),), (Axis("x", 3, 2),)])
    value = Value(TensorType((8, 8), "f32"), "v", sharding)

    assert messages(of_params(value, mesh=mesh)) == [
        "x:(1)2 and x:(3)2 are not parts of one split of 'x'"
    ]


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        (Mesh("m", (("x", 2), ("x", 2))), "mesh @m has two axes called 'x'"),
        (Mesh("m", (("x", 0),)), "mesh @m: axis 'x' has size 0; a mesh axis has at least size 1"),
        (Mesh("m", (("x", 2),), (0, 2)), "mesh @m needs the device ids 0 to 1 in some order"),
        (Mesh("m", (), (0, 2)), "mesh @m without axes needs one device id, it has [0, 2]"),
    ],
)
def test_meshes_are_well_formed(mesh: Mesh, expected: str) -> None:
    assert messages(of_params(mesh=mesh)) == [expected]


def test_names_of_meshes_and_functions_are_unique() -> None:
    function = of_params().main

    assert messages(Module((MESH, MESH), (function, function))) == [
        "two meshes are called @m",
        "two functions are called @f",
    ]


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (TensorType((2,), "f33"), "no element type is called 'f33'; did you mean 'f32'?"),
        (TensorType((-1,), "f32"), "-1 is not a dimension size; sizes are integers of 0 or more"),
    ],
)
def test_types_are_well_formed(type: TensorType, expected: str) -> None:
    assert messages(of_params(Value(type, "v"))) == [expected]


SPMD = """\
mesh @m = [x=4, y=2]

spmd func @f(
  %a: f32[2] of f32[8@x],
) -> (f32[2] of f32[8@x]) {
  %b = all-reduce(%a, axes=[y], op=add) : f32[2]
  return %b
}
"""


def test_collectives_require_per_device_programs() -> None:
    module = parse(SPMD)
    verify(module)

    assert messages(replace(module, functions=(replace(module.main, spmd=None),))) == [
        "all-reduce is allowed only in an spmd function or a manual_computation; "
        "partition the module first"
    ]


def test_results_of_manual_computations_are_on_a_mesh_with_the_manual_axes() -> None:
    text = """\
mesh @m = [x=8]
mesh @other = [a=2]

func @main(%0: i8[4]) -> (i8[4]) {
  %1 = manual_computation(%0, axes=[x], in_axes=[[[]]], out_axes=[[[]]]) : i8[4@a] on @other {
    (%2: i8[4]) =>
    yield %2
  }
  return %1
}
"""

    assert messages(parse(text)) == [
        "the sharding of %1 is on the mesh @other, which lacks the manual axis 'x'"
    ]


def test_shardings_in_per_device_programs_are_errors() -> None:
    text = SPMD.replace("all-reduce(%a, axes=[y], op=add) : f32[2]", "reshard(%a) : f32[2@y]")

    assert messages(parse(text)) == [
        "reshard has no meaning in an spmd function, whose values are local",
        "values of an spmd function are local and have no sharding",
    ]


def test_local_shapes_follow_from_the_global_ones() -> None:
    module = parse(SPMD.replace("of f32[8@x]", "of f32[9@x]", 1))

    assert str(find_faults(module)[0]) == (
        """\
a shard of f32[9@x] is f32[3], not f32[2]
 --> @f
  |
  | func @f(%a: f32[2])
  |         ^^^^^^^^^^"""
    )
    assert messages(parse(SPMD.replace("of f32[8@x]) {", "of f32[8@y]) {"))) == [
        "a shard of f32[8@y] is f32[4], not f32[2]"
    ]


def test_uneven_shards_are_rounded_up() -> None:
    verify(parse(SPMD.replace("of f32[8@x]", "of f32[7@x]")))


def test_axes_of_collectives_must_exist() -> None:
    module = parse(SPMD)
    body = module.main.body
    for axis, message in (
        (Axis("z", 1, 2), "no mesh has an axis called 'z'"),
        (Axis("x", 1, 3), "axis 'x' of size 4 has no sub-axis (1)3; 1 * 3 must divide 4"),
    ):
        op = replace(body.ops[0], attrs={**body.ops[0].attrs, "axes": (axis,)})
        broken = replace(module.main, body=replace(body, ops=(op,)))
        assert messages(replace(module, functions=(broken,))) == [message]


def test_the_number_of_result_shardings_equals_the_number_of_results() -> None:
    module = parse(PROGRAM)

    assert messages(replace(module, functions=(replace(module.main, result_shardings=()),))) == [
        "@f returns 1 value, but requests 0 shardings"
    ]
    bad = Sharding.of("m", [(X4, X4)])
    assert messages(
        replace(module, functions=(replace(module.main, result_shardings=(bad,)),))
    ) == ["x is used twice in one sharding"]
