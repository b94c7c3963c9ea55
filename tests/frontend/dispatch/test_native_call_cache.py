"""The native call cache: repeated calls run no Python code and have the same results."""

import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.native import native
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch import eager as eager_module, eager_call
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.errors import NotAnArrayError, NumberRangeError
from shardir.op_rules import custom_rules
from shardir.op_rules.rule_notation import sharding_rule
from tests.call_count import count_calls
from tests.frontend.dispatch.native_call_samples import (
    SHARDED,
    SHOULD_INSERT,
    WHOLE,
    A,
    B,
    X,
    Y,
    gathered,
    insert_every_call as insert_every_call,
    passed,
    plus,
    scaled,
)

CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "add": (lambda: snp.add(X, Y), A + B),
    "x + y": (lambda: X + Y, A + B),
    "x - y": (lambda: X - Y, A - B),
    "x * 2.0": (lambda: X * 2.0, A * 2),
    "2.0 - x": (lambda: 2.0 - X, 2 - A),
    "x ** 2": (lambda: X**2, A**2),
    "-x": (lambda: -X, -A),
    "abs(x)": (lambda: abs(X), A),
    "x < y": (lambda: X < Y, A < B),
    "whole + 1": (lambda: WHOLE + 1, A.astype(np.int32) + 1),
    "whole * True": (lambda: WHOLE * True, A.astype(np.int32)),
    "exp": (lambda: snp.exp(-X), np.exp(-A)),
    "x.sum": (lambda: X.sum(), A.sum()),
    "x.sum(axis=0)": (lambda: X.sum(axis=0), A.sum(0)),
    "x.sum(-1)": (lambda: X.sum(-1), A.sum(-1)),
    "clip": (lambda: snp.clip(X, 2.0, 5.0), A.clip(2, 5)),
    "x[1]": (lambda: X[1], A[1]),
    "x[:, 1:3]": (lambda: X[:, 1:3], A[:, 1:3]),
    "x[..., None, 2]": (lambda: X[..., None, 2], A[..., None, 2]),
    "reshape": (lambda: snp.reshape(X, (4, 3)), A.reshape(4, 3)),
    "concatenate": (lambda: snp.concatenate([X, Y], axis=1), np.concatenate([A, B], axis=1)),
    "zeros": (lambda: snp.zeros((2, 3)), np.zeros((2, 3), np.float32)),
    "full": (lambda: snp.full((2, 3), 2.5), np.full((2, 3), 2.5, np.float32)),
    "zeros_like": (lambda: snp.zeros_like(X), np.zeros_like(A)),
    "ones_like": (lambda: snp.ones_like(X, np.int32), np.ones_like(A, np.int32)),
    "astype": (lambda: snp.astype(X, np.int32), A.astype(np.int32)),
    "take": (lambda: snp.take(X, WHOLE[0], axis=0, mode="clip"), A[[0, 1, 2, 2]]),
    "where": (lambda: snp.where(X < 5, X, Y), np.where(A < 5, A, B)),
    "broadcast_arrays": (lambda: snp.broadcast_arrays(X, Y[:1]), [A, np.repeat(B[:1], 3, 0)]),
    "ix_": (
        lambda: snp.ix_(WHOLE[0], WHOLE[1]),
        np.ix_(np.arange(4, dtype="i4"), np.arange(4, 8, dtype="i4")),
    ),
    "jit, static": (lambda: scaled(X, 3), A * 3),
    "jit, containers": (lambda: plus(X, Y), {"sum": A + B, "parts": (A - B, B * 2)}),
    "jit, an argument": (lambda: passed({"x": X, "y": [Y]}), {"all": [B], "x": A, "sum": A + B}),
    "jit, arguments alone": (lambda: gathered(SHARDED), A.T),
}


