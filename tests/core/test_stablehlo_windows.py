"""Window reductions with any computation and initial value, against StableHLO's interpreter."""

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jaxlib")

from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from shardir.errors import ParseError
from shardir.interpret.interpreter import evaluate
from shardir.ops.opaque import unknown_operations
from shardir.stablehlo.reader import read

I = "tensor<i32>"  # noqa: E741
COMPUTATIONS = {
    "add": f"%r = stablehlo.add %a, %b : {I}",
    "multiply": f"%r = stablehlo.multiply %a, %b : {I}",
    "maximum": f"%r = stablehlo.maximum %a, %b : {I}",
    "minimum": f"%r = stablehlo.minimum %a, %b : {I}",
    "or": f"%r = stablehlo.or %a, %b : {I}",
    "xor": f"%r = stablehlo.xor %a, %b : {I}",
    # Associative, but not commutative: the last odd number, or the first number.
    "last odd": f"""%one = stablehlo.constant dense<1> : {I}
      %bit = stablehlo.and %b, %one : {I}
      %odd = stablehlo.compare EQ, %bit, %one : ({I}, {I}) -> tensor<i1>
      %r = stablehlo.select %odd, %b, %a : tensor<i1>, {I}""",
    "right": "",
}


def attributes(draw: random.Random) -> tuple[str, str]:
    """Return the attributes of windows over a tensor of 6 x 7, and the shape of the result."""
    rows = []
    for size in (6, 7):
        window, stride, dilation = draw.randint(1, 4), draw.randint(1, 3), draw.randint(1, 2)
        base, low, high = draw.randint(1, 2), draw.randint(0, 2), draw.randint(0, 2)
        length = low + (size - 1) * base + 1 + high
        count = max((length - (window - 1) * dilation - 1) // stride + 1, 0)
        rows.append((window, stride, base, dilation, (low, high), count))
    windows, strides, bases, dilations, padding, counts = zip(*rows, strict=True)
    text = ", ".join(
        f"{key} = array<i64: {', '.join(map(str, value))}>"
        for key, value in (("window_dimensions", windows), ("window_strides", strides),
                           ("base_dilations", bases), ("window_dilations", dilations))
    )  # fmt: skip
    pads = ", ".join(f"[{low}, {high}]" for low, high in padding)
    return f"{text}, padding = dense<[{pads}]> : tensor<2x2xi64>", "x".join(map(str, counts))


def check(text: str, arrays: list[Any]) -> None:
    module = read(text)
    assert not unknown_operations(module), str(module)
    with mlir.make_ir_context(), ir.Location.unknown():
        parsed = ir.Module.parse(text)
        wanted = stablehlo.eval_module(parsed, [mlir.ir_attribute(array) for array in arrays])
        expected = [np.array(each) for each in wanted]
    for mine, theirs in zip(evaluate(module.main, arrays), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("init", [0, 5])
@pytest.mark.parametrize("computation", COMPUTATIONS)
def test_windows_agree_with_the_interpreter_of_stablehlo(computation: str, init: int) -> None:
    draw = random.Random(f"{computation}{init}")
    x = np.random.default_rng(init).integers(-9, 9, (6, 7)).astype(np.int32)
    result = "%r" if COMPUTATIONS[computation] else "%b"
    for _ in range(4):
        stated, shape = attributes(draw)
        check(
            f"""\
func.func @main(%x: tensor<6x7xi32>) -> tensor<{shape}xi32> {{
  %i = stablehlo.constant dense<{init}> : {I}
  %y = "stablehlo.reduce_window"(%x, %i) <{{{stated}}}> ({{
    ^bb0(%a: {I}, %b: {I}):
      {COMPUTATIONS[computation]}
      stablehlo.return {result} : {I}
  }}) : (tensor<6x7xi32>, {I}) -> tensor<{shape}xi32>
  return %y : tensor<{shape}xi32>
}}
""",
            [x],
        )


def test_windows_of_several_tensors_are_reduced_together() -> None:
    draw = random.Random(8)
    x = np.random.default_rng(0).integers(-9, 9, (6, 7)).astype(np.int32)
    for _ in range(4):
        stated, shape = attributes(draw)
        check(
            f"""\
func.func @main(%x: tensor<6x7xi32>, %k: tensor<6x7xi32>)
    -> (tensor<{shape}xi32>, tensor<{shape}xi32>) {{
  %i = stablehlo.constant dense<-7> : {I}
  %j = stablehlo.constant dense<99> : {I}
  %y:2 = "stablehlo.reduce_window"(%x, %k, %i, %j) <{{{stated}}}> ({{
    ^bb0(%a: {I}, %p: {I}, %b: {I}, %q: {I}):
      %greater = stablehlo.compare GE, %a, %b : ({I}, {I}) -> tensor<i1>
      %r = stablehlo.select %greater, %a, %b : tensor<i1>, {I}
      %s = stablehlo.select %greater, %p, %q : tensor<i1>, {I}
      stablehlo.return %r, %s : {I}, {I}
  }}) : (tensor<6x7xi32>, tensor<6x7xi32>, {I}, {I}) -> (tensor<{shape}xi32>, tensor<{shape}xi32>)
  return %y#0, %y#1 : tensor<{shape}xi32>, tensor<{shape}xi32>
}}
""",
            [x, np.arange(42, dtype=np.int32).reshape(6, 7)],
        )


@pytest.mark.parametrize(("size", "counts"), [(1, 3), (2, 2), (4, 0)])
def test_a_computation_that_returns_an_operand_keeps_the_operand(size: int, counts: int) -> None:
    check(
        f"""\
func.func @main(%x: tensor<3xi32>) -> (tensor<3xi32>, tensor<{counts}xi32>) {{
  %i = stablehlo.constant dense<0> : {I}
  %y = "stablehlo.reduce_window"(%x, %i) <{{window_dimensions = array<i64: {size}>}}> ({{
    ^bb0(%a: {I}, %b: {I}):
      stablehlo.return %b : {I}
  }}) : (tensor<3xi32>, {I}) -> tensor<{counts}xi32>
  return %x, %y : tensor<3xi32>, tensor<{counts}xi32>
}}
""",
        [np.array([3, 1, 2], np.int32)],
    )


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (
            "window_dimensions = array<i64: 2, 2>",
            "stablehlo.reduce_window has 2 entries of window, not 1",
        ),
        (
            "window_dimensions = array<i64: 2>, window_strides = array<i64: 0>",
            "the windows, strides and dilations of stablehlo.reduce_window are at least 1",
        ),
    ],
)
def test_windows_that_do_not_fit_are_refused(attributes: str, message: str) -> None:
    with pytest.raises(ParseError) as raised:
        read(f"""\
func.func @main(%x: tensor<3xi32>) -> tensor<2xi32> {{
  %i = stablehlo.constant dense<0> : {I}
  %y = "stablehlo.reduce_window"(%x, %i) <{{{attributes}}}> ({{
    ^bb0(%a: {I}, %b: {I}):
      %r = stablehlo.add %a, %b : {I}
      stablehlo.return %r : {I}
  }}) : (tensor<3xi32>, {I}) -> tensor<2xi32>
  return %y : tensor<2xi32>
}}
""")
    assert str(raised.value) == (
        f"{message}\n"
        " --> <text>:3:8\n"
        "  |\n"
        f'3 |   %y = "stablehlo.reduce_window"(%x, %i) <{{{attributes}}}> ({{\n'
        "  |        ^^^^^^^^^^^^^^^^^^^^^^^^^"
    )
