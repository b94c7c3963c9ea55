"""Errors of invalid MLIR text: the message and the location."""

import pytest

from shardir.errors import ParseError
from shardir.stablehlo.reader import read

MESH = 'sdy.mesh @m = <["a"=2, "b"=4]>\n'


def failing(text: str) -> ParseError:
    with pytest.raises(ParseError) as error:
        read(text, "f.mlir")
    return error.value


def test_an_error_points_at_its_source_line() -> None:
    error = failing(
        "func.func @f(%x: tensor<8xf32>) {\n  %y = stablehlo.sine %xx : tensor<8xf32>\n}"
    )

    assert str(error) == (
        "%xx is not defined here; did you mean '%x'?\n"
        " --> f.mlir:2:23\n"
        "  |\n"
        "2 |   %y = stablehlo.sine %xx : tensor<8xf32>\n"
        "  |                       ^^^"
    )


def function(body: str, params: str = "%x: tensor<8xf32>", results: str = "") -> str:
    return f"{MESH}func.func @f({params}){results} {{\n{body}\n}}"


def parameter(sharding: str) -> str:
    return function("return", f"%x: tensor<8xf32> {{sdy.sharding = #sdy.sharding<{sharding}>}}")


@pytest.mark.parametrize(
    ("text", "message", "pointed"),
    [
        (function("%y = stablehlo.sine %x : tensor<8xf32"), "unexpected '<'", "<"),
        (
            "func.func @f() {\n  return",
            "'{' is not closed; write '}' before the end of the text",
            "{",
        ),
        (function("%x = stablehlo.sine %x : tensor<8xf32>"), "%x is defined twice", "%x"),
        (
            function("%y = stablehlo.sine %x : (tensor<4xf32>) -> tensor<8xf32>"),
            "this operand is %x of type f32[8]",
            "tensor<4xf32>",
        ),
        (
            function("%y = stablehlo.sine %x : tensor<4xf32>"),
            "the result of stablehlo.sine is f32[8], not f32[4]",
            "tensor<4xf32>",
        ),
        (
            function("return", "%x: tensor<?x8xf32>"),
            "this type has a size that is known only at run time, and shapes are static; lower "
            "the program for each shape",
            "tensor<?x8xf32>",
        ),
        (
            function("return", "%x: tensor<*xf32>"),
            "this type has no rank, and shapes are static; lower the program for each shape",
            "tensor<*xf32>",
        ),
        (
            function("return", "%x: tensor<8x!quant.uniform<i8:f32, 0.5>>"),
            "quantized types are not supported; use an integer or float8 type, with its scale as "
            "an operand",
            "tensor<8x!quant.uniform<i8:f32, 0.5>>",
        ),
        (
            function("return", "%x: tuple<tensor<4xf32>>"),
            "this is not the type of a value; values are tensors",
            "tuple<tensor<4xf32>>",
        ),
        (
            function("return", "%x: tensor<8xi3>"),
            "there is no element type for 'i3'; there are i1, i2, i4, i8, i16, i32, i64, "
            "ui2, ui4, ui8, ui16, ui32, ui64, f4E2M1FN, f8E3M4, f8E4M3, f8E4M3FN, f8E4M3B11FNUZ, "
            "f8E4M3FNUZ, f8E5M2, f8E5M2FNUZ, f8E8M0FNU, f16, bf16, f32, f64, complex<f32>, "
            "complex<f64>",
            "tensor<8xi3>",
        ),
        (parameter("@n, [{}]"), "no mesh is called 'n'; there is @m", "@n"),
        (parameter('@m, [{"c"}]'), "mesh @m has no axis called 'c'; it has a, b", '"c"'),
        (
            parameter('@m, [{"b":(3)2}]'),
            "axis 'b' of size 4 has no sub-axis (3)2; 3 * 2 must divide 4",
            '"b"',
        ),
        (
            parameter("@m, [{}, {}]"),
            "this sharding is of rank 2, the tensor is f32[8]",
            "#sdy.sharding<@m, [{}, {}]>",
        ),
        (parameter("@m, {}"), "unexpected '{', expected '['", "{"),
        (
            parameter('@m, [{"a"}px]'),
            "unexpected 'px', expected ',' or a priority such as p1 or ']'",
            "px",
        ),
        (
            parameter('@m, [{}], unreduced=mean{"a"}'),
            "partial values combine by sum, add, max, min, mul, not by 'mean'",
            "mean",
        ),
        (
            function(
                "%y = stablehlo.sine %x {sdy.sharding = #sdy.sharding_per_value<[<@m, [{}]>, "
                "<@m, [{}]>]>} : tensor<8xf32>"
            ),
            "1 value cannot have 2 shardings",
            "#sdy.sharding_per_value<[<@m, [{}]>, <@m, [{}]>]>",
        ),
        (function(""), "a block ends with a return", "}"),
        (function("return %x : tensor<8xf32>"), "@f returns 1 value, but states 0 results", "@f"),
        (
            function("return %x : tensor<8xf32>", results=" -> tensor<4xf32>"),
            "@f returns %x of type f32[8], not f32[4]",
            "tensor<4xf32>",
        ),
        (
            function("%y = call @ff(%x) : (tensor<8xf32>) -> tensor<8xf32>"),
            "no function is called 'ff'; did you mean 'f'?",
            "@ff",
        ),
        (
            function("%y = call @f(%x) : (tensor<8xf32>) -> tensor<8xf32>"),
            "@f calls itself; write the recursion as a loop, with stablehlo.while",
            "@f",
        ),
        (
            function("%y = stablehlo.constant dense<[1, 2]> : tensor<3xi32>"),
            "these are elements of shape [2], not i32[3]",
            "dense<[1, 2]>",
        ),
        (
            function("%y = stablehlo.constant dense<300> : tensor<3xi8>"),
            "'300' is not an element of i8",
            "300",
        ),
        (
            function('%y = stablehlo.constant dense<"0x0000"> : tensor<3xi8>'),
            "these are 2 bytes, i8[3] has 3",
            'dense<"0x0000">',
        ),
        (
            function("%y = stablehlo.transpose %x : (tensor<8xf32>) -> tensor<8xf32>"),
            "stablehlo.transpose lacks its attribute 'dims'",
            "stablehlo.transpose",
        ),
        (MESH + MESH, "two meshes are called @m", "@m"),
        (
            'sdy.mesh @m = <["a"=2], device_ids=[0, 2]>',
            "this mesh needs the ids 0 to 1 in some order",
            '<["a"=2], device_ids=[0, 2]>',
        ),
        (
            function("%y = stablehlo.foo %x"),
            "stablehlo.foo does not state the type of its result",
            "stablehlo.foo",
        ),
        ('"foo.bar"() : () -> ()', "a module may contain only meshes and functions", '"foo.bar"'),
    ],
)
def test_invalid_text_has_an_exact_error(text: str, message: str, pointed: str) -> None:
    error = failing(text)
    line = text.splitlines()[error.line - 1]

    assert str(error).splitlines()[0] == message
    assert line[error.column - 1 :].startswith(pointed)
    assert str(error).count("^") == max(len(pointed), 1)


