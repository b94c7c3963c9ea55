"""MLIR text to modules: both forms, shardings, calls, and operations without counterpart."""

import pytest

from shardir.errors import ParseError
from shardir.ir.mesh import Mesh
from shardir.passes import Propagate
from shardir.passes.simplify.inline_calls import inline_calls
from shardir.stablehlo.reader import read, split_modules
from shardir.text.printer import print_module as show_ir
from shardir.verify.verifier import verify
from tests.stablehlo_text import MLP


def test_a_program_as_jax_prints_it() -> None:
    module = read(MLP)

    verify(module)
    assert (
        show_ir(module)
        == """\
mesh @mesh = [data=4, model=2]

func @main(
  %arg0: f32[32@-, 64@model],
  %arg1: f32[16@data, 32@-],
) -> (f32[16]) {
  %0 = dot(%arg1, %arg0, dims="ab,bc->ac") : f32[16, 64]
  %1 = call(%0, callee="relu") : f32[16, 64] {
    (%arg0.1: f32[16, 64]) =>
    %cst = constant(value=0.0) : f32[]
    %v0 = broadcast(%cst, dims=[]) : f32[16, 64]
    %v1 = maximum(%arg0.1, %v0) : f32[16, 64]
    yield %v1
  }
  %2 = sum(%1, dims=[1]) : f32[16]
  return %2
}
"""
    )


def body(*lines: str, params: str = "%x: tensor<8x4xf32>", head: str = "") -> str:
    """Return the operations that these lines become, one per line."""
    text = "\n".join(["%done = stablehlo.constant dense<0> : tensor<i32>", "return"])
    module = read(f"{head}\nfunc.func @f({params}) {{\n" + "\n".join(lines) + f"\n{text}\n}}")
    verify(module)
    printed = show_ir(module).partition("{\n")[2].splitlines()
    return "\n".join(line.strip() for line in printed[:-3])


@pytest.mark.parametrize(
    ("written", "read_as"),
    [
        ("stablehlo.exponential %x : tensor<8x4xf32>", "exp(%x) : f32[8, 4]"),
        ("stablehlo.compare GT, %x, %x, FLOAT : (tensor<8x4xf32>, tensor<8x4xf32>) -> "
         "tensor<8x4xi1>", "gt(%x, %x) : bool[8, 4]"),
        ("stablehlo.slice %x [0:8:2, 1:3] : (tensor<8x4xf32>) -> tensor<4x2xf32>",
         "slice(%x, starts=[0, 1], strides=[2, 1]) : f32[4, 2]"),
        ('"stablehlo.slice"(%x) <{start_indices = array<i64: 1, 0>, limit_indices = array<i64: 8,'
         " 4>, strides = array<i64: 1, 2>}> : (tensor<8x4xf32>) -> tensor<7x2xf32>",
         "slice(%x, starts=[1, 0], strides=[1, 2]) : f32[7, 2]"),
        ("stablehlo.transpose %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>",
         "transpose(%x, perm=[1, 0]) : f32[4, 8]"),
        ("stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>",
         "broadcast(%y.transpose, dims=[0, 1]) : f32[4, 8]"),
        ("stablehlo.iota dim = 1 : tensor<8x4xi32>", "iota(dim=1) : i32[8, 4]"),
        ("stablehlo.convert %x : (tensor<8x4xf32>) -> tensor<8x4xi8>", "convert(%x) : i8[8, 4]"),
        ("chlo.erf %x : tensor<8x4xf32> -> tensor<8x4xf32>", "erf(%x) : f32[8, 4]"),
        ('stablehlo.constant dense<"0x000080BF0000003F"> : tensor<2xf32>',
         "constant(value=dense(f32, [-1.0, 0.5])) : f32[2]"),
        ('stablehlo.constant dense<"0x02"> : tensor<3xi1>',
         "constant(value=dense(bool, [false, true, false])) : bool[3]"),
        ("stablehlo.constant dense<0xFF800000> : tensor<4xf32>", "constant(value=-inf) : f32[4]"),
        ("stablehlo.constant dense<(1.0, -2.0)> : tensor<complex<f32>>",
         "constant(value=complex(1.0, -2.0)) : c64[]"),
        ("stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xui8>",
         "constant(value=dense(u8, [[1, 2], [3, 4]])) : u8[2, 2]"),
        ("chlo.top_k(%x, k = 2) : tensor<8x4xf32> -> (tensor<8x2xf32>, tensor<8x2xi32>)",
         "top_k(%x) : f32[8, 2], i32[8, 2]"),
        ("sdy.propagation_barrier %x allowed_direction=FORWARD : tensor<8x4xf32>",
         "propagation_barrier(%x, direction=forward) : f32[8, 4]"),
    ],
)  # fmt: skip
def test_both_forms_of_operations(written: str, read_as: str) -> None:
    names = "%y:2" if "top_k" in written else "%y"
    line = body(f"{names} = {written}").splitlines()[-1]
    assert line.partition(" = ")[2] == read_as