@pytest.fixture
def slow_path_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the eager and jitted functions whose calls take the slow path."""
    called: list[str] = []
    eagerly, compiled = eager_call.call_eagerly, JitFunction._call_slow_path

    def counted(eager: Any, args: Any, options: Any) -> Any:
        called.append(eager.name)
        return eagerly(eager, args, options)

    def noted(self: Any, args: Any, options: Any) -> Any:
        called.append("jit")
        return compiled(self, args, options)

    monkeypatch.setattr(eager_module, "call_eagerly", counted)
    monkeypatch.setattr(JitFunction, "_call_slow_path", noted)
    return called


def assert_agree(made: Any, expected: Any) -> None:
    assert sd.tree_util.tree_structure(made) == sd.tree_util.tree_structure(expected)
    for one, other in zip(
        sd.tree_util.tree_leaves(made), sd.tree_util.tree_leaves(expected), strict=True
    ):
        assert type(one) is Array
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_runs_no_python_code(name: str) -> None:
    call, expected = CALLS[name]
    for _ in range(3):
        assert_agree(call(), expected)
    assert count_calls(call) == count_calls(lambda: None) + (name == "abs(x)")
    assert_agree(call(), expected)


def test_calls_are_inserted_among_many_uncacheable_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native.CallTable, "should_insert", SHOULD_INSERT)
    for _ in range(5 * native.INSERT_INTERVAL_CALLS):
        X[A > 3]
    for _ in range(2 * native.INSERT_INTERVAL_CALLS):
        X[::-2, ::3]
    assert count_calls(lambda: X[::-2, ::3]) == count_calls(lambda: None)


def test_result_containers_are_built(slow_path_calls: list[str]) -> None:
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: snp.split(X, 2, axis=1), np.split(A, 2, axis=1)),
        (lambda: plus(X, Y), {"sum": A + B, "parts": (A - B, B * 2)}),
        (lambda: plus(y=X, x=Y), {"sum": A + B, "parts": (B - A, A * 2)}),
    ]
    for call, expected in calls:
        for _ in range(3):
            assert_agree(call(), expected)
        slow_path_calls.clear()
        assert_agree(call(), expected)
        assert slow_path_calls == []


def test_updates_are_cache_hits(slow_path_calls: list[str]) -> None:
    calls: list[tuple[Callable[[], Any], Any]] = [
        (lambda: X.at[1:].add(1.0), np.concatenate([A[:1], A[1:] + 1])),
        (lambda: X.at[X > 5].set(0), np.where(A > 5, 0, A).astype(np.float32)),
        (lambda: X.at[:, 1].max(Y[:, 0]), np.maximum(A, np.where(np.eye(4)[1], B[:, :1], -1))),
        (lambda: snp.piecewise(X, [X < 5, X > 7], [1, 3]), np.select([A > 7, A < 5], [3, 1])),
    ]
    for call, expected in calls:
        for _ in range(3):
            assert_agree(call(), expected.astype(np.float32))
        slow_path_calls.clear()
        assert_agree(call(), expected.astype(np.float32))
        assert slow_path_calls == []


def test_operators_distinguish_left_and_right_operands() -> None:
    for _ in range(3):
        for one, other, a, b in ((X, X, A, A), (X, Y, A, B), (Y, X, B, A)):
            np.testing.assert_array_equal(one - other, a - b)
            np.testing.assert_array_equal(one < other, a < b)
        np.testing.assert_array_equal(2 - X, 2 - A)
        np.testing.assert_array_equal(X - 2, A - 2)
        np.testing.assert_allclose(2.0 / Y, 2 / B)
        np.testing.assert_allclose(2**X, 2**A)
    assert (X == "text") is False  # type: ignore[comparison-overlap]
    np.testing.assert_array_equal(np.asarray(A) + X, A + A)
    with pytest.raises(TypeError):
        X.__radd__()


def test_scalar_operands_have_the_results_of_the_slow_path() -> None:
    numbers: list[Any] = [
        1, 0, -3, 2**31 - 1, -(2**31), 1.5, -0.0, 0.1, 1e-40, 3.4028235e38, float("inf"),
        float("nan"), True, False,
    ]  # fmt: skip
    for number in numbers * 3:
        for array in (X, WHOLE):
            made = snp.multiply(array, number)
            expected = sd.jit(lambda x, y: x * y)(array, number)
            assert made.dtype == expected.dtype
            np.testing.assert_array_equal(made, expected)
            np.testing.assert_array_equal(np.signbit(made), np.signbit(expected))
    for number in (2**31, -(2**31) - 1, 2**70):
        for _ in range(3):
            with pytest.raises(NumberRangeError, match=str(number)):
                WHOLE + number
    with sd.enable_x64():
        wide = snp.asarray(np.arange(3))
        for _ in range(3):
            np.testing.assert_array_equal(wide + 2**40, np.arange(3) + 2**40)
            assert (snp.asarray(np.float64(0.0)) + 0.1).item() == 0.1


@pytest.mark.parametrize("number", [3, 2.5, True, np.float32(2), np.int64(3)])
def test_the_class_of_a_cached_number_is_not_a_number(number: Any) -> None:
    """The test first repeats calls with the number, also within containers."""
    doubled = sd.jit(lambda x: [each * 2 for each in x])
    for _ in range(5):
        snp.add(number, number)
        doubled([number])
    wrongs: list[Callable[[], Any]] = [
        lambda: snp.add(type(number), number),  # type: ignore[arg-type]
        lambda: snp.add(type(number), type(number)),  # type: ignore[arg-type]
        lambda: doubled([type(number)]),
    ]
    for wrong in wrongs:
        with pytest.raises(NotAnArrayError):
            wrong()


def test_static_arguments_are_part_of_the_key() -> None:
    for _ in range(3):
        for axis in (0, 1, -1, None, (0, 1), (1,)):
            np.testing.assert_array_equal(snp.sum(X, axis), A.sum(axis))
            np.testing.assert_array_equal(X.sum(axis=axis), A.sum(axis))
        for keep in (True, False):
            assert snp.sum(X, axis=1, keepdims=keep).shape == ((3, 1) if keep else (3,))
        for index in (0, 1, True, slice(1), slice(0, 3, 2), None, ..., (0, 1), (slice(1, 2), -1)):
            np.testing.assert_array_equal(X[index], A[index])
        for value in (0, 1, 1.0, 2.5, True):
            made = snp.full((2, 2), value)
            assert made.dtype == sd.jit(lambda v=value: snp.full((2, 2), v))().dtype
            np.testing.assert_array_equal(made, np.full((2, 2), value))
        for dtype in (np.int32, "int32", np.dtype("float32"), np.float32, bool):
            np.testing.assert_array_equal(snp.astype(X, dtype), A.astype(dtype))


def test_value_dependent_calls_are_not_cached() -> None:
    for number in (0, 1, 2, 1):
        index = snp.asarray(np.int32(number))
        np.testing.assert_array_equal(X[index], A[number])
        np.testing.assert_array_equal(snp.roll(X, index, axis=0), np.roll(A, number, axis=0))
        np.testing.assert_array_equal(snp.arange(index), np.arange(number))
        mask = A[:, 0] > 4 * number - 1
        np.testing.assert_array_equal(X[snp.asarray(mask)], A[mask])
        np.testing.assert_array_equal(snp.where(snp.asarray(mask))[0], np.where(mask)[0])
        assert snp.zeros_like(X, shape=index + 1).shape == (number + 1,)


def test_settings_are_part_of_the_key(slow_path_calls: list[str]) -> None:
    def check() -> None:
        assert (WHOLE * 1.5).dtype == (np.float64 if sd.config.enable_x64 else np.float32)

    for _ in range(3):
        check()
    slow_path_calls.clear()
    with sd.enable_x64():
        check()
        first = len(slow_path_calls)
        for _ in range(3):
            check()
        assert first == len(slow_path_calls) == 1
    mesh = sd.make_mesh((2,), ("a",))
    with mesh:
        for _ in range(3):
            check()
    assert len(slow_path_calls) == 2
    for _ in range(3):
        check()
        with mesh:
            check()
    assert len(slow_path_calls) == 2
    with sd.rules({"mine": "i -> i"}):
        check()
        assert len(slow_path_calls) == 3
    before = sd.config.enable_x64
    try:
        for now in (True, False, True, False):
            sd.config.update("enable_x64", now)
            check()
    finally:
        sd.config.update("enable_x64", before)
    with sd.disable_jit():
        check()


def test_a_call_inside_of_a_trace_is_traced() -> None:
    for _ in range(2):
        snp.add(X, Y), X + Y, X[0], snp.ones_like(X)
    seen: list[Any] = []

    def traced(x: Any) -> Any:
        seen.extend([snp.add(X, Y), X + Y, X[0], snp.ones_like(X)])
        return seen[0] + x + seen[1] + seen[2] + seen[3]

    np.testing.assert_array_equal(sd.jit(traced)(X), 2 * (A + B) + A + A[0] + 1)
    assert Array not in map(type, seen)
    gradient = sd.grad(lambda x: (x * x).sum())(X)
    np.testing.assert_array_equal(gradient, 2 * A)
    np.testing.assert_array_equal(sd.vmap(snp.add)(X, Y), A + B)
    np.testing.assert_array_equal(sd.jit(snp.add)(X, Y), A + B)


def test_dictionary_keys_are_part_of_the_key() -> None:
    fun = sd.jit(lambda t: t["a"] - t["b"])
    named = sd.jit(lambda a, b: a - b)
    both = [("a", "b"), ("b", "a")]
    for _ in range(2):
        for first, second in both:
            for one, other in ((X, X), (X, Y), (Y, X)):
                given = {first: one, second: other}
                expected = np.asarray(given["a"]) - np.asarray(given["b"])
                np.testing.assert_array_equal(fun(given), expected)
                np.testing.assert_array_equal(named(**given), expected)


def test_results_that_are_arguments_are_the_right_arguments() -> None:
    fun = sd.jit(lambda t: (t["a"].reshape(4, 3), t["b"].reshape(2, 6)))
    for one, other in ((A, B), (B, A)) * 2:
        x, y = snp.asarray(one), snp.asarray(other)
        made = fun({"b": y, "a": x})
        del x, y
        np.testing.assert_array_equal(made[0], one.reshape(4, 3))
        np.testing.assert_array_equal(made[1], other.reshape(2, 6))
    for number in (1.5, 2.5, 3.5):
        assert snp.asarray(number).item() == number


def test_cached_functions_behave_as_python_functions() -> None:
    assert snp.add.__name__ == "add"
    assert [*inspect.signature(snp.clip).parameters] == ["arr", "min", "max"]
    zeros = [*inspect.signature(snp.zeros).parameters]
    assert zeros == ["shape", "dtype", "device", "out_sharding"]
    assert inspect.isroutine(snp.add)
    assert "add" in repr(snp.add)
    assert snp.add.__doc__
    assert snp.ones_like.__doc__
    for function in (snp.add, snp.zeros, sd.block_until_ready):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function

    class Bound:
        double = snp.negative

        def __neg__(self) -> str:
            return "mine"

    assert isinstance(Bound.double, type(snp.negative))
    bound: Any = Bound().double  # type: ignore[misc]
    assert type(bound.__self__) is Bound
    fun = sd.jit(lambda x: x + 1)
    fun(X), fun(X)
    for other in (copy.copy(fun), copy.deepcopy(fun)):
        for _ in range(3):
            np.testing.assert_array_equal(other(X), A + 1)
        np.testing.assert_array_equal(other(WHOLE), A + 1)


def test_block_until_ready_returns_its_argument() -> None:
    tree = {"a": X, "b": [Y, None]}
    for _ in range(3):
        assert sd.block_until_ready(tree) is tree
        assert sd.block_until_ready(X) is X
        assert sd.block_until_ready(3) == 3
    wait: Any = sd.block_until_ready
    for wrong in ((), (X, X)):
        with pytest.raises(TypeError):
            wait(*wrong)


def test_more_calls_than_the_cache_holds_stay_correct() -> None:
    fun = sd.jit(lambda x, n: x + n, static_argnums=1)
    for number in range(40):
        for _ in range(2):
            np.testing.assert_array_equal(fun(X, number), A + number)
    for number in range(600):
        value = number / 7
        np.testing.assert_allclose(snp.full(2, value), np.full(2, value), rtol=1e-6)


def test_one_array_may_be_several_arguments() -> None:
    """The cached call does not require that the same array is in the same arguments again."""
    fun = sd.jit(lambda tree, x: (tree["b"] - tree["a"]["c"], x * 2))
    fun({"b": X, "a": {"c": X}}, X)

    def again() -> Any:
        return fun({"b": Y, "a": {"c": X}}, Y)

    for _ in range(2):
        assert_agree(again(), (B - A, B * 2))
    assert count_calls(again) == count_calls(lambda: None)


def test_one_numpy_array_may_be_several_positional_arguments() -> None:
    minus = sd.jit(lambda x, y: x - y)
    for _ in range(3):
        assert_agree(minus(A, A), A - A)
    for again in (lambda: minus(A, A), lambda: minus(A, B)):
        assert count_calls(again) == count_calls(lambda: None)
    assert_agree(minus(A, B), A - B)


@pytest.mark.parametrize("number", [1.5, 2, np.float32(2), np.float64(2), np.int32(2), np.int64(2)])
def test_the_class_of_a_negated_number_is_an_error(number: Any) -> None:
    for _ in range(3):
        assert snp.negative(number) == -number
    with pytest.raises(NotAnArrayError, match=r"argument x of negative is <class '"):
        snp.negative(type(number))  # type: ignore[arg-type]


def test_registered_rules_disable_cached_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call under other sharding rules is another program."""
    fun = sd.jit(lambda x: x + 1)
    fun(X)
    nothing = count_calls(lambda: None)
    assert count_calls(lambda: fun(X)) == nothing
    monkeypatch.setitem(custom_rules._process, "a_custom_call", sharding_rule("i -> i"))
    assert count_calls(lambda: fun(X)) > nothing


