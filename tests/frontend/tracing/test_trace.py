"""Tracing a Python function makes a readable program, and errors show the user's source line."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir import ops
from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.traced_calls import ArgumentLeaf, signature_of_leaf, trace_call
from shardir.frontend.errors import LeakedTracerError, NotAnArrayError, TracedValueError
from shardir.frontend.pytree import tree
from shardir.frontend.tracing.function_tracing import TracedFunction, trace_block, trace_function
from shardir.frontend.tracing.operands import align, as_tracer, promote, promote_inexact
from shardir.frontend.tracing.parameters import leaf_labels
from shardir.frontend.tracing.trace import (
    append_block,
    current_trace,
    emit,
    emit_results,
    wrap_value,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.module import Module
from shardir.ir.operation import Dense

X = np.ones((2, 3), np.float32)


def traced(fun: Callable[..., Any], *args: Any) -> TracedFunction:
    leaves, structure = tree.flatten(args)
    names = fun.__code__.co_varnames
    labels = [
        label for name, arg in zip(names, args, strict=False) for label in leaf_labels(name, arg)
    ]
    described = [
        ArgumentLeaf(label, label, signature_of_leaf(leaf))
        for label, leaf in zip(labels, leaves, strict=True)
    ]
    program, _ = trace_call(
        fun, fun.__name__, described, lambda given: (tree.unflatten(structure, given), {})
    )
    return program


def text(fun: Callable[..., Any], *args: Any) -> str:
    return str(Module((), (traced(fun, *args).function,)))


def add(x: Any, y: Any) -> Any:
    return emit(ops.add, *align(x, y))


def exp(x: Any) -> Any:
    return emit(ops.exp, *promote_inexact(x))


def test_parameters_have_the_names_of_the_signature() -> None:
    def f(params: Any, x: Any) -> Any:
        return add(add(params["w"], params["b"][0]), x)

    assert (
        text(f, {"w": X, "b": [X]}, X)
        == """\
func @f(
  %params.b.0: f32[2, 3],
  %params.w: f32[2, 3],
  %x: f32[2, 3],
) -> (f32[2, 3]) {
  %0 = add(%params.w, %params.b.0) : f32[2, 3]
  %1 = add(%0, %x) : f32[2, 3]
  return %1
}
"""
    )


def test_a_value_has_the_name_of_its_variable() -> None:
    def layer(x: Any) -> Any:
        return exp(add(x, x))

    def f(x: Any) -> Any:
        h = layer(x)
        for _ in range(2):
            h = add(h, x)
        total = exp(h)
        return total

    assert (
        text(f, X)
        == """\
func @f(
  %x: f32[2, 3],
) -> (f32[2, 3]) {
  %0 = add(%x, %x) : f32[2, 3]
  %h = exp(%0) : f32[2, 3]
  %h.1 = add(%h, %x) : f32[2, 3]
  %h.2 = add(%h.1, %x) : f32[2, 3]
  %total = exp(%h.2) : f32[2, 3]
  return %total
}
"""
    )


def test_several_results_have_the_names_of_their_variables() -> None:
    def f(x: Any) -> Any:
        first, second = emit_results(ops.optimization_barrier, x, x)
        return first, second

    assert "%first, %second = optimization_barrier(%x, %x)" in text(f, X)


def test_python_scalars_become_constants_of_the_type_of_the_other_operand() -> None:
    def f(x: Any) -> Any:
        return add(x, 1), add(2, 3.5), add(np.float16(1), x)

    assert (
        text(f, X)
        == """\
