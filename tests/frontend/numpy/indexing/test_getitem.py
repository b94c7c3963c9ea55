"""Indexing expressions agree with NumPy and emit few operations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.dispatch.jit import jit
from shardir.frontend.errors import IndexingError, TracedValueError
from shardir.frontend.numpy import api as snp
from tests.namespace import eagerly, ops, run, same

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
LAST = np.array([0, 2, -1], np.int32)


@st.composite
def indices_within(draw: st.DrawFn, size: int, shape: tuple[int, ...]) -> Any:
    """Draw an array of indices in range, some of them negative."""
    count = int(np.prod(shape))
    numbers = draw(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count))
    dtype = draw(st.sampled_from([np.int32, np.int8, np.int64]))
    return np.array(numbers, dtype).reshape(shape)


@st.composite
def bounds(draw: st.DrawFn, size: int) -> slice:
    ends = st.none() | st.integers(-size - 2, size + 2)
    steps = st.none() | st.integers(-3, 3).filter(lambda step: step != 0)
    return slice(draw(ends), draw(ends), draw(steps))


@st.composite
def item(draw: st.DrawFn, size: int, batch: tuple[int, ...]) -> Any:
    """Draw an index for one dimension; index arrays broadcast to `batch`."""
    kind = draw(st.sampled_from("isaam" if size else "s"))
    if kind == "i":
        return draw(st.integers(-size, size - 1))
    if kind == "a":
        shape = tuple(1 if draw(st.booleans()) else n for n in batch)
        return draw(indices_within(size, shape[draw(st.integers(0, len(shape))) :]))
    if kind == "m" and batch in [(), (1,)]:
        # The mask has one true element, which broadcasts with the other index arrays.
        return np.arange(size) == draw(st.integers(0, size - 1))
    return draw(bounds(size))


@st.composite
def subscripts(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw an array and an index that NumPy accepts."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=4)))
    batch = draw(st.sampled_from([(), (1,), (2,), (3, 2), (0,)]))
    front = draw(st.integers(0, len(shape)))
    back = draw(st.integers(0, len(shape) - front)) if draw(st.booleans()) else None
    items = [draw(item(size, batch)) for size in shape[:front]]
    if back is not None:
        items += [..., *(draw(item(size, batch)) for size in shape[len(shape) - back :])]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if batch in [(), (1,)] and draw(st.integers(0, 9)) == 0:
        items.insert(draw(st.integers(0, len(items))), True)
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return x, items[0] if len(items) == 1 and draw(st.booleans()) else tuple(items)


@given(subscripts())
def test_reading_agrees_with_numpy(example: tuple[Any, Any]) -> None:
    x, index = example
    same(run(lambda x: x[index], x), x[index])


@given(subscripts())
def test_reading_with_traced_indices_agrees_with_numpy(example: tuple[Any, Any]) -> None:
    x, index = example
    items = index if isinstance(index, tuple) else (index,)
    traced = [isinstance(i, np.ndarray) and i.dtype != bool for i in items]
    arrays = [i for i, is_traced in zip(items, traced, strict=True) if is_traced]

    def read(x: Any, arrays: Any) -> Any:
        rest = iter(arrays)
        filled = [next(rest) if is_traced else i
                  for i, is_traced in zip(items, traced, strict=True)]  # fmt: skip
        return x[tuple(filled)]

    same(run(read, x, [a.astype(np.int32) for a in arrays]), x[index])


@given(subscripts())
def test_writing_agrees_with_numpy(example: tuple[Any, Any]) -> None:
    x, index = example
    new = -1 - np.arange(x[index].size, dtype=np.float32).reshape(x[index].shape)
    changed = x.copy()
    changed[index] = new
    same(run(lambda x, new: x.at[index].set(new), x, new), changed)
    same(run(lambda x: x.at[index].get(), x), x[index])


@given(subscripts(), st.sampled_from(["add", "multiply", "minimum", "maximum", "subtract"]))
def test_updating_agrees_with_numpy(example: tuple[Any, Any], name: str) -> None:
    """The reference is NumPy's `ufunc.at`, which updates repeated elements several times."""
    x, index = example
    new = np.arange(x[index].size, dtype=np.float32).reshape(x[index].shape) % 5 - 2
    changed = x.copy()
    getattr(np, name).at(changed, index, new)
    method = {"minimum": "min", "maximum": "max"}.get(name, name)
    same(run(lambda x, new: getattr(x.at[index], method)(new), x, new), changed)


