"""Calls of functions in StableHLO text: reading, and writing with one function for equal calls."""

import numpy as np
import pytest

from shardir.errors import ParseError, VerifyError
from shardir.frontend.random_programs.programs import random_program
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.equality import find_difference
from shardir.ir.module import Module, Op
from shardir.ops.opaque import unknown_operations
from shardir.passes import Pipeline
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import print_module
from shardir.verify.verifier import verify

TYPE = "tensor<8xf32>"
MESH = 'sdy.mesh @m = <["a"=2, "b"=2]>\n'


def program(main: str, *functions: str, params: str = f"%x: {TYPE}") -> str:
    """Return the text of a program whose main function returns `%y`."""
    body = "\n".join(f"  {line}" for line in main.splitlines())
    head = f"func.func @main({params}) -> {TYPE} {{\n{body}\n  return %y : {TYPE}\n}}\n"
    return MESH + head + "".join(functions)


def function(name: str, *lines: str, attrs: str = "", result: str = "%r") -> str:
    """Return the text of a private function of one parameter, `%a`."""
    body = "".join(f"  {line}\n" for line in lines)
    return (
        f"func.func private @{name}(%a: {TYPE} {attrs}) -> {TYPE} {{\n{body}"
        f"  return {result} : {TYPE}\n}}\n"
    )


def called(name: str, callee: str, operand: str, attrs: str = "") -> str:
    return f"%{name} = call @{callee}(%{operand}) {attrs} : ({TYPE}) -> {TYPE}"


SINE = f"%r = stablehlo.sine %a : {TYPE}"
ALONG_A = '{sdy.sharding = #sdy.sharding_per_value<[<@m, [{"a"}]>]>}'
ALONG_B = '{sdy.sharding = #sdy.sharding_per_value<[<@m, [{"b"}]>]>}'


def functions_of(text: str) -> list[str]:
    """Return the names of the functions of a text."""
    return [line.split("@")[1].split("(")[0] for line in text.splitlines() if "func.func" in line]


def calls_of(module: Module) -> list[Op]:
    return [op for op in module.main.body.walk() if op.name == "call"]


def read_valid(text: str) -> Module:
    module = read(text, "f.mlir")
    verify(module)
    return module


def test_equal_calls_share_one_function() -> None:
    names = ["x", *(f"v{i}" for i in range(95))]
    lines = [called(after, "layer", before) for before, after in zip(names, [*names[1:], "y"],
                                                                      strict=True)]  # fmt: skip
    module = read_valid(program("\n".join(lines), function("layer", SINE)))
    for passes in ("none", "propagate", "propagate,reshard,partition,cse,dce"):
        text = show(Pipeline.parse(passes)(module))
        assert functions_of(text) == ["main", "layer"]
        assert text.count("stablehlo.sine") == 1
        assert text.count('"func.call"') == 96


def test_each_signature_of_shardings_has_a_function() -> None:
    text = program(
        "\n".join(
            [
                called("0", "f", "x", ALONG_A),
                called("1", "f", "w", ALONG_B),
                called("2", "f", "v", ALONG_A),
                f"%3 = stablehlo.add %0, %2 : {TYPE}",
                f"%y = stablehlo.add %1, %3 : {TYPE}",
            ]
        ),
        function("f", SINE),
        params=", ".join(f"%{name}: {TYPE}" for name in "xwv"),
    )
    done = Pipeline.parse("propagate")(read_valid(text))
    lines = show(done).splitlines()
    assert [line.strip() for line in lines if "func.call" in line or "private" in line] == [
        '%0 = "func.call"(%x) <{callee = @f}> {sdy.sharding = #sdy.sharding_per_value<'
        '[<@m, [{"a"}]>]>} : (tensor<8xf32>) -> (tensor<8xf32>)',
        '%1 = "func.call"(%w) <{callee = @f.1}> {sdy.sharding = #sdy.sharding_per_value<'
        '[<@m, [{"b"}]>]>} : (tensor<8xf32>) -> (tensor<8xf32>)',
        '%2 = "func.call"(%v) <{callee = @f}> {sdy.sharding = #sdy.sharding_per_value<'
        '[<@m, [{"a"}]>]>} : (tensor<8xf32>) -> (tensor<8xf32>)',
        'func.func private @f(%a: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}) -> '
        '(tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"a"}]>}) {',
        'func.func private @f.1(%a.1: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"b"}]>}) '
        '-> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"b"}]>}) {',
    ]