def test_a_static_string_and_a_keyword_are_different_calls() -> None:
    def combine(x: Any, *rest: Any, **options: Any) -> Any:
        return x - options["mode"] if options else x + rest[1]

    fun = sd.jit(combine, static_argnums=1)
    for _ in range(3):
        assert_agree(fun(X, "mode", Y), A + B)
        assert_agree(fun(X, mode=Y), A - B)


def test_a_reflected_operator_needs_two_arguments() -> None:
    operator: Any = sd.Array.__radd__
    for _ in range(3):
        assert_agree(operator(X, Y), B + A)
    for wrong in ((X,), (X, Y, X)):
        with pytest.raises(TypeError, match="positional argument"):
            operator(*wrong)


def test_keywords_in_another_order_are_the_same_arguments() -> None:
    subtract = sd.jit(lambda a, b: a - b)
    for _ in range(3):
        assert subtract(b=2.0, a=1.0) == -1
        assert subtract(a=2.0, b=1.0) == 1
        np.testing.assert_array_equal(subtract(b=X, a=1.0), 1 - A)
        np.testing.assert_array_equal(subtract(b=1.0, a=X), A - 1)


def test_complex_numbers_are_arguments() -> None:
    add = sd.jit(lambda a, b: a + b)
    for number in (1j, 2j, 1 + 1j):
        np.testing.assert_array_equal(add(X, number), A + number)
        np.testing.assert_array_equal(snp.multiply(X, number), A * number)


