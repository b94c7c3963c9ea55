"""The result of a callback must have the declared type; otherwise the call raises an error."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import InterpretError
from shardir.frontend.errors import ArgumentError, NumberRangeError
from shardir.frontend.quoting import brief_with_type
from tests.error_assertions import assert_raises_exactly

X = np.ones(3, np.float32)


@pytest.mark.parametrize("made", ["float16", "float64", "int32", "bool"])
def test_a_result_of_an_undeclared_type_is_an_error(made: str) -> None:
    declared = sd.ShapeDtypeStruct((3,), "float16" if made == "float64" else "float32")
    with pytest.raises(InterpretError) as caught:
        sd.pure_callback(lambda x: np.ones(3, made), declared, X)
    assert str(caught.value) == (
        f"lambda returned {made}[3], and {declared.abstract.type} is declared; "
        "convert the result, or declare its type"
    )


def test_wide_results_are_converted_to_the_declared_dtype() -> None:
    def made(result: Any, dtype: str) -> Any:
        return sd.pure_callback(lambda: result, sd.ShapeDtypeStruct((), dtype))

    assert made(np.float64(0.5), "float32") == made(0.5, "float16") == 0.5
    assert made(np.int64(7), "int32") == made(7, "uint8") == made(7, "float32") == 7
    with pytest.raises(
        InterpretError, match=r"^lambda returned float64\[\], and i32\[\] is declared; "
    ):
        made(1.5, "int32")
    with pytest.raises(
        NumberRangeError, match=r"^the result of lambda has the number 1099511627776, "
    ):
        made(np.int64(2**40), "int32")
    with sd.enable_x64(), pytest.raises(InterpretError, match="returned float64"):
        made(np.float64(0.5), "float32")


def test_the_number_of_results_is_the_declared_one() -> None:
    declared = sd.ShapeDtypeStruct((), "float32")
    for made, found in (((), "0 arrays"), ((1.0, 2.0), "2 arrays")):
        with pytest.raises(InterpretError) as caught:
            sd.pure_callback(lambda made=made: made, declared)
        assert str(caught.value) == f"lambda returned {found}, and 1 is declared"


def test_a_callback_without_declared_results_returns_the_declared_structure() -> None:
    calls: list[Any] = []

    def text_of(x: Any) -> str:
        calls.append(x)
        return "text"

    results: list[Any] = [None, (), {"a": []}]
    for declared in results:
        assert sd.pure_callback(calls.append, declared, 1.0) == declared
        assert sd.io_callback(text_of, declared, 2.0) == declared
    assert calls == [2.0, 2.0, 2.0]


def test_results_are_declared_by_arrays_and_by_objects_with_a_shape_and_a_dtype() -> None:
    class Shaped:
        shape = (3,)

    class Like(Shaped):
        dtype = np.dtype(np.float32)

    for declared in (X, sd.numpy.asarray(X), Like()):
        np.testing.assert_array_equal(sd.pure_callback(lambda: X, declared), X)
    assert sd.pure_callback(lambda: 3, 2).dtype == np.int32

    class Typed:
        dtype = Like.dtype

    for wrong in (Shaped(), Typed(), "f32"):
        text = brief_with_type(wrong)
        assert_raises_exactly(
            partial(sd.io_callback, lambda: X, wrong),
            ArgumentError,
            f"a result of io_callback is declared as {text}, which has no shape and dtype; use a "
            "ShapeDtypeStruct",
        )


@pytest.mark.parametrize("method", [3, "other", [], ["sequential"]])
def test_other_methods_are_errors(method: Any) -> None:
    assert_raises_exactly(
        lambda: sd.pure_callback(lambda: X, X, vmap_method=method),
        ArgumentError,
        f"vmap_method of pure_callback is {method!r}; it is 'sequential', 'sequential_unrolled', "
        "'expand_dims', 'broadcast_all', 'legacy_vectorized' or None",
    )


def test_a_callback_is_a_function() -> None:
    wrong: Any = 3
    for call, name in (
        (lambda: sd.pure_callback(wrong, X), "pure_callback"),
        (lambda: sd.io_callback(wrong, X), "io_callback"),
        (lambda: sd.debug.callback(wrong), "debug.callback"),
    ):
        assert_raises_exactly(call, ArgumentError, f"{name} takes a function, got 3")


def test_the_program_and_errors_name_the_function() -> None:
    def f(x: Any) -> None:
        sd.debug.print("{}", x)
        sd.debug.callback(print, x)

    text = str(sd.make_ir(f)(X))
    assert 'function="debug.print"' in text
    assert 'function="print"' in text


def test_a_mesh_without_axes_names_the_device() -> None:
    one = sd.make_mesh((), ())
    sharding = sd.NamedSharding(one, sd.PartitionSpec())
    np.testing.assert_array_equal(sd.pure_callback(lambda: X, X, sharding=sharding), X)