def test_dimension_numbers_of_a_convolution() -> None:
    text = body(
        "%y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {stride = [2, 2], pad = [[1, 0], [1, 1]], reverse = [false, true]} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : "
        "(tensor<2x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x4x4x4xf32>",
        params="%x: tensor<2x8x8x3xf32>, %w: tensor<3x3x3x4xf32>",
    )
    assert text == (
        "%y.reverse = reverse(%w, dims=[1]) : f32[3, 3, 3, 4]\n"
        "%y = convolution(%x, %y.reverse, strides=[2, 2], padding=[[1, 0], [1, 1]], "
        'lhs_dilation=[1, 1], rhs_dilation=[1, 1], dims="b01f,01io->b01f", groups=1, '
        "batch_groups=1) : f32[2, 4, 4, 4]"
    )


def test_loops_and_branches() -> None:
    text = body(
        "%c = stablehlo.constant dense<3> : tensor<i32>",
        "%r:2 = stablehlo.while(%i = %c, %y = %x) : tensor<i32>, tensor<8x4xf32> cond {",
        "  %p = stablehlo.compare LT, %i, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "  stablehlo.return %p : tensor<i1>",
        "} do {",
        "  %z = stablehlo.add %y, %x : tensor<8x4xf32>",
        "  stablehlo.return %i, %z : tensor<i32>, tensor<8x4xf32>",
        "}",
        '%q = "stablehlo.if"(%b) ({',
        "  stablehlo.return %r#1 : tensor<8x4xf32>",
        "}, {",
        "  stablehlo.return %x : tensor<8x4xf32>",
        "}) : (tensor<i1>) -> tensor<8x4xf32>",
        params="%x: tensor<8x4xf32>, %b: tensor<i1>",
    )
    assert text == (
        "%c = constant(value=3) : i32[]\n"
        "%r.0, %r.1 = while(%c, %x) : i32[], f32[8, 4] {\n"
        "(%i: i32[], %y: f32[8, 4]) =>\n"
        "%p = lt(%i, %c) : bool[]\n"
        "yield %p\n"
        "} {\n"
        "(%i.1: i32[], %y.1: f32[8, 4]) =>\n"
        "%z = add(%y.1, %x) : f32[8, 4]\n"
        "yield %i.1, %z\n"
        "}\n"
        "%q = case(%b) : f32[8, 4] {\n"
        "yield %x\n"
        "} {\n"
        "yield %r.1\n"
        "}"
    )


@pytest.mark.parametrize(
    ("init", "made"),
    [
        ("0.0", "%y = sum(%x, dims=[0]) : f32[4]"),
        (
            "1.0",
            "%c = constant(value=1.0) : f32[]\n"
            "%y.sum = sum(%x, dims=[0]) : f32[4]\n"
            "%y.broadcast = broadcast(%c, dims=[]) : f32[4]\n"
            "%y = add(%y.broadcast, %y.sum) : f32[4]",
        ),
    ],
)
def test_a_reduction_combines_its_initial_value(init: str, made: str) -> None:
    text = body(
        f"%c = stablehlo.constant dense<{init}> : tensor<f32>",
        "%y = stablehlo.reduce(%x init: %c) across dimensions = [0] : "
        "(tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>",
        " reducer(%a: tensor<f32>, %b: tensor<f32>) {",
        "  %s = stablehlo.add %b, %a : tensor<f32>",
        "  stablehlo.return %s : tensor<f32>",
        "}",
    )
    assert text == made


SHARDINGS = [
    ('[{"a"}, {?}]', "8@a, 4"),
    ('[{"b":(1)2, ?}p1, {"b":(2)2}p0]', "8@b:(1)2? p1, 4@b:(2)2 p0"),
    ('[{"a", "b"}, {}]', "8@(a, b), 4@-"),
]


@pytest.mark.parametrize(("written", "read_as"), SHARDINGS)
def test_shardings(written: str, read_as: str) -> None:
    text = body(
        f"%y = sdy.sharding_constraint %x <@m, {written}> : tensor<8x4xf32>",
        "%z = stablehlo.negate %x {sdy.sharding = #sdy.sharding_per_value<[<@m, "
        f"{written}, replicated={{}}, unreduced={{}}>]>}} : tensor<8x4xf32>",
        head='sdy.mesh @m = <["a"=2, "b"=4]>',
    )
    assert text == f"%y = sharding_constraint(%x) : f32[{read_as}]\n%z = neg(%x) : f32[{read_as}]"


def test_replicated_and_unreduced_axes() -> None:
    text = body(
        '%y = sdy.reshard %x <@m, [{}, {}], replicated={"b":(1)2}, unreduced=max{"a"}> : '
        "tensor<8x4xf32>",
        head='sdy.mesh @m = <["a"=2, "b"=4]>',
    )
    assert text == "%y = reshard(%x) : f32[8@-, 4@-] replicated(b:(1)2) unreduced[max](a)"