def test_partitioned_functions_have_the_collectives_of_their_signature() -> None:
    """The call along `b` returns a replicated value, so that its function has an all-gather."""
    whole = "{sdy.sharding = #sdy.sharding_per_value<[<@m, [{}]>]>}"
    stated = '{sdy.sharding = #sdy.sharding<@m, [{"b"}]>}'
    text = program(
        called("0", "f", "x", whole) + "\n" + called("y", "f", "0", ALONG_B),
        function("f", SINE, attrs=stated),
    )
    done = Pipeline.parse("propagate,reshard,partition,cse,dce")(read_valid(text))
    text = show(done)
    assert functions_of(text) == ["main", "f", "f.1"]
    main, first, second = text.split("func.func")[1:]
    assert "all_gather" not in main
    assert ("all_gather" in first, "all_gather" in second) == (True, False)


def test_functions_call_functions() -> None:
    text = program(
        called("0", "outer", "x") + "\n" + called("y", "outer", "0"),
        function("outer", called("0", "inner", "a"), called("r", "inner", "0")),
        function("inner", SINE),
    )
    module = read_valid(text)
    assert [op.attrs["callee"] for op in calls_of(module)] == ["outer", "inner", "inner"] * 2
    written = show(module)
    assert functions_of(written) == ["main", "outer", "inner"]
    assert find_difference(module, read_valid(written), names=False) is None
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_allclose(run(module, [x])[0], np.sin(np.sin(np.sin(np.sin(x)))), rtol=1e-6)


def test_a_function_of_the_name_of_another_function_is_renamed() -> None:
    module = read_valid(program(called("y", "f", "x"), function("f", SINE)))
    body = module.main.body
    other = Module(module.meshes, (module.main, type(module.main)("f", body, (None,))))
    assert functions_of(show(other)) == ["main", "f", "f.1"]


def test_names_of_functions_are_quoted_where_necessary() -> None:
    module = read_valid(program(called("y", '"a function"', "x"), function('"a function"', SINE)))
    text = show(module)
    assert '"func.call"(%x) <{callee = @"a function"}>' in text
    assert find_difference(module, read_valid(text)) is None


def test_a_named_computation_is_a_call() -> None:
    text = program(
        f'%y = sdy.named_computation<"step">(%x) in_shardings=[<@m, [{{"a"}}]>] '
        f'out_shardings=[<@m, [{{"b"}}]>] (%a: {TYPE}) {{\n'
        f"  {SINE}\n  sdy.return %r : {TYPE}\n}} : ({TYPE}) -> {TYPE}"
    )
    (op,) = read_valid(text).main.body.ops
    assert op.name == "call"
    assert op.attrs == {"callee": "step"}
    lines = [line.strip() for line in print_module(read(text)).splitlines()]
    assert lines[5:9] == [
        '%y = call(%x, callee="step") : f32[8@b] {',
        "(%a: f32[8@a]) =>",
        "%r = sin(%a) : f32[8]",
        "yield %r",
    ]


def test_a_named_computation_without_a_name_is_refused() -> None:
    with pytest.raises(ParseError) as caught:
        read(
            program(
                f'%y = "sdy.named_computation"(%x) ({{\n^bb0(%a: {TYPE}):\n'
                f'  "sdy.return"(%a) : ({TYPE}) -> ()\n}}) : ({TYPE}) -> {TYPE}'
            ),
            "f.mlir",
        )
    assert str(caught.value) == (
        "sdy.named_computation lacks its name\n"
        " --> f.mlir:3:8\n"
        "  |\n"
        '3 |   %y = "sdy.named_computation"(%x) ({\n'
        "  |        ^^^^^^^^^^^^^^^^^^^^^^^"
    )


def test_a_constant_is_known_inside_of_a_called_function() -> None:
    """The size of a dynamic operation is a constant that the caller passes."""
    shape = "tensor<1xi32>"
    text = (
        f"func.func @main(%x: tensor<f32>) -> {TYPE} {{\n"
        f"  %c = stablehlo.constant dense<8> : {shape}\n"
        f"  %y = call @f(%x, %c) : (tensor<f32>, {shape}) -> {TYPE}\n"
        f"  return %y : {TYPE}\n}}\n"
        f"func.func private @f(%a: tensor<f32>, %n: {shape}) -> {TYPE} {{\n"
        "  %z = stablehlo.constant dense<0> : tensor<1xi32>\n"
        "  %i = stablehlo.constant dense<0.0> : tensor<f32>\n"
        f"  %o = stablehlo.constant dense<1> : tensor<8xi32>\n"
        f"  %b = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<7xf32>\n"
        f"  %l = stablehlo.constant dense<1> : {shape}\n"
        f"  %r = stablehlo.dynamic_pad %b, %i, %l, %z, %z : (tensor<7xf32>, tensor<f32>, "
        f"{shape}, {shape}, {shape}) -> {TYPE}\n"
        f"  return %r : {TYPE}\n}}\n"
    )
    module = read_valid(text)
    assert [op.name for op in module.main.body.walk() if op.name == "pad"] == ["pad"]