EXPRESSIONS: list[tuple[Any, list[str]]] = [
    (np.s_[1:3], ["slice"]),
    (np.s_[:, ::2], ["slice"]),
    (np.s_[0], ["slice", "reshape"]),
    (np.s_[0, :, -1], ["slice", "reshape"]),
    (np.s_[..., None], ["reshape"]),
    (np.s_[:], []),
    (np.s_[...], []),
    (np.s_[::-1], ["reverse"]),
    (np.s_[2:0:-1], ["slice", "reverse"]),
    (np.s_[:, [0, 2]], ["constant", "gather"]),
    (np.s_[[0, 2], :, [1, 1]], ["constant", "gather"]),
    (np.s_[0, [0, 2]], ["constant", "slice", "reshape", "gather"]),
    (np.s_[X[:, 0, 0] > 10], ["constant", "gather"]),
]


@pytest.mark.parametrize(("index", "expected"), EXPRESSIONS)
def test_reads_emit_few_operations(index: Any, expected: list[str]) -> None:
    assert ops(lambda x: x[index], X) == expected
    same(eagerly(lambda x: x[index], X), X[index])


UPDATES: list[tuple[Any, list[str]]] = [
    (np.s_[1:3], ["constant", "constant", "dynamic_update_slice"]),
    (np.s_[0], ["reshape", "constant", "dynamic_update_slice"]),
    (np.s_[:], []),
    (np.s_[::2], ["constant", "scatter"]),
    (np.s_[[0, 2]], ["constant", "scatter"]),
]


@pytest.mark.parametrize(("index", "expected"), UPDATES)
def test_writes_emit_few_operations(index: Any, expected: list[str]) -> None:
    new = np.ones(X[index].shape, np.float32)
    assert ops(lambda x, new: x.at[index].set(new), X, new) == expected
    changed = X.copy()
    changed[index] = new
    same(eagerly(lambda x, new: x.at[index].set(new), X, new), changed)


def test_a_traced_integer_is_a_dynamic_slice() -> None:
    made = ops(lambda x, i: x[:, i], X, np.array(2, np.int32))
    assert made[-2:] == ["dynamic_slice", "reshape"]
    for i in (0, 3, -1, -4):
        same(run(lambda x, i: x[:, i], X, np.array(i, np.int32)), X[:, i])
        same(run(lambda x, i: x[i, 1:3], X[..., :3].copy(), np.array(i % 3, np.int32)),
             X[i % 3, 1:3, :3])  # fmt: skip


@pytest.mark.parametrize(("given", "nearest"), [(7, 2), (3, 2), (-4, 0), (-9, 0), (2, 2)])
def test_traced_indices_out_of_range_are_clamped_in_reads(given: int, nearest: int) -> None:
    for shape in ((), (1,)):
        index = np.full(shape, given, np.int32)
        same(run(lambda x, i: x[i], X, index), np.broadcast_to(X[nearest], (*shape, 4, 5)))
    same(run(lambda x: x[np.array([given])], X), X[[nearest]])
    same(eagerly(lambda x, i: x[i], X, np.array([given], np.int32)), X[[nearest]])


@pytest.mark.parametrize("given", [3, 7, -4, -9])
def test_updates_out_of_range_are_dropped(given: int) -> None:
    for shape in ((), (1,), (2,)):
        index = np.full(shape, given, np.int32)
        same(run(lambda x, i: x.at[i].set(0), X, index), X)
        same(run(lambda x, i: x.at[i, 1:].add(1), X, index), X)
    same(run(lambda x: x.at[np.array([given])].set(0), X), X)