def test_deeply_nested_text_is_an_error() -> None:
    text = "func.func @f() {\n" + '"a.b"() ({' * 5000 + "}) : () -> ()" * 5000 + "}"
    error = failing(text)
    assert str(error).splitlines()[0] in ("this text is nested too deeply", "unexpected '}'")


def chain(length: int) -> str:
    """Return functions each of which calls the next one twice."""
    type = "tensor<4xf32>"
    parts = []
    for i in range(length):
        name = f"private @f{i}" if i else "public @main"
        call = f"func.call @f{i + 1}(%x) : ({type}) -> {type}"
        again = f"func.call @f{i + 1}(%0) : ({type}) -> {type}"
        lines = (f"%0 = {call}\n%1 = {again}" if i + 1 < length
                 else f"%1 = stablehlo.negate %x : {type}")  # fmt: skip
        parts.append(
            f"func.func {name}(%x: {type}) -> {type} {{\n{lines}\nreturn %1 : {type}\n}}\n"
        )
    return "".join(parts)


def test_functions_are_called_up_to_a_limit() -> None:
    negations = [op for op in read(chain(8)).main.body.walk() if op.name == "neg"]
    assert len(negations) == 2**7
    for length in (23, 60):
        assert str(failing(chain(length))).splitlines()[:2] == [
            "@main would have more than 200000 operations in called functions; "
            "call fewer functions, or loop with stablehlo.while",
            " --> f.mlir:2:16",
        ]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("[[0, 2], [1, ,]]", "unexpected ','"),
        ("[[0, 2], [1  3]]", "unexpected '3', expected ',' or ']'"),
        ("[[0, 2], [1, 99999999999999999999999999999999]]", "not an element of i64"),
        ("[[0, 2], [1]]", "the rows of a constant have one shape"),
        ("[0, 1, 2, 3]", "these are elements of shape [4], not i64[2, 2]"),
    ],
)
def test_device_groups_are_parsed_by_the_grammar(groups: str, message: str) -> None:
    error = failing(
        'sdy.mesh @m = <["a"=2, "b"=2]>\n'
        "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
        '%0 = sdy.manual_computation(%x) in_shardings=[<@m, [{"a"}]>] '
        'out_shardings=[<@m, [{"a"}]>] manual_axes={"a", "b"} (%y: tensor<2xf32>) {\n'
        '%1 = "stablehlo.all_reduce"(%y) '
        f"<{{replica_groups = dense<{groups}> : tensor<2x2xi64>}}> ({{\n"
        "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n"
        "%2 = stablehlo.add %p, %q : tensor<f32>\nstablehlo.return %2 : tensor<f32>\n"
        "}) : (tensor<2xf32>) -> tensor<2xf32>\n"
        "sdy.return %1 : tensor<2xf32>\n} : (tensor<4xf32>) -> tensor<4xf32>\n"
        "return %0 : tensor<4xf32>\n}\n"
    )
    assert message in str(error).splitlines()[0]
    assert error.line == 4
