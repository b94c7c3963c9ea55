"""The part of an argument that the operations of a stage use."""

import numpy as np
import pytest

from shardir.interpret.interpreter import evaluate
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Function
from shardir.ir.types import TensorType
from shardir.ops.control_flow.pipeline_slots import Window
from shardir.passes.pipeline_parallelism.argument_windows import (
    pad_window,
    slice_window,
    take_window,
)
from shardir.text.parser import parse

ROW_2 = "%r = slice(%w, starts=[2, 0], strides=[1, 1]) : f64[1, 8]"
ROW_3 = "%s = slice(%w, starts=[3, 0], strides=[1, 1]) : f64[1, 8]"
ADD = "%y = add(%r, %s) : f64[1, 8]"


def function(body: str, result: str = "f64[1, 8]", name: str = "%y") -> Function:
    head = f"mesh @m = [x=2]\n\nfunc @f(%w: f64[4, 8]) -> ({result}) {{\n"
    return parse(f"{head}{body}\n  return {name}\n}}").main


@pytest.mark.parametrize(
    ("body", "result", "window", "starts"),
    [
        # The only slice is the window itself.
        (f"{ROW_2}\n%y = neg(%r) : f64[1, 8]", "f64[1, 8]", [(2, 3)], []),
        (f"{ROW_2}\n{ROW_3}\n{ADD}", "f64[1, 8]", [(2, 4)], [(0, 0), (1, 0)]),
        (
            "%r = slice(%w, starts=[0, 0], strides=[2, 1]) : f64[2, 8]\n%y = neg(%r) : f64[2, 8]",
            "f64[2, 8]",
            [(0, 3)],
            [(0, 0)],
        ),
        (
            "%r = slice(%w, starts=[0, 5], strides=[1, 1]) : f64[4, 2]\n%y = neg(%r) : f64[4, 2]",
            "f64[4, 2]",
            [(0, 4), (5, 7)],
            [],
        ),
        # A slice with a sharding of its own remains.
        (
            "%r = slice(%w, starts=[2, 0], strides=[1, 1]) : f64[1, 8@x]\n%y = neg(%r) : f64[1, 8]",
            "f64[1, 8]",
            [(2, 3)],
            [(0, 0)],
        ),
    ],
    ids=["one row", "two rows", "every second row", "columns", "sharded row"],
)
def test_a_window_contains_all_elements_that_operations_use(
    body: str, result: str, window: list[tuple[int, int]], starts: list[tuple[int, ...]]
) -> None:
    plain = function(body, result)
    (argument,) = plain.body.params
    found = take_window(argument, plain.body.ops, plain.body.returns)
    assert found is not None
    taken, part, ops, returns = found
    assert [(each.start, each.stop) for each in taken] == window
    assert [op.attrs["starts"] for op in ops if op.name == "slice"] == starts
    w = np.arange(32.0).reshape(4, 8)
    windowed = Function("g", Block((part,), tuple(ops), tuple(returns)), (None,))
    np.testing.assert_array_equal(evaluate(windowed, [w[tuple(taken)]])[0], evaluate(plain, [w])[0])


@pytest.mark.parametrize(
    ("body", "result", "name"),
    [
        ("%y = neg(%w) : f64[4, 8]", "f64[4, 8]", "%y"),
        (f"{ROW_2}\n%y = neg(%w) : f64[4, 8]", "f64[4, 8]", "%y"),
        (f"{ROW_2}", "f64[4, 8]", "%w"),
        (
            "%r = slice(%w, starts=[0, 0], strides=[1, 1]) : f64[1, 8]\n" + ROW_3 + "\n" + ADD,
            "f64[1, 8]",
            "%y",
        ),
        ("%y = slice(%w, starts=[2, 0], strides=[1, 1]) : f64[0, 8]", "f64[0, 8]", "%y"),
    ],
    ids=["whole argument", "also the whole argument", "a result", "first and last", "nothing"],
)
def test_an_argument_that_is_used_as_a_whole_has_no_window(
    body: str, result: str, name: str
) -> None:
    plain = function(body, result, name)
    (argument,) = plain.body.params
    assert take_window(argument, plain.body.ops, plain.body.returns) is None


@pytest.mark.parametrize("window", [(), (slice(1, 3),), (slice(0, 4), slice(2, 3))])
def test_padding_restores_the_elements_of_a_window(window: Window) -> None:
    type = TensorType((4, 8), "f64")
    b = Builder()
    x = b.param(type, "x")
    part = slice_window(b, x, window)
    whole = pad_window(b, part, window, type)
    assert (part is x and whole is x) == (window == ())
    values = np.arange(1.0, 33.0).reshape(4, 8)
    made, restored = evaluate(Function("f", b.block([x], [part, whole]), (None, None)), [values])
    np.testing.assert_array_equal(made, values[window])
    expected = np.zeros((4, 8))
    expected[window] = values[window]
    np.testing.assert_array_equal(restored, expected)
