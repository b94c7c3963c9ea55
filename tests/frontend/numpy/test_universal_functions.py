"""`ufunc` and `frompyfunc`: methods as in NumPy, transformations, and wrong arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import ShardirError
from tests.error_assertions import first_line, raw

pytestmark = pytest.mark.sample(6)

RNG = np.random.default_rng(0)
INTEGERS: Any = RNG.integers(0, 9, (3, 4)).astype(np.int32)
FLOATS: Any = RNG.standard_normal((3, 4)).astype(np.float32)
MASK: Any = INTEGERS > 4
IDENTITIES = {
    "add": 0, "multiply": 1, "bitwise_and": -1, "bitwise_or": 0, "bitwise_xor": 0,
    "logical_and": True, "logical_or": False, "logical_xor": False, "logaddexp": -np.inf,
    "logaddexp2": -np.inf, "maximum": None, "minimum": None, "subtract": None,
}  # fmt: skip


def combine(a: Any, b: Any) -> Any:
    return a * 2 + b


COMBINE = snp.frompyfunc(combine, 2, 1)
EXACT = np.frompyfunc(combine, 2, 1)


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected).astype(found.dtype), 1e-5)


@pytest.mark.parametrize("name", IDENTITIES)
def test_functions_of_numpy_have_its_methods(name: str) -> None:
    ours: Any = getattr(snp, name)
    theirs: Any = getattr(np, name)
    assert isinstance(ours, snp.ufunc)
    assert (ours.nin, ours.nout, ours.identity) == (2, 1, IDENTITIES[name])
    for x in (INTEGERS,) if name.startswith("bitwise") else (INTEGERS, FLOATS):
        if name.startswith("logadd") and x is INTEGERS:
            continue
        assert_close(ours.outer(x[0], x), theirs.outer(x[0], x))
        assert_close(ours.accumulate(x, axis=1), theirs.accumulate(x, axis=1))
        places = np.array([0, 2, 1, 3])
        assert_close(ours.reduceat(x, places, axis=1), theirs.reduceat(x, places, axis=1))
        for axis in (0, 1, None) if name != "subtract" else (0, 1):
            expected = theirs.reduce(x, axis=axis, keepdims=axis == 1)
            assert_close(ours.reduce(x, axis=axis, keepdims=axis == 1), expected)
        options: Any = {"where": MASK, "initial": 2}
        assert_close(ours.reduce(x, **options), theirs.reduce(x, **options))
        if IDENTITIES[name] is not None:
            assert_close(ours.reduce(x, where=MASK), theirs.reduce(x, where=MASK))
        if name.startswith("logical"):
            continue
        changed = x.copy()
        theirs.at(changed, np.array([0, 2, 2]), x)
        assert_close(ours.at(x, np.array([0, 2, 2]), x, inplace=False), changed)


def test_functions_of_the_user_are_applied_in_order() -> None:
    for x in (INTEGERS, FLOATS):
        assert COMBINE(x, x[:1]).dtype == x.dtype
        assert_close(COMBINE(x, x[:, :1]), combine(x, x[:, :1]))
        assert COMBINE(x[:0], x[:0]).shape == (0, 4)
        for axis in (0, 1):
            assert_close(COMBINE.reduce(x, axis=axis), EXACT.reduce(x, axis=axis))
            assert_close(COMBINE.accumulate(x, axis=axis), EXACT.accumulate(x, axis=axis))
        assert_close(COMBINE.reduce(x, axis=None), EXACT.reduce(x.ravel()))
        started = COMBINE.reduce(x, keepdims=True, initial=3, where=MASK)
        expected = np.full((1, 4), 3, x.dtype)
        for row, chosen in zip(x, MASK, strict=True):
            expected = np.where(chosen, combine(expected, row), expected)
        assert_close(started, expected)
        assert_close(COMBINE.reduceat(x, np.array([0, 2, 1])), EXACT.reduceat(x, [0, 2, 1]))
        assert_close(COMBINE.outer(x, x[0]), EXACT.outer(x, x[0]))
        index = (np.array([0, 0, 2, 7]), np.array([1, 1, -1, 0]))
        changed = x.copy()
        for row, column, value in ((0, 1, 1), (0, 1, 2), (2, 3, 3)):
            changed[row, column] = combine(changed[row, column], value)
        found = COMBINE.at(x, index, np.array([1, 2, 3, 4]).astype(x.dtype), inplace=False)
        assert_close(found, changed)
    assert COMBINE.reduce(INTEGERS, dtype="float32").dtype == np.float32
    assert_close(snp.negative.at(FLOATS, slice(0, 2), inplace=False)[:2], -FLOATS[:2])  # type: ignore[attr-defined]
    quotient, rest = snp.frompyfunc(lambda a: (a // 2, a % 2), 1, 2)(INTEGERS)
    assert_close(quotient * 2 + rest, INTEGERS)


def test_equal_functions_are_equal_and_have_names() -> None:
    other = snp.frompyfunc(combine, 2, 1)
    assert other == COMBINE
    assert hash(other) == hash(COMBINE)
    assert snp.frompyfunc(combine, 2, 1, identity=0) != COMBINE
    assert repr(COMBINE) == "<ufunc 'combine'>"
    assert not isinstance(snp.sin, snp.ufunc)


def test_transformations() -> None:
    expected = EXACT.reduce(FLOATS).astype(np.float32)
    assert_close(sd.jit(lambda x: COMBINE.reduce(x))(FLOATS), expected)
    assert_close(sd.vmap(lambda x: COMBINE.reduce(x), 1)(FLOATS), expected)
    gradient = sd.grad(lambda x: COMBINE.reduce(x).sum())(FLOATS)
    assert_close(gradient, np.array([[4], [2], [1]]) * np.ones((1, 4)))
    with sd.cpu_devices(8):
        sharding = sd.NamedSharding(sd.make_mesh((8,), ("i",)), sd.P("i"))
        x = sd.device_put(snp.arange(16.0).reshape(8, 2), sharding)
        apply = sd.jit(lambda x: (COMBINE(x, x), COMBINE.reduce(x, axis=1)))
        assert apply.lower(x).compile().collectives() == []
        assert_close(apply(x)[0], combine(np.asarray(x), np.asarray(x)))
        assert_close(COMBINE.reduce(x), EXACT.reduce(np.asarray(x)))


@pytest.mark.parametrize("name", ["logical_and", "bitwise_xor", "logaddexp"])
def test_reduce_of_several_axes(name: str) -> None:
    x: Any = FLOATS[None] if name == "logaddexp" else INTEGERS[None]
    ours, theirs = getattr(snp, name), getattr(np, name)
    for axis in ((0, 1), (0, -1), (2, 1), ()):
        assert_close(ours.reduce(x, axis=axis), theirs.reduce(x, axis=axis))
        kept = theirs.reduce(x, axis=axis, keepdims=True)
        assert_close(ours.reduce(x, axis=axis, keepdims=True), kept)
    assert_close(ours.reduce(x[0, 0, 0], axis=None), theirs.reduce(x[0, 0, 0], axis=None))


def test_segments_outside_of_the_axis_have_the_fill_value() -> None:
    places = np.array([1, 7, -1, -9])
    expected = np.stack(
        [FLOATS[1] * 2 + FLOATS[2], np.full(4, np.nan), FLOATS[2], np.full(4, np.nan)]
    )
    assert_close(COMBINE.reduceat(FLOATS, places), expected)
    integers = np.asarray(COMBINE.reduceat(INTEGERS, places))
    np.testing.assert_array_equal(integers[[1, 3]], np.full((2, 4), np.iinfo(np.int32).min))
    assert_close(COMBINE.reduceat(FLOATS[:0], places), np.full((4, 4), np.nan))


TWO = snp.frompyfunc(lambda a: (a, a), 1, 2)
FAULTS: list[tuple[Callable[[], Any], str]] = [
    (lambda: TWO.reduce(FLOATS),
     "reduce needs a function of two operands with one result, and lambda has 1 and 2"),
    (lambda: COMBINE(FLOATS), "combine takes 2 operands, got 1"),
    (lambda: COMBINE(FLOATS, FLOATS, out=raw(FLOATS)),
     "combine has no argument out; use its result instead"),
    (lambda: COMBINE.reduce(FLOATS, out=raw(FLOATS)),
     "combine.reduce has no argument out; use its result"),
    (lambda: COMBINE.reduce(FLOATS, where=MASK),
     "combine has no identity, so that reduce with where= needs initial="),
    (lambda: COMBINE.reduce(FLOATS, where=INTEGERS, initial=1),
     "where= takes bools, got i32[3, 4]; compare the numbers, as in w != 0"),
    (lambda: raw(snp.logical_and).reduce(FLOATS, where=INTEGERS),
     "where= takes bools, got i32[3, 4]; compare the numbers, as in w != 0"),
    (lambda: COMBINE.reduce(FLOATS[:0]),
     "combine.reduce has no element and no identity; pass initial="),
    (lambda: COMBINE.reduce(FLOATS, axis=raw((0, 1))),
     "combine.reduce takes one axis or None, got (0, 1)"),
    (lambda: COMBINE.accumulate(FLOATS, axis=raw(None)),
     "combine.accumulate takes one axis of an array, got None and shape (3, 4)"),
    (lambda: COMBINE.at(FLOATS, 0, 1),
     "combine.at cannot write into an array; take the result and pass inplace=False"),
    (lambda: COMBINE.at(FLOATS, 0, inplace=False),
     "combine.at takes 1 operand after the indices, got 0"),
    (lambda: COMBINE.reduceat(FLOATS, [0.5]),
     "combine.reduceat takes a vector of integers as indices, got f32[1]"),
    (lambda: snp.frompyfunc(lambda a, b: (a, b), 2, 1)(1, 2),
     "lambda returned 2 results, and its ufunc has nout=1"),
    (lambda: snp.frompyfunc(lambda a: a * snp.ones(2), 1, 1)(1.0),
     "lambda returned an array of shape (2,) for scalars; return scalars"),
    (lambda: snp.frompyfunc(combine, 0, 1), "nin of ufunc is at least 1, got 0"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_wrong_arguments(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ShardirError) as error:
        call()
    assert first_line(error) == message