def test_meshes_of_shardings_become_meshes_of_the_module() -> None:
    module = read(
        'func.func @f(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["a"=2]>, [{"a"}]>},'
        " %y: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<[], device_ids=[3]>, []>},"
        ' %z: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["a"=4]>, [{}]>},'
        ' %w: tensor<8xf32> {sdy.sharding = #sdy.sharding<mesh<["a"=2]>, [{}]>}) { return }'
    )
    verify(module)
    assert module.meshes == (
        Mesh("mesh", (("a", 2),)),
        Mesh("maximal_mesh_3", (), (3,)),
        Mesh("mesh_0", (("a", 4),)),
    )
    said = [param.sharding for param in module.main.body.params]
    assert [s and s.mesh for s in said] == ["mesh", "maximal_mesh_3", "mesh_0", "mesh"]


def test_meshes_with_another_device_order() -> None:
    module = read(
        'sdy.mesh @a = <["x"=2], device_ids=[1, 0]>\nsdy.mesh @b = <["x"=2], device_ids=[0, 1]>\n'
        "func.func @f() { return }"
    )
    assert [mesh.device_ids for mesh in module.meshes] == [(1, 0), None]


def test_each_call_has_the_shardings_of_the_function() -> None:
    text = """\
sdy.mesh @m = <["a"=2]>
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = call @g(%x) : (tensor<8xf32>) -> tensor<8xf32>
  %1 = call @g(%0) : (tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}
func.func private @g(%y: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}) \
-> tensor<8xf32> {
  %z = stablehlo.sine %y : tensor<8xf32>
  return %z : tensor<8xf32>
}
"""
    module = read(text)
    assert [function.name for function in module.functions] == ["main"]
    assert "\n".join(show_ir(module).splitlines()[5:15]) == (
        '  %0 = call(%x, callee="g") : f32[8] {\n'
        "    (%y: f32[8@a]) =>\n"
        "    %z = sin(%y) : f32[8]\n"
        "    yield %z\n"
        "  }\n"
        '  %1 = call(%0, callee="g") : f32[8] {\n'
        "    (%y.1: f32[8@a]) =>\n"
        "    %z.1 = sin(%y.1) : f32[8]\n"
        "    yield %z.1\n"
        "  }"
    )
    inlined = inline_calls(Propagate()(module))
    assert "\n".join(show_ir(inlined).splitlines()[5:7]) == (
        "  %0 = sin(%x) : f32[8@a]\n  %1 = sin(%0) : f32[8@a]"
    )


def test_locations_refer_to_the_source_line_of_the_user() -> None:
    module = read("""\
#loc1 = loc("mlp.py":12:9)
func.func @f(%x: tensor<8xf32> loc("x")) {
  %0 = stablehlo.sine %x : tensor<8xf32> loc(#loc2)
  %1 = stablehlo.sine %x : tensor<8xf32> loc("s"("a b.py":3:1))
  %2 = stablehlo.sine %x : tensor<8xf32> loc(unknown)
  return loc(#loc1)
} loc(#loc1)
#loc2 = loc(callsite("sin"(#loc1) at #loc1))
""")
    assert [str(op.loc) for op in module.main.body.ops] == ["mlp.py:12", "a b.py:3", "None"]


def test_the_main_function_is_the_program() -> None:
    module = read("func.func @f() { return }\nfunc.func @main() { return }")
    assert [function.name for function in module.functions] == ["main", "f"]


def test_the_generic_form_of_a_module() -> None:
    module = read("""\
"builtin.module"() <{sym_name = "jit"}> ({
  "sdy.mesh"() <{mesh = #sdy.mesh<["a"=2]>, sym_name = "m"}> : () -> ()
  "func.func"() <{function_type = (tensor<8xf32>) -> tensor<8xf32>, sym_name = "main",
                  arg_attrs = [{sdy.sharding = #sdy.sharding<@m, [{"a"}]>}]}> ({
  ^bb0(%arg0: tensor<8xf32>):
    %0 = "stablehlo.tanh"(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
    "func.return"(%0) : (tensor<8xf32>) -> ()
  }) : () -> ()
}) : () -> ()
""")
    assert show_ir(module).splitlines()[2:] == [
        "func @main(",
        "  %arg0: f32[8@a],",
        ") -> (f32[8]) {",
        "  %0 = tanh(%arg0) : f32[8]",
        "  return %0",
        "}",
    ]


def test_parts_of_a_file_keep_their_line_numbers() -> None:
    parts = split_modules("// -----\nfunc.func @f() { return }\n// -----\n\nfunc.func @g() { }\n")
    assert [part.strip() for part in parts] == [
        "func.func @f() { return }",
        "func.func @g() { }",
    ]
    with pytest.raises(ParseError) as error:
        read(parts[1], "two.mlir")
    assert (error.value.line, error.value.column) == (5, 18)