def test_modes_of_updates() -> None:
    index = np.array([1, 5, -7], np.int32)
    clipped = X.copy()
    clipped[[1, 2, 0]] = 0
    same(run(lambda x, i: x.at[i].set(0, mode="clip"), X, index), clipped)
    same(run(lambda x, i: x.at[i].set(0, mode="drop", unique_indices=True), X, index),
         np.concatenate([X[:1], 0 * X[1:2], X[2:]]))  # fmt: skip


def test_get_with_fill_mode() -> None:
    index = np.array([1, 5, -7, -1], np.int32)
    filled = X[[1, 0, 0, 2]]
    filled[1:3] = np.nan
    same(run(lambda x, i: x.at[i].get(mode="fill"), X, index), filled)
    filled[1:3] = 9
    same(run(lambda x, i: x.at[i].get(mode="fill", fill_value=9), X, index), filled)
    whole = X.astype(np.int32)
    low = whole[[1, 0, 0, 2]]
    low[1:3] = np.iinfo(np.int32).min
    same(run(lambda x, i: x.at[i].get(mode="fill"), whole, index), low)
    same(run(lambda x, i: x.at[:, i, 0].get(mode="fill", fill_value=-1), X, np.array([4, 1])),
         np.stack([np.full(3, -1, "f"), X[:, 1, 0]], 1))  # fmt: skip


def test_updates_by_division_and_powers_and_functions() -> None:
    x = X + 1
    divided = x.copy()
    divided[1] /= 4
    same(run(lambda x: x.at[1].divide(4), x), divided)
    powered = x.copy()
    powered[[0, 2]] **= 2
    same(run(lambda x: x.at[np.array([0, 2])].power(2), x), powered)
    applied = x.copy()
    applied[:, 1] = np.sqrt(applied[:, 1])
    same(run(lambda x: x.at[:, 1].apply(snp.sqrt), x), applied)


@pytest.mark.parametrize("method", ["set", "add", "multiply", "min", "max"])
def test_updates_accept_traced_masks(method: str) -> None:
    mask = X > 20
    expected = np.asarray(eagerly(lambda x, m: getattr(x.at[m], method)(2), X, mask))
    same(run(lambda x, m: getattr(x.at[m], method)(2), X, mask), expected)
    new = {
        "set": np.full_like(X, 2),
        "add": X + 2,
        "multiply": X * 2,
        "min": np.minimum(X, 2),
        "max": np.maximum(X, 2),
    }[method]
    same(expected, np.where(mask, new, X))
    rows = X[:, 0, 0] > 10
    row = np.arange(5, dtype=np.float32)
    changed = X.copy()
    changed[rows] = row
    same(run(lambda x, m, row: x.at[m].set(row), X, rows, row), changed)
    assert ops(lambda x, m: x.at[m].set(0), X, mask)[-1] == "select"


def test_concrete_masks_select_values_in_order() -> None:
    mask = X % 7 == 0
    new = np.arange(mask.sum(), dtype=np.float32)
    changed = X.copy()
    changed[mask] = new
    same(run(lambda x, new: x.at[mask].set(new), X, new), changed)
    same(eagerly(lambda x, m, new: x.at[m].set(new), X, mask, new), changed)


def test_bools_are_updated_as_numpy_does() -> None:
    flags = np.array([True, False, True, False])
    index = np.array([0, 1, 1, 3], np.int32)
    more = np.array([False, True, False, False])
    for method, ufunc in (("add", np.add), ("multiply", np.multiply), ("min", np.minimum)):
        changed = flags.copy()
        ufunc.at(changed, index, more)
        same(run(lambda x, i, y, m=method: getattr(x.at[i], m)(y), flags, index, more), changed)
    same(run(lambda x: x.at[1:3].add(True), flags), np.array([True, True, True, False]))


