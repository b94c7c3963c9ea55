"""Functions inspected, transposed, copied and converted without execution."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from shardir import (
    ShapeDtypeStruct,
    closure_convert,
    ensure_compile_time_eval,
    eval_shape,
    grad,
    jit,
    linear_transpose,
    make_ir,
    named_scope,
)
from shardir.errors import DifferentiateError
from shardir.frontend.errors import ArgumentError, LeakedTracerError, NotAnArrayError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import assert_raises_exactly, raw

ROW = ShapeDtypeStruct((3,), np.float32)


def test_make_ir_returns_the_program() -> None:
    module, shapes = make_ir(lambda x: snp.sin(x) * 2, return_shape=True)(ROW)
    assert [op.name for op in module.main.body.ops] == ["sin", "constant", "mul"]
    assert shapes == ROW


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, pickle.dumps])
def test_compiled_functions_refuse_copies(make_copy: Callable[[object], object]) -> None:
    compiled = jit(snp.sin).lower(ROW).compile()
    with pytest.raises(TypeError) as caught:
        make_copy(compiled)
    assert str(caught.value) == (
        "a compiled function cannot be copied or pickled; compile the function again, or serialize "
        "its program with shardir.export"
    )


def test_eval_shape_returns_result_shapes() -> None:
    assert eval_shape(lambda x, y: {"a": x * y}, ROW, 2) == {"a": ROW}

    class Like:
        shape, dtype = (2, 3), np.dtype(np.float32)

    assert eval_shape(snp.sum, Like()).shape == ()
    seen = []

    @jit
    def f(x: Any) -> Any:
        seen.append(eval_shape(lambda y: y[:2] * x[0], x))
        return x

    f(snp.ones(3))
    assert seen == [ShapeDtypeStruct((2,), np.float32)]


def test_the_transpose_of_a_linear_function() -> None:
    matrix = snp.array([[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]])
    (back,) = linear_transpose(lambda x: matrix @ x, ROW)(snp.ones(2))
    np.testing.assert_array_equal(back, [4, 6, 0])
    scaled = grad(lambda a: linear_transpose(lambda y: a * y, 1.0)(3.0)[0])
    assert float(scaled(2.0)) == 3
    with pytest.raises(DifferentiateError) as error:
        linear_transpose(snp.sin, 1.0)(1.0)
    assert str(error.value).split("\n")[0] == (
        "linear_transpose of sin, which is not linear; use vjp, which linearizes a function at a "
        "point"
    )
    with pytest.raises(DifferentiateError) as error:
        linear_transpose(lambda x: x, 1)
    assert str(error.value).split("\n")[0] == (
        "linear_transpose of lambda needs floating-point or complex arguments, got i32[]; bind the "
        "other arguments with functools.partial"
    )


def test_captured_arrays_become_arguments() -> None:
    def f(x: Any) -> Any:
        converted, closed = closure_convert(lambda y: y * x, 1.0)
        return converted(3.0, *closed)

    assert float(grad(f)(2.0)) == 3
    assert closure_convert(lambda y: y, 1.0)[1] == []


def test_concrete_values_while_tracing() -> None:
    @jit
    def f(x: Any) -> Any:
        with ensure_compile_time_eval():
            count = int(snp.sum(snp.arange(4)))
        with named_scope("layer"):
            return x * count

    assert float(f(2.0)) == 12


def test_tracers_remain_traced_where_other_values_are_computed() -> None:
    kinds = []

    @jit
    def f(x: Any) -> Any:
        def inner(y: Any) -> Any:
            with ensure_compile_time_eval():
                with ensure_compile_time_eval():
                    kinds.extend([type(x * y).__name__, type(snp.ones(2) + 1).__name__])
                return x * y + 1

        return grad(inner)(x)

    assert float(f(2.0)) == 2
    assert kinds == ["Tracer", "Array"]


def test_tracers_of_ended_traces_are_refused_where_other_values_are_computed() -> None:
    kept: list[Any] = []
    jit(kept.append)(1.0)

    @jit
    def f(x: Any) -> Any:
        with ensure_compile_time_eval():
            return kept[0] * 2

    with pytest.raises(LeakedTracerError):
        f(1.0)


def test_results_may_be_described() -> None:
    struct = ShapeDtypeStruct((2, 3), snp.int8)

    def check(*_: Any) -> None:
        result = eval_shape(lambda: {"a": struct, "b": snp.ones(4)})
        assert result["a"] is struct
        assert result["b"].shape == (4,)

    check()
    jit(check)(1.0)


def test_errors_of_names_and_of_objects_without_a_dtype() -> None:
    class Shaped:
        shape = (2, 3)

        def __repr__(self) -> str:
            return "Shaped()"

    class Typed:
        dtype = "float32"

        def __repr__(self) -> str:
            return "Typed()"

    for wrong, text in ((Shaped(), "Shaped() of type Shaped"), (Typed(), "Typed() of type Typed")):
        assert_raises_exactly(
            partial(eval_shape, snp.sum, wrong),
            NotAnArrayError,
            f"argument a of sum is {text}, which has no shape and dtype",
        )

    def enter() -> None:
        with named_scope(raw(3)):
            pass

    assert_raises_exactly(enter, ArgumentError, "the name of a scope is a string, got 3")
