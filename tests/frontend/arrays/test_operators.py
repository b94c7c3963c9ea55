"""Operators and methods call the functions of the namespace, on arrays and on traced values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import ArgumentError, ImmutableError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import error_line, raw

X = np.array([[1.5, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
Y = np.array([[2.0, 3.0, -1.0], [1.0, 2.0, 5.0]], np.float32)
M = np.array([[5, 3, 6], [1, 7, 2]], np.int32)
N = np.array([[2, 1, 3], [3, 2, 1]], np.int32)

BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: divmod(x, y)[0],
    lambda x, y: divmod(x, y)[1],
    lambda x, y: x**y,
    lambda x, y: x == y,
    lambda x, y: x != y,
    lambda x, y: x < y,
    lambda x, y: x <= y,
    lambda x, y: x > y,
    lambda x, y: x >= y,
]
BITS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x & y,
    lambda x, y: x | y,
    lambda x, y: x ^ y,
    lambda x, y: x << y,
    lambda x, y: x >> y,
]
UNARY: list[Callable[[Any], Any]] = [
    lambda x: -x,
    lambda x: +x,
    lambda x: abs(x),
    lambda x: x.T,
    lambda x: x.mT,
    lambda x: x.real,
    lambda x: x @ x.T,
    lambda x: x[0],
    lambda x: x[:, 1:],
    lambda x: x[..., None],
    lambda x: x.reshape(3, 2),
    lambda x: x.reshape((-1,)),
    lambda x: x.transpose(1, 0),
    lambda x: x.transpose(),
    lambda x: x.flatten(),
    lambda x: x.ravel(),
    lambda x: x.astype(np.int32),
    lambda x: x.sum(),
    lambda x: x.sum(axis=1, keepdims=True),
    lambda x: x.prod(axis=0),
    lambda x: x.max(axis=1),
    lambda x: x.min(),
    lambda x: x.mean(axis=0),
    lambda x: x.std(),
    lambda x: x.var(axis=1),
    lambda x: x.argmax(axis=1),
    lambda x: x.argmin(),
    lambda x: x.argsort(axis=1),
    lambda x: x.cumsum(axis=1),
    lambda x: x.clip(0, 2),
    lambda x: x.round(),
    lambda x: x.squeeze(),
    lambda x: x.swapaxes(0, 1),
    lambda x: x.repeat(2, axis=0),
    lambda x: x.take(np.array([0, 1])),
    lambda x: x.dot(x.T),
    lambda x: (x > 0).all(),
    lambda x: (x > 0).any(axis=0),
    lambda x: x.conj(),
    lambda x: x.copy(),
]


def agree(made: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-6)
    assert made.shape == np.shape(expected)


@pytest.mark.parametrize("index", range(len(BINARY)))
def test_binary_operators(index: int) -> None:
    operator = BINARY[index]
    for x, y in ((M, N), (M, 3), (2, N)) if index == 8 else ((X, Y), (X, 2), (3, Y), (M, N)):
        ours = [from_numpy(a) if isinstance(a, np.ndarray) else a for a in (x, y)]
        expected = operator(x, y)
        agree(operator(*ours), expected)
        agree(jit(operator)(x, y), expected)
        if isinstance(x, np.ndarray):
            agree(operator(x, ours[1]) if isinstance(y, np.ndarray) else operator(ours[0], y),
                  expected)  # fmt: skip


@pytest.mark.parametrize("index", range(len(BITS)))
def test_bit_operators(index: int) -> None:
    operator = BITS[index]
    for x, y in ((M, N), (M, 3)):
        agree(operator(from_numpy(x), from_numpy(y) if y is N else y), operator(x, y))
        agree(jit(operator)(x, y), operator(x, y))
    agree(~from_numpy(M), ~M)


@pytest.mark.parametrize("index", range(len(UNARY)))
def test_methods(index: int) -> None:
    method = UNARY[index]
    agree(method(from_numpy(X)), method(X))
    agree(jit(method)(X), method(X))


def test_updates_return_new_arrays() -> None:
    x = from_numpy(X)
    y = x.at[0, 1].set(9.0)
    assert (np.asarray(x)[0, 1], np.asarray(y)[0, 1]) == (-2.0, 9.0)
    agree(jit(lambda x: x.at[1].add(1.0))(X), X + [[0], [1]])


def test_operators_return_not_implemented_for_unknown_operands() -> None:
    class Other:
        def __radd__(self, x: Any) -> str:
            return "other"

    assert from_numpy(X) + Other() == "other"
    with pytest.raises(TypeError, match="unsupported operand"):
        from_numpy(X) + "text"
    assert isinstance(X + from_numpy(X), Array)
    assert isinstance(np.float32(2) * from_numpy(X), Array)


def test_arrays_implement_python_protocols() -> None:
    x = from_numpy(X)
    assert 4.0 in x
    assert 5.0 not in x
    agree(round(x), X.round().astype(np.int32))
    agree(round(x, 1), X.round(1))
    with pytest.raises(TypeError, match="has no truth value"):
        jit(lambda x: 4.0 in x)(X)


def test_every_method_exists() -> None:
    for name in dir(Operators):
        value = getattr(Operators, name)
        if not name.startswith("_"):
            assert callable(value) or isinstance(value, property)


def test_values_are_named_after_variables() -> None:
    @jit
    def f(x: Any) -> Any:
        h = x.sum(axis=0) * 2
        y = h.reshape(3, 1)[0]
        return y

    program = f.lower(X).as_text()
    assert "%h = mul(" in program
    assert "%y = " in program
    text = f.lower(X).as_text(locations=True)
    line = f.__wrapped__.__code__.co_firstlineno + 2
    assert f'test_operators.py":{line}:' in text


def test_an_array_is_not_changed_in_place() -> None:
    x = snp.zeros(3)
    with pytest.raises(ImmutableError) as error:
        x[0] = 1

    assert str(error.value).startswith(
        "arrays are never changed in place; make a new one: "
        "x = x.at[index].set(value), or .add, .multiply, .max, ..."
    )


@pytest.mark.parametrize("args", [(), ((2, 3),), ((2, 3), "float32")])
def test_the_class_of_arrays_makes_none(args: tuple[object, ...]) -> None:
    assert error_line(ArgumentError, lambda: raw(snp.ndarray)(*args)) == (
        "ndarray is the type of arrays and traced values, for isinstance and annotations; make an "
        "array with array, zeros, ones, full or empty"
    )