def test_values_are_converted_to_the_dtype_of_the_array() -> None:
    whole = np.arange(4, dtype=np.int32)
    same(run(lambda x: x.at[0].set(2.0), whole), np.array([2, 1, 2, 3], np.int32))
    same(eagerly(lambda x: x.at[1:].set([7, 8, 9]), whole), np.array([0, 7, 8, 9], np.int32))
    same(run(lambda x: x.at[1:].add([7, 8, 9]), whole), np.array([0, 8, 10, 12], np.int32))
    same(run(lambda x: x.at[0].set(np.int8(5)), X), np.concatenate([0 * X[:1] + 5, X[1:]]))


def test_lists_of_traced_integers_are_indices() -> None:
    same(run(lambda x, i, j: x[[i, j]], X, np.array(2, "i4"), np.array(0, "i4")), X[[2, 0]])


def test_eager_calls_accept_array_indices() -> None:
    x, i = from_numpy(X), from_numpy(LAST)
    same(np.asarray(x[i]), X[LAST])
    same(np.asarray(x[from_numpy(np.array(1, np.int32))]), X[1])
    same(np.asarray(x[x > 30]), X[X > 30])
    same(np.asarray(jit(lambda x: x[i])(x)), X[LAST])
    same(np.asarray(jit(lambda x, i: x.at[i, 0].add(1.0)[i])(x, i)), _added(X, LAST))


def _added(x: Any, index: Any) -> Any:
    changed = x.copy()
    np.add.at(changed, (index, 0), np.float32(1))
    return changed[index]


def test_keys_are_indexed_and_updated() -> None:
    from shardir.frontend.random import api as random

    keys = random.split(random.key(0), 4)
    words = np.asarray(random.key_data(keys))
    same(np.asarray(random.key_data(keys[1])), words[1])
    same(np.asarray(random.key_data(keys[::-1][from_numpy(np.array([3, 0]))])), words[[0, 3]])
    same(np.asarray(random.key_data(keys.at[0].set(keys[2]))), words[[2, 1, 2, 3]])


VIEWS = [
    (np.float32, np.int32), (np.float32, np.uint16), (np.uint8, np.float32),
    (np.int16, np.uint16), (np.bool_, np.uint8), (np.complex64, np.float32),
    (np.uint8, np.bool_), (np.float32, np.complex64), (np.complex64, np.uint8),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), VIEWS)
def test_view_reinterprets_bits(old: Any, new: Any) -> None:
    x = (np.arange(24).reshape(3, 8) % 2).astype(old)
    same(run(lambda x: x.view(new), x), x.view(new))


def error(call: Callable[[], Any], kind: type[Exception]) -> str:
    """Return the first line of the error; the error also shows the source line of the user."""
    with pytest.raises(kind) as caught:
        call()
    first, *rest = str(caught.value).split("\n")
    assert any("test_getitem.py" in line for line in rest)
    return first


HINT = "pass a mode to x.at[...], such as mode='clip', or set check_static_indices=False, as in JAX"

FAULTS: list[tuple[Any, str]] = [
    (np.s_[3], f"index 3 is out of range for dimension 0 of shape (3, 4, 5); {HINT}"),
    (np.s_[0, -5], f"index -5 is out of range for dimension 1 of shape (3, 4, 5); {HINT}"),
    (np.s_[0, 0, 0, 0], "an array of shape (3, 4, 5) takes at most 3 indices, got 4"),
    (np.s_[..., 0, ...], "an index has at most one '...'"),
    (np.s_[1.0], "1.0 of type float is not an index; indices are integers, slices, ..., None, and "
     "arrays of integers or bools"),
    (np.s_["a"], "'a' of type str is not an index; indices are integers, slices, ..., None, and "
     "arrays of integers or bools"),
    (np.s_[np.ones(2)], "an array of f32 is not an index; convert it with .astype(int)"),
    (np.s_[np.ones(2, bool)], "a mask of shape (2,) does not fit dimensions of (3,)"),
    (np.s_[::0], "the step of a slice cannot be 0"),
    (np.s_[1.5:], "the bounds of a slice are integers or None, got 1.5"),
    (np.s_[[0, 1], [0, 1, 2]], "shapes (2,) and (3,) do not broadcast to one shape"),
]  # fmt: skip