@pytest.mark.parametrize(
    ("functions", "message", "line"),
    [
        (
            [function("f", called("r", "f", "a"))],
            "@f calls itself; write the recursion as a loop, with stablehlo.while",
            7,
        ),
        (
            [
                function("f", called("r", "g", "a")),
                function("g", called("r", "h", "a")),
                function("h", called("r", "f", "a")),
            ],
            "@f calls itself through @g, @h; write the recursion as a loop, with stablehlo.while",
            15,
        ),
    ],
)
def test_recursion_is_refused(functions: list[str], message: str, line: int) -> None:
    with pytest.raises(ParseError) as caught:
        read(program(called("y", "f", "x"), *functions), "f.mlir")
    lines = str(caught.value).splitlines()
    assert (lines[0], lines[1].strip()) == (message, f"--> f.mlir:{line}:13")
    assert lines[3].endswith("|   %r = call @f(%a)  : (tensor<8xf32>) -> tensor<8xf32>")
    assert lines[4].endswith("|             ^^")


@pytest.mark.parametrize(
    ("call", "message", "at"),
    [
        (
            called("y", "sine", "x"),
            "no function is called 'sine'; did you mean 'sin'?",
            ("3:13", "%y = call @sine(%x)", "@sine"),
        ),
        (
            f"%y = call @sin(%x, %x) : ({TYPE}, {TYPE}) -> {TYPE}",
            "@sin takes 1 argument, got 2",
            ("3:13", "%y = call @sin(%x, %x)", "@sin"),
        ),
        (
            f"%y = call @sin(%x) : ({TYPE}) -> tensor<8xi32>",
            "@sin does not return what its call states",
            ("3:13", "%y = call @sin(%x)", "@sin"),
        ),
    ],
)
def test_a_wrong_call_is_refused(call: str, message: str, at: tuple[str, str, str]) -> None:
    with pytest.raises(ParseError) as caught:
        read(program(call, function("sin", SINE)), "f.mlir")
    place, shown, marked = at
    lines = str(caught.value).splitlines()
    assert lines[:3] == [message, f" --> f.mlir:{place}", "  |"]
    assert lines[3].startswith(f"3 |   {shown}")
    assert lines[4].endswith("^" * len(marked))


def test_an_operand_of_another_type_is_refused() -> None:
    text = program(
        "%y = call @sin(%x) : (tensor<4xf32>) -> tensor<8xf32>",
        function("sin", SINE),
        params="%x: tensor<4xf32>",
    )
    with pytest.raises(ParseError) as caught:
        read(text, "f.mlir")
    assert str(caught.value) == (
        "@sin takes f32[8] here, not f32[4]\n"
        " --> f.mlir:6:28\n"
        "  |\n"
        "6 | func.func private @sin(%a: tensor<8xf32> ) -> tensor<8xf32> {\n"
        "  |                            ^^^^^^^^^^^^^"
    )


def test_a_block_of_a_call_uses_only_its_own_values() -> None:
    text = """\
func @f(
  %x: f32[4],
) -> (f32[4]) {
  %y = call(callee="g") : f32[4] {
    %b = sin(%x) : f32[4]
    yield %b
  }
  return %y
}
"""
    with pytest.raises(VerifyError) as caught:
        verify(parse(text))
    assert str(caught.value).splitlines()[0] == (
        "block 0 of call uses %x of the blocks around it; make it an operand, as a function has "
        "no other values"
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_calls_round_trip(seed: int) -> None:
    """Both programs have the same functions, and compute the same."""
    module = random_program(seed, operations=["call", "add", "sin", "dot"], size=5)
    again = read_valid(show(module))
    assert functions_of(show(again)) == functions_of(show(module))
    if unknown_operations(again):  # Random bits have no text in StableHLO that can run.
        return
    arguments = random_arguments(module, 0)
    for one, other in zip(run(module, arguments), run(again, arguments), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2 if one.dtype.itemsize < 4 else 1e-5)
