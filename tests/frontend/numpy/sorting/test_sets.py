"""Set functions agree with NumPy outside of a trace, and have a static `size` inside."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import shardir as sd
from shardir.frontend.errors import TracedValueError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, eagerly, run, same

pytestmark = pytest.mark.sample(5)

Integers = npt.NDArray[Any]
WHOLE = arrays(np.int32, array_shapes(max_dims=2, min_side=0, max_side=6),
               elements=st.integers(-2, 3))  # fmt: skip
ODD = np.array([1.0, np.nan, -0.0, 0.0, np.nan, 1.0, np.inf], np.float32)
FLAGS = {"return_index": True, "return_inverse": True, "return_counts": True}


def narrowed(expected: Any) -> Any:
    return tuple(np.asarray(x).astype(np.int32 if np.asarray(x).dtype == np.int64 else x.dtype)
                 for x in expected)  # fmt: skip


@settings(max_examples=30)
@given(WHOLE)
def test_unique(x: Any) -> None:
    expected = narrowed(np.unique(x, True, True, True))
    same(eagerly(snp.unique, x, **FLAGS), expected)
    count = len(expected[0])
    same(run(lambda x: snp.unique(x, size=count, **FLAGS), x), expected)
    values, index, inverse, counts = run(
        lambda x: snp.unique(x, size=count + 2, fill_value=99, **FLAGS), x
    )
    same(values, np.append(expected[0], np.array([99, 99], np.int32)))
    same(index[:count], expected[1])
    same(inverse, expected[2])
    same(counts, np.append(expected[3], np.array([0, 0], np.int32)))
    assert type(snp.unique(x, size=count, **FLAGS)) is tuple
    same(run(lambda x: snp.unique(x, size=count), x), expected[0])


BITS = arrays(np.int32, array_shapes(min_dims=2, max_dims=3, max_side=4),
              elements=st.integers(0, 1))  # fmt: skip


@settings(max_examples=30)
@given(BITS, st.data())
def test_unique_slices(x: Any, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    expected = narrowed(np.unique(x, True, True, True, axis=axis))
    same(eagerly(snp.unique, x, axis=axis, **FLAGS), expected)
    count = expected[0].shape[axis]
    got = run(lambda x: snp.unique(x, axis=axis, size=count, **FLAGS), x)
    same(got, (*expected[:2], expected[2].reshape(-1), expected[3]))


def test_unique_of_nan() -> None:
    for equal in (True, False):
        expected = np.unique(ODD, equal_nan=equal)
        same(eagerly(lambda x, e=equal: snp.unique(x, equal_nan=e), ODD), expected)
        count = len(expected)
        got = run(lambda x, e=equal, n=count: snp.unique(x, equal_nan=e, size=n), ODD)
        same(got, expected)


def test_the_small_unique_functions() -> None:
    x = np.array([[2, 1], [2, 3]], np.int32)
    for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
        expected = getattr(np, name)(x)
        if name == "unique_values":
            expected = np.sort(expected)
        expected = narrowed(expected if isinstance(expected, tuple) else (expected,))
        for got in (eagerly(getattr(snp, name), x), run(getattr(snp, name), x, size=3)):
            same(tuple(got) if isinstance(got, tuple) else (got,), expected)
    assert eagerly(snp.unique_counts, x).counts.tolist() == [1, 2, 1]


@settings(max_examples=15)
@given(WHOLE, WHOLE)
def test_sets(x: Any, y: Any) -> None:
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        expected = getattr(np, name)(x, y)
        same(eagerly(getattr(snp, name), x, y), expected)
        same(run(getattr(snp, name), x, y, size=len(expected)), expected)
        more = run(getattr(snp, name), x, y, size=len(expected) + 2, fill_value=99)
        same(more, np.append(expected, np.array([99, 99], np.int32)))


@settings(max_examples=60)
@given(WHOLE, WHOLE)
def test_intersect_indices(x: Any, y: Any) -> None:
    expected = narrowed(np.intersect1d(x, y, return_indices=True))
    same(eagerly(lambda x, y: snp.intersect1d(x, y, return_indices=True), x, y), expected)
    count = len(expected[0])
    got = run(lambda x, y: snp.intersect1d(x, y, return_indices=True, size=count), x, y)
    same(got, expected)


@settings(max_examples=60)
@given(WHOLE, WHOLE)
def test_isin(x: Any, y: Any) -> None:
    for invert in (False, True):
        same(run(lambda x, y, i=invert: snp.isin(x, y, invert=i), x, y),
             np.isin(x, y, invert=invert))  # fmt: skip
    same(eagerly(snp.isin, x, y), np.isin(x, y))


def test_isin_of_many() -> None:
    x, tests = np.arange(1000, dtype=np.float32), np.arange(0, 3000, 3, dtype=np.float32)
    tests[3] = np.nan
    same(run(snp.isin, x, tests), np.isin(x, tests))
    same(run(snp.isin, ODD, ODD), np.isin(ODD, ODD))


def test_traced_sets_require_a_size() -> None:
    for name in ("unique", "union1d", "intersect1d", "setdiff1d", "setxor1d"):
        args = (ODD,) if name == "unique" else (ODD, ODD)
        with pytest.raises(TracedValueError) as caught:
            run(getattr(snp, name), *args)
        assert str(caught.value).startswith(
            f"the number of values of {name} depends on traced values; state a maximum with size=\n"
        )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int32])
def test_integers_of_a_small_range_are_counted(dtype: type) -> None:
    limits, rng = np.iinfo(dtype), np.random.default_rng(0)
    for least in (limits.min, limits.max - 100):
        x: Any = (rng.integers(0, 50, 300) * 2 + int(least)).astype(dtype)
        np.testing.assert_array_equal(np.asarray(snp.unique(x)), np.unique(x))
        assert snp.unique(x).dtype == x.dtype
    assert snp.unique(np.zeros((0,), dtype)).shape == (0,)


@pytest.mark.parametrize("count", [1, 5, 128, 129, 256, 257])
def test_isin_of_few_and_many_values(count: int) -> None:
    random = np.random.default_rng(count)
    x, tests = random.integers(0, 1000, (40, 50)), random.integers(0, 1000, count)
    for dtype in (np.int32, np.float32, np.uint8):
        check("isin", x.astype(dtype), tests.astype(dtype))
        check("isin", x.astype(dtype), tests.astype(dtype), invert=True)
    holes = np.array([1.0, np.nan, 2.0], np.float32)
    check("isin", holes, holes)


def test_isin_of_few_values_is_one_loop() -> None:
    x = np.arange(3000, dtype=np.float32)
    for function in (lambda x: snp.isin(x, x[:9]), lambda x: snp.searchsorted(x[:9], x)):
        text = sd.jit(function).lower(x).compile().as_text("schedule")
        assert not any(word in text for word in ("gather", "sort:", "numpy:", "rounds"))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int32])
@pytest.mark.parametrize("spread", [90, 20000])
def test_isin_of_integers_of_a_small_range_uses_a_table(dtype: Any, spread: int) -> None:
    limits, random = np.iinfo(dtype), np.random.default_rng(spread)
    whole = random.integers(limits.min, limits.max, 3000, dtype, endpoint=True)
    edges: Integers = np.array([limits.min, limits.max], dtype)
    spread = min(spread, int(limits.max) - int(limits.min))
    for least in (int(limits.min), int(limits.max) - spread, (int(limits.max) - spread) // 2):
        tests: Integers = (random.integers(0, spread + 1, 300) // 2 * 2 + least).astype(dtype)
        x: Integers = np.concatenate([whole, edges, tests[:50], np.roll(tests[:50] + 1, 1)]).astype(
            dtype
        )
        for invert in (False, True):
            got = snp.isin(snp.asarray(x), snp.asarray(tests), invert=invert)
            np.testing.assert_array_equal(got, np.isin(x, tests, invert=invert))
    mixed = snp.isin(snp.asarray(whole.astype(np.int16)), snp.asarray(tests))
    np.testing.assert_array_equal(mixed, np.isin(whole.astype(np.int16), tests))


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (300, 60), (40, 700)])
def test_concrete_sets_agree_with_numpy(dtype: str, n: int, m: int) -> None:
    """Both arrays have repeated values, zeros of both signs, and NaN."""
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 30, count).astype(dtype) for count in (n, m))
    if dtype == "float32" and n > 3:
        a[:2], a[3:5], b[:2] = np.nan, (-0.0, 0.0), np.nan
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        found = np.asarray(getattr(snp, name)(snp.asarray(a), b))
        expected = getattr(np, name)(a, b)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, err_msg=name)
    whole, host = a.reshape(1, -1), cast("Any", np)
    for name in ("return_index", "return_inverse", "return_counts"):
        both = snp.unique(whole, **{name: True}), host.unique(whole, **{name: True})
        for found, expected in zip(*both, strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=name)
    np.testing.assert_array_equal(snp.unique(a, equal_nan=False), np.unique(a, equal_nan=False))


@pytest.mark.parametrize(
    "dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32"]
)
def test_sets_of_narrow_dtypes_contain_their_limits(dtype: str) -> None:
    limits: Any = np.finfo(dtype) if dtype[0] == "f" else np.iinfo(dtype)
    odd = [limits.min, limits.max, 0, 1, 3]
    odd += [-1, limits.tiny, -np.inf, np.inf, np.nan] if dtype[0] == "f" else []
    rng = np.random.default_rng(0)
    a, b = (rng.choice(np.array(odd, dtype), count) for count in (4, 6))
    for x, y in ((a, b), (b, a), (a, a), (np.array(odd, dtype), a)):
        for name in ("intersect1d", "setdiff1d", "setxor1d"):
            found = np.asarray(getattr(snp, name)(snp.asarray(x), y))
            expected = getattr(np, name)(x, y)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected, err_msg=name)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_sets_of_64_bit_dtypes(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-(1 << 52), 1 << 52, 40).repeat(2).astype(dtype) for _ in range(2))
    a[:9], b[:3] = b[3:12], a[-3:]
    if dtype == "float64":
        a[-1] = b[-1] = np.nan
    with sd.enable_x64():
        for name in ("intersect1d", "setdiff1d", "setxor1d"):
            found = np.asarray(getattr(snp, name)(snp.asarray(a), snp.asarray(b)))
            np.testing.assert_array_equal(found, getattr(np, name)(a, b), err_msg=name)


def test_sets_keep_the_signs_of_zeros() -> None:
    for zero in (0.0, -0.0):
        x, one = (snp.asarray(np.array([v], np.float32)) for v in (zero, 1.0))
        for found in (snp.setdiff1d(x, one), snp.setxor1d(x, x[:0]), snp.intersect1d(x, x)):
            assert np.asarray(found).tobytes() == np.asarray(x).tobytes()
    minus, plus = (snp.asarray(np.array([v], np.float32)) for v in (-0.0, 0.0))
    assert snp.intersect1d(minus, plus).shape == (1,)
    assert snp.setdiff1d(minus, plus).shape == snp.setxor1d(minus, plus).shape == (0,)


def test_sets_of_many_distinct_numbers() -> None:
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.int32):
        x = rng.integers(0, 1 << 32, 90000, dtype=np.uint32).view(dtype)
        a, b = x[:60000], x[30000:]
        for name in ("intersect1d", "setdiff1d", "setxor1d"):
            found = np.asarray(getattr(snp, name)(snp.asarray(a), snp.asarray(b)))
            np.testing.assert_array_equal(found, getattr(np, name)(a, b), err_msg=name)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int32", "int64"])
def test_sets_of_many_integers_of_a_small_range(dtype: str) -> None:
    """The values include the limits of the dtype, and other values."""
    rng, limits = np.random.default_rng(0), np.iinfo(dtype)
    with sd.enable_x64(dtype == "int64"):
        for least in (limits.min, limits.max - 127, 3):
            a, b = (least + rng.integers(0, 125, n).astype(dtype) for n in (5000, 40))
            a[0], b[-1] = limits.min, limits.max
            for x, y in ((a, b), (a[1:], b[:-1])):
                for name in ("intersect1d", "setdiff1d", "setxor1d"):
                    for first, second in ((x, y), (y, x)):
                        found = getattr(snp, name)(snp.asarray(first), snp.asarray(second))
                        expected = getattr(np, name)(first, second)
                        assert np.asarray(found).dtype == expected.dtype
                        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_sets_of_two_dtypes() -> None:
    a, b = np.arange(-100, 5000, dtype=np.int16), np.arange(90, 9000, 3).astype(np.uint8)
    for name in ("intersect1d", "setdiff1d", "setxor1d"):
        found = getattr(snp, name)(snp.asarray(a), snp.asarray(b))
        np.testing.assert_array_equal(found, getattr(np, name)(a, b), err_msg=name)


@pytest.mark.parametrize("dtype", [snp.bfloat16, np.float16, np.float32])
def test_unique_counts_nan_once_for_all_options(dtype: Any) -> None:
    numbers = np.arange(300) % 5
    expected = np.where(np.arange(300) % 7, numbers, np.nan).astype(np.float32)
    with sd.enable_x64():
        values, places, inverse, counts = snp.unique(
            expected.astype(dtype), return_index=True, return_inverse=True, return_counts=True
        )
    assert values.dtype == dtype
    found = np.asarray(values).astype(np.float32)
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 4, np.nan])
    np.testing.assert_array_equal(expected[np.asarray(places)], found)
    np.testing.assert_array_equal(found[np.asarray(inverse)], expected)
    np.testing.assert_array_equal(counts, [*np.bincount(numbers[np.arange(300) % 7 > 0]), 43])


def test_sets_of_bf16_order_nan_as_wider_floats() -> None:
    first, second = (
        np.asarray([*range(a, b), np.nan] * 9, np.float32) for a, b in ((0, 5), (3, 9))
    )
    narrow = [x.astype(snp.bfloat16) for x in (first, second)]
    got = snp.intersect1d(narrow[0], narrow[1], return_indices=True)
    for mine, other in zip(got, np.intersect1d(first, second, return_indices=True), strict=True):
        np.testing.assert_array_equal(np.asarray(mine).astype(np.float32), other)


@pytest.mark.parametrize("options", [{}, {"assume_unique": True}, {"size": 3}])
def test_a_difference_has_the_values_of_the_first_array(options: dict[str, Any]) -> None:
    """They are not promoted with those of the second one, whose type could round them."""
    first = np.array([2**24 + 1, 3, 2**24 + 3], np.int32)
    found = snp.setdiff1d(first, np.array([3.0, 7.5], np.float32), **options)
    assert found.dtype == np.int32
    assert sorted(np.asarray(found).tolist())[-2:] == [2**24 + 1, 2**24 + 3]
    same = snp.setdiff1d([1.5, 2.5], [2], **options)
    assert same.dtype == np.float32
    assert np.asarray(same).tolist()[:2] == [1.5, 2.5]