@pytest.mark.parametrize(("index", "message"), FAULTS)
def test_invalid_indices_are_errors(index: Any, message: str) -> None:
    kind = TypeError if message.startswith("shapes") else IndexError
    x = from_numpy(X)
    assert error(lambda: x[index], kind) == message
    assert error(lambda: run(lambda x: x[index], X), kind) == message
    assert error(lambda: run(lambda x: x.at[index].set(0), X), kind) == message


def test_errors_of_traced_masks_and_bounds_name_the_alternative() -> None:
    assert error(lambda: run(lambda x: x[x > 0], X), TracedValueError) == (
        "the size of x[mask] depends on the elements of the mask, which is traced; select "
        "elementwise with snp.where(mask, x, y), or state a maximum with "
        "x[snp.nonzero(mask, size=...)]"
    )
    assert error(lambda: run(lambda x, n: x[:n], X, np.array(1)), TracedValueError) == (
        "the bounds of a slice are traced, so its size is unknown; use lax.dynamic_slice, whose "
        "size is static, or make them static (static_argnums)"
    )


def test_errors_of_updates() -> None:
    whole = np.arange(4, dtype=np.int32)
    assert error(lambda: run(lambda x: x.at[0].set(0.5), whole), TypeError) == (
        "an array of i32 cannot hold f32; convert one of them with .astype"
    )
    assert error(lambda: run(lambda x: x.at[0].set(0, mode="no"), whole), TypeError) == (
        "mode 'no' is unknown; the modes are drop, fill, clip, promise_in_bounds"
    )
    assert error(lambda: run(lambda x: x.at[0].set(0, modus="drop"), whole), TypeError) == (
        "an update takes no option 'modus'; it takes mode, indices_are_sorted, unique_indices"
    )
    assert error(lambda: run(lambda x: x.at[:2].set(np.arange(3)), whole), TypeError) == (
        "shape (3,) does not broadcast to (2,)"
    )
    assert error(lambda: run(lambda x: x.at[0].put(1), whole), AttributeError) == (
        "x.at[index] has no method 'put'; it has add, apply, divide, get, max, min, mul, multiply, "
        "power, set, subtract"
    )
    assert error(lambda: run(lambda x: x.at.set(1), whole), AttributeError) == (
        "x.at has no attribute 'set'; write x.at[index].set"
    )
    x = from_numpy(whole)

    def assign() -> None:
        x.at[0] = 1

    assert error(assign, TypeError) == (
        "arrays are never changed in place; make a new one: x = x.at[index].set(value), or .add, "
        ".multiply, .max, ..."
    )
    empty = np.zeros((0, 3), np.float32)
    assert error(lambda: run(lambda x, i: x[i], empty, np.array([0])), IndexingError) == (
        "dimension 0 of shape (0, 3) has no elements to index"
    )


def test_equal_indices_of_different_types_are_distinguished() -> None:
    x = np.arange(24).reshape(2, 3, 4)
    array = snp.asarray(x)
    indices: list[Any] = [
        1, True, np.int64(1), None, ..., (1,), (1, None), (None, 1), slice(1, None), slice(1),
        slice(None, None, 1), (slice(0, 1), slice(0, True)), (0, 1), (0, True), (False, 1), -1, (),
        (slice(None), slice(0, 2)), (slice(None), (0, 2)),
    ]  # fmt: skip
    for index in indices * 2:
        np.testing.assert_array_equal(array[index], x[index])