func @f(
  %x: f32[2, 3],
) -> (f32[2, 3], f32[], f32[2, 3]) {
  %0 = constant(value=1.0) : f32[2, 3]
  %1 = add(%x, %0) : f32[2, 3]
  %2 = constant(value=2.0) : f32[]
  %3 = constant(value=3.5) : f32[]
  %4 = add(%2, %3) : f32[]
  %5 = constant(value=1.0) : f16[]
  %6 = convert(%5) : f32[]
  %7 = broadcast(%6, dims=[]) : f32[2, 3]
  %8 = add(%7, %x) : f32[2, 3]
  return %1, %4, %8
}
"""
    )


def test_weak_types_stay_weak_until_they_meet_an_array() -> None:
    def f(x: Any, n: Any) -> Any:
        x, n, both = *promote(x, n), promote(n, n)[0]
        return x, n, both

    assert [r.weak for r in traced(f, X, 2).results] == [False, False, True]


def test_captured_arrays_are_parameters_after_the_arguments() -> None:
    weights = from_numpy(np.ones((2, 3), np.float32))
    large = np.zeros((100,), np.float32)

    def f(x: Any) -> Any:
        return add(add(x, weights), weights), as_tracer(large), as_tracer(np.arange(2))

    program = traced(f, X)
    assert len(program.captured) == 2
    assert (
        str(Module((), (program.function,)))
        == """\
func @f(
  %x: f32[2, 3],
  %weights: f32[2, 3],
  %captured: f32[100],
) -> (f32[2, 3], f32[100], i32[2]) {
  %0 = add(%x, %weights) : f32[2, 3]
  %1 = add(%0, %weights) : f32[2, 3]
  %2 = constant(value=dense(i32, [0, 1])) : i32[2]
  return %1, %captured, %2
}
"""
    )


def test_nested_lists_become_stacked_arrays() -> None:
    def f(x: Any) -> Any:
        return as_tracer([x, [1, 2, 3]]), as_tracer([[1.5, 2], [3, 4]])

    assert [r.type.shape for r in traced(f, X[0]).results] == [(2, 3), (2, 2)]
    with pytest.raises(NotAnArrayError, match="a nested list is not an array"):
        traced(lambda: as_tracer([[1], [2, 3]]))


def test_regions_capture_outer_values() -> None:
    def f(x: Any, index: Any) -> Any:
        doubled = add(x, x)

        def first() -> list[Tracer]:
            return [exp(doubled)]

        block, results = trace_block(first, [], "a branch")
        assert results[0].type == doubled.value.type
        chosen = emit(ops.case, index, blocks=(block, block))
        return chosen

    shown = text(f, X, np.int32(0))
    assert "%doubled = add(%x, %x)" in shown
    assert "exp(%doubled)" in shown


def test_a_function_in_a_module_has_unique_names() -> None:
    def f(x: Any) -> Any:
        y = exp(x)

        def inner(z: Any) -> list[Tracer]:
            w = add(z, y)
            return [exp(w)]

        function, results = trace_function(inner, [y.abstract], "inner")
        assert [op.result.name for op in function.body.ops] == ["w", "0"]
        (value,) = append_block(function.body, [y], function.body)
        last = add(wrap_value(value, results[0].weak), x)
        return last

    assert (
        text(f, X)
        == """\