def test_the_bytes_of_bool_arrays_of_numpy_are_not_numbers() -> None:
    as_integers = sd.jit(lambda x: x.astype(np.int32) * 3)
    for _ in range(3):
        given = np.array([2, 1, 0, 255], np.uint8).view(np.bool_)
        assert as_integers(given).tolist() == [3, 3, 0, 3]
        assert snp.sum(given).item() == 3


def test_an_argument_of_which_only_the_type_counts_has_any_position() -> None:
    for x, value in ((X, Y), (Y, X), (X, X), (Y, Y)):
        for _ in range(2):
            np.testing.assert_array_equal(snp.zeros_like(x), 0 * A)
            np.testing.assert_array_equal(snp.zeros_like(a=x), 0 * A)
            assert snp.ones_like(3.0).item() == 1
            assert snp.ones_like(a=3.0, dtype=int).item() == 1
            full = snp.full_like(x, value)
            np.testing.assert_array_equal(full, np.asarray(value))
            np.testing.assert_array_equal(snp.full_like(fill_value=value, a=x), full)


def test_arrays_of_float0_are_no_arguments_of_a_program_on_a_device() -> None:
    twice = sd.jit(lambda zero, x: x * 2, device=sd.devices()[0])
    zero = np.zeros(3, sd.dtypes.float0)
    for k in range(4):
        np.testing.assert_array_equal(twice(zero, X + k), 2 * (A + k))


def test_an_array_that_is_moved_to_a_device_is_not_overwritten() -> None:
    """Its donation consumes the array on the device, which shares its memory."""
    step = sd.jit(lambda x: x * 2 + 1, device=sd.devices()[1], donate_argnums=0)
    for k in range(4):
        given = sd.jit(lambda x, k: x + k)(X, k)
        np.testing.assert_array_equal(step(given), 2 * (A + k) + 1)
        np.testing.assert_array_equal(given, A + k)
