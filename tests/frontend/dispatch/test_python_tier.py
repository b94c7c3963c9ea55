"""Calls without the C extension: the Python tier repeats calls that it knows."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import ops
from shardir.backends.cpu.dispatch import launch
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.dispatch import (
    composed,
    eager as eager_module,
    eager_call,
    jit_function,
    native_call_cache,
)
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import DeletedArrayError
from shardir.frontend.tracing.operands import align
from shardir.frontend.tracing.trace import emit

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.cos(X)


@pytest.fixture(autouse=True)
def no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (eager_module, eager_call, jit_function, native_call_cache, launch):
        monkeypatch.setattr(module, "native", None)
    flatten = jit_function._flatten_positional_arrays
    monkeypatch.setattr(jit_function, "flatten_arrays", flatten)
    monkeypatch.setattr(composed, "has_call_cache", lambda value: False)


def make_minus() -> Any:
    """Return a public function, of which no call is known."""

    @public()
    def minus(x: Any, y: Any) -> Any:
        x, y = align(x, y)
        return {"difference": emit(ops.sub, x, y, weak=x.weak_type)}

    return minus


def arrays() -> tuple[Array, Array]:
    return from_numpy(X), from_numpy(Y)


@pytest.mark.parametrize("make", [make_minus, lambda: sd.jit(lambda x, y: {"difference": x - y})])
def test_repeated_calls_have_the_results_of_their_arguments(make: Any) -> None:
    function, (x, y) = make(), arrays()
    calls: list[tuple[Any, Any]] = [
        (lambda: function(x, y), X - Y),
        (lambda: function(y, x), Y - X),
        (lambda: function(x, y=y), X - Y),
        (lambda: function(x=x, y=y), X - Y),
        (lambda: function(y=y, x=x), X - Y),
        (lambda: function(x, 2.0), X - 2),
        (lambda: function(2, y), 2 - Y),
        (lambda: function(x, Y), X - Y),
        (lambda: function(X, y), X - Y),
    ]
    for _ in range(3):
        for call, expected in calls:
            np.testing.assert_allclose(call()["difference"], expected, rtol=1e-6)


def test_a_keyword_is_no_other_positional_argument() -> None:
    scale = sd.jit(lambda x, factor=2.0: x * factor)
    x, factor = arrays()
    for _ in range(3):
        np.testing.assert_array_equal(scale(x), X * 2)
        np.testing.assert_array_equal(scale(x, factor=factor), X * Y)
        np.testing.assert_array_equal(scale(x, factor), X * Y)


def test_a_deleted_array_is_an_error_in_repeated_calls() -> None:
    for function in (make_minus(), sd.jit(lambda x, y: x - y)):
        x, y = arrays()
        for _ in range(2):
            function(x, y)
        x.delete()
        with pytest.raises(DeletedArrayError):
            function(x, y)


def test_a_repeated_eager_call_runs_its_launch_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: list[Any] = []

    def call_slowly(*call: Any) -> Any:
        slow.append(call)
        return eager_call.call_eagerly(*call)

    monkeypatch.setattr(eager_module, "call_eagerly", call_slowly)
    minus, (x, y) = make_minus(), arrays()
    for _ in range(3):
        np.testing.assert_array_equal(minus(x, y)["difference"], X - Y)
    assert len(slow) == 1


def test_calls_with_the_same_arrays_and_other_options_or_containers_are_distinguished() -> None:
    @public()
    def combine(x: Any, y: Any = None, scale: Any = None) -> Any:
        """Return x - y, or the sum of a list, times `scale` if it is given."""
        given, spec = (x, ops.add) if isinstance(x, list) else ((x, y), ops.sub)
        made = emit(spec, *align(*given), weak=False)
        return made if scale is None else emit(ops.mul, *align(made, scale), weak=False)

    x, y = arrays()
    for _ in range(3):
        np.testing.assert_array_equal(combine([x, y]), X + Y)
        np.testing.assert_array_equal(combine(x, y), X - Y)
        np.testing.assert_array_equal(combine(x, y, scale=-1.0), Y - X)
        np.testing.assert_array_equal(combine(x, y=y), X - Y)