func @f(
  %x: f32[2, 3],
) -> (f32[2, 3]) {
  %y = exp(%x) : f32[2, 3]
  %w = add(%y, %y) : f32[2, 3]
  %0 = exp(%w) : f32[2, 3]
  %last = add(%0, %x) : f32[2, 3]
  return %last
}
"""
    )


def test_operations_have_the_source_line_of_the_user() -> None:
    def f(x: Any) -> Any:
        y = exp(x)
        return y

    line = f.__code__.co_firstlineno + 1
    (op,) = traced(f, X).function.body.ops
    assert op.loc is not None
    assert op.loc.file.endswith("test_trace.py")
    # `exp` is a function of this file, so the location is the line in its body.
    assert op.loc.line == exp.__code__.co_firstlineno + 1
    assert line != op.loc.line


def message_of(error: pytest.ExceptionInfo[Exception]) -> str:
    """Return the message without its source location, which depends on the position in this
    file.
    """
    lines = str(error.value).splitlines()
    return "\n".join(line.split(" | ")[-1] for line in lines if "-->" not in line)


def test_the_error_of_a_traced_condition_names_the_alternative() -> None:
    def f(x: Any) -> Any:
        if x:
            return x
        return -x

    with pytest.raises(TracedValueError) as caught:
        traced(f, np.float32(1))
    assert str(caught.value).startswith(
        "a traced f32[] has no truth value while f is traced; choose elementwise with snp.where, "
        "between computations with lax.cond, loop with lax.while_loop, or make the argument it "
        "comes from static (static_argnums)\n"
    )
    assert "| if x:\n" in str(caught.value)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: bool(x), "single truth value .* reduce it with .all"),
        (lambda x: float(x), "has no float value .* keep computing with arrays"),
        (lambda x: int(x), "has no int value"),
        (lambda x: complex(x), "has no complex value"),
        (lambda x: range(x), "has no int value .* lax.fori_loop"),
        (lambda x: [1, 2][x], "has no int value"),
        (lambda x: np.asarray(x), "has no NumPy array .* in shardir.numpy instead"),
        (lambda x: np.sin(x), "has no NumPy array"),
        (lambda x: x.item(), "has no item"),
        (lambda x: x.tolist(), "has no list of numbers"),
        (lambda x: f"{x:.2f}", "has no text .* print it there"),
        (lambda x: x.sharding, "has no sharding .* lax.with_sharding_constraint"),
        (lambda x: hash(x), "unhashable"),
    ],
)
def test_conversion_of_a_traced_value_to_a_number_is_an_error(
    use: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        traced(use, X)


def test_a_traced_value_of_rank_0_has_no_length() -> None:
    for use in (len, iter):
        with pytest.raises(TracedValueError, match="a traced array of rank 0"):
            traced(use_of(use), np.float32(0))


def use_of(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        return use(x)

    return f


def test_the_error_of_a_leaked_tracer_states_its_origin() -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        y = emit(ops.exp, x)
        kept.append(y)
        return y

    def g(x: Any) -> Any:
        return emit(ops.add, x, kept[0])

    traced(f, X)
    with pytest.raises(LeakedTracerError) as caught:
        traced(g, X)
    assert message_of(caught) == (
        "a traced f32[2, 3] was used outside of the trace it belongs to: f has ended; return it "
        "from there instead of keeping it in a variable, list or attribute\n"
        "    |\n"
        "return emit(ops.add, x, kept[0])\n"
        "       ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "it was created here:\n"
        "    |\n"
        "y = emit(ops.exp, x)\n"
        "    ^^^^^^^^^^^^^^^^"
    )


def test_unsupported_operands_are_errors() -> None:
    def f(x: Any) -> Any:
        return emit(ops.add, x, emit(ops.constant, value=Dense(np.ones(2, np.float32)),
                                     result=x.value.type.with_shape((2,))))  # fmt: skip

    with pytest.raises(OperationTypeError, match=r"(?s)^add: .*-->.*test_trace.py"):
        traced(f, X)


def test_results_that_are_not_arrays_are_errors() -> None:
    def f(x: Any) -> Any:
        return {"y": [x, "text"]}

    with pytest.raises(NotAnArrayError) as caught:
        traced(f, X)
    first, *rest = str(caught.value).split("\n")
    assert first == (
        "f returned 'text' of type str at result['y'][1], which is not an array; return arrays, "
        "numbers and containers of them only"
    )
    assert "test_trace.py" in rest[0]


def test_shapes_that_do_not_broadcast_are_errors() -> None:
    def f(x: Any, y: Any) -> Any:
        return add(x, y)

    with pytest.raises(
        OperationTypeError, match=r"shapes \(2, 3\) and \(4,\) do not broadcast to one shape"
    ):
        traced(f, X, np.ones(4, np.float32))


def test_an_error_ends_the_trace() -> None:
    with pytest.raises(ZeroDivisionError):
        traced(lambda x: 1 // 0, X)
    assert current_trace() is None
