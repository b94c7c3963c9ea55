"""Concatenation, splitting, repetition, insertion and padding against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.numpy import api as snp
from tests.namespace import check, eagerly, numpy_result, ops, run, same

pytestmark = pytest.mark.sample(2)

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
Y = X[:, :1] * 2
ROW = np.arange(5, dtype=np.int32)
COLUMN = np.ones((3, 1), np.int32)

CALLS: list[tuple[Any, ...]] = [
    ("concatenate", [X, X]), ("concatenate", [X, Y], 1), ("concatenate", (X, ROW), None),
    ("concatenate", [ROW, ROW[:0]]), ("concatenate", [X, X[..., :0], X], -1), ("concatenate", X),
    ("concat", [X, X], 0),
    ("stack", [X, X]), ("stack", [ROW, ROW], 1), ("stack", [X, X], -1), ("stack", X, 1),
    ("vstack", [ROW, ROW]), ("vstack", [X, X]), ("hstack", [ROW, ROW]), ("hstack", [X, Y]),
    ("hstack", [np.int32(2), ROW]), ("dstack", [ROW, ROW]), ("dstack", [X, X]),
    ("dstack", [X[0], X[0]]), ("column_stack", [ROW, ROW]), ("column_stack", [COLUMN, ROW[:3]]),
    ("append", ROW, ROW), ("append", X, Y, 1), ("append", X, ROW), ("append", X, X, 0),
    ("block", [[COLUMN, COLUMN], [COLUMN, COLUMN]]), ("block", [ROW, ROW]), ("block", ROW),
    ("block", [[X], [X]]), ("block", [[ROW], [ROW]]), ("block", [[np.int32(1), np.int32(2)]]),
    ("split", X, 2), ("split", ROW, [1, 3]), ("split", X, 2, -1), ("split", ROW, [3, 1, 9]),
    ("split", ROW, (-2,)), ("split", X, [1, 2], 1),
    ("array_split", ROW, 3), ("array_split", ROW, 7), ("array_split", X, 3, 2),
    ("vsplit", X, 2), ("hsplit", X, 3), ("hsplit", ROW, [2]), ("dsplit", X, 2),
    ("unstack", X), ("tile", ROW, 2), ("tile", X, (2, 1, 2)), ("tile", X, (2, 2, 1, 1)),
    ("tile", ROW, (2, 2)), ("tile", X, 1), ("tile", ROW, 0), ("tile", np.int32(3), 4),
    ("repeat", ROW, 2), ("repeat", X, 3, 1), ("repeat", X, 2), ("repeat", X, [1, 0, 2], 1),
    ("repeat", ROW, [0, 1, 2, 3, 4]), ("repeat", X, 0, 0), ("repeat", ROW, [2]),
    ("repeat", X, [2, 1], 0), ("resize", ROW, 7), ("resize", X, (2, 2)), ("resize", X, (5, 7)),
    ("resize", ROW, 0), ("resize", ROW[:0], (2, 2)),
    ("delete", ROW, 1), ("delete", ROW, [0, -1]), ("delete", X, 1), ("delete", X, 1, 1),
    ("delete", X, slice(0, 4, 2), 2), ("delete", ROW, [True, False, True, False, False]),
    ("delete", ROW, []), ("delete", X, [3, 1, 1], -1), ("delete", ROW, slice(None)),
    ("insert", ROW, 1, 7), ("insert", ROW, [1, 3], 9), ("insert", ROW, [3, 1], [8, 9]),
    ("insert", ROW, [1, 1], [8, 9]), ("insert", X, 1, 5.0), ("insert", X, 1, 5.0, 1),
    ("insert", X, -1, ROW[:3].astype("f"), 2), ("insert", X, 1, X[:, 0], 1), ("insert", ROW, 5, 1),
    ("insert", ROW, slice(1, 4, 2), [7, 8]), ("insert", ROW, 2, [7, 8, 9]), ("insert", ROW, [], 1),
    ("insert", X[0], 1, X[0], 0), ("insert", X[0], [1], X[0], 0),
    ("trim_zeros", [0, 0, 1, 0, 2, 0]), ("trim_zeros", [0, 0]), ("trim_zeros", [0, 1, 0], "f"),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_results_agree_with_numpy(call: Any) -> None:
    name, *args = call
    check(name, *args)
    same(eagerly(getattr(snp, name), *args), run(getattr(snp, name), *args))


def test_dtypes_are_promoted() -> None:
    same(run(lambda x, y: snp.concatenate([x, y]), ROW, X[0, 0]), np.array([*ROW, *X[0, 0]], "f4"))
    same(run(lambda x: snp.stack([x, 1.5]), np.float16(2).reshape(())), np.array([2, 1.5], "f2"))
    same(run(lambda x: snp.stack([x, 1.5]), np.array(2, np.int32)), np.array([2, 1.5], "f4"))
    same(run(lambda x: snp.concatenate([x, [1, 2]]), ROW), np.array([*ROW, 1, 2], "i4"))
    half = run(lambda x: snp.concatenate([x, x], dtype=np.float16), ROW)
    same(half, np.array([*ROW, *ROW], "f2"))
    assert snp.concatenate([snp.asarray([1.0]), snp.reshape(snp.asarray(2.0), (1,))]).dtype == "f4"


@given(st.data())
def test_concatenation_inverts_split(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    x = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    count = data.draw(st.integers(1, 5))
    check("array_split", x, count, axis)
    same(run(lambda x: snp.concatenate(snp.array_split(x, count, axis), axis), x), x)
    cuts = data.draw(st.lists(st.integers(-8, 8), max_size=4))
    check("split", x, cuts, axis)


@given(st.data())
def test_inserting_deleting_and_repeating(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    shape = tuple(data.draw(st.lists(st.integers(1, 3), max_size=2)))
    axis = data.draw(st.integers(0, len(shape)))
    shape = (*shape[:axis], size, *shape[axis:])
    x = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    places = data.draw(st.lists(st.integers(-size, size - 1), max_size=5))
    check("delete", x, places, axis)
    check("insert", x, places, 99, axis)
    counts = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    check("repeat", x, counts, axis)


def test_insert_copies_each_element_once() -> None:
    """The parts around the position are slices of the array, not of a concatenation."""
    made = ops(lambda x: snp.insert(x, 1, 5.0, axis=1), X)
    assert made.count("concatenate") == 1


def test_repeat_by_traced_counts() -> None:
    counts = np.array([1, 0, 2], np.int32)
    for total, expected in ((3, [0, 2, 2]), (2, [0, 2]), (5, [0, 2, 2, 2, 2])):
        got = run(lambda x, n, t=total: snp.repeat(x, n, 1, total_repeat_length=t), X, counts)
        same(got, X[:, expected])
        same(eagerly(lambda x, t=total: snp.repeat(x, counts, 1, total_repeat_length=t), X),
             X[:, expected])  # fmt: skip


def test_delete_one_traced_index() -> None:
    for at in (0, 2, -1):
        same(run(lambda x, i: snp.delete(x, i, 1), X, np.array(at)), np.delete(X, at, 1))


def test_functions_emit_few_operations() -> None:
    assert ops(lambda x: snp.concatenate([x, x]), X) == ["concatenate"]
    assert ops(lambda x: snp.split(x, 2), X) == ["slice", "slice"]
    assert ops(lambda x: snp.tile(x, 2), ROW) == ["reshape", "broadcast", "reshape"]
    assert ops(lambda x: snp.delete(x, 1), ROW) == ["slice", "slice", "concatenate"]
    assert ops(lambda x: snp.pad(x, 1), X) == ["constant", "pad"]
    assert ops(lambda x: snp.pad(x, 0), X) == []
    assert ops(lambda x: snp.pad(x, (1, 0), "edge"), ROW) == ["slice", "concatenate"]


MODES = ["constant", "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean",
         "median", "minimum", "empty"]  # fmt: skip
WIDTHS: list[Any] = [1, (2,), (1, 3), ((1, 2), (0, 3), (2, 0)), ((5, 9),), [[1], [0], [2]], {1: 2}]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_pad(mode: str, width: Any) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) * 7 % 11 - 3
    pad: Any = np.pad
    expected = pad(x, width, mode="constant" if mode == "empty" else mode)
    same(run(lambda x: snp.pad(x, width, mode), x), expected)
    same(eagerly(lambda x: snp.pad(x, width, mode), x), expected)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in ("empty", "linear_ramp")])
def test_pad_integers(mode: str) -> None:
    x = np.array([[3, 1, 4], [1, 5, 9]], np.int32)
    check("pad", x, ((1, 2), (3, 1)), mode)


@pytest.mark.parametrize("mode", ["reflect", "symmetric"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_pad_with_odd_reflection(mode: str, size: int) -> None:
    for width in (1, (2, 7), 9):
        check("pad", np.arange(size, dtype=np.float32) ** 2, width, mode, reflect_type="odd")
        check("pad", np.arange(size, dtype=np.int32) ** 2, width, mode)


@pytest.mark.parametrize("mode", ["maximum", "mean", "median", "minimum"])
def test_pad_with_statistics(mode: str) -> None:
    for length in (1, 2, 99, ((1, 2), (2, 1), (3, 3))):
        check("pad", X % 7, 2, mode, stat_length=length)


def test_pad_with_values() -> None:
    for values in (7, (1, 2), ((1, 2), (3, 4), (5, 6)), ((1,), (2,), (3,))):
        check("pad", X, (1, 2), "constant", constant_values=values)
        check("pad", X, 2, "linear_ramp", end_values=values)
        same(eagerly(lambda x, v=values: snp.pad(x, (1, 2), constant_values=v), X),
             np.pad(X, (1, 2), constant_values=values))  # fmt: skip
    same(run(lambda x, v: snp.pad(x, 1, constant_values=v), X, np.float32(3)),
         np.pad(X, 1, constant_values=3))  # fmt: skip
    same(run(lambda x, v: snp.pad(x, 1, constant_values=(v, 4)), X, np.array(3, "f")),
         np.pad(X, 1, constant_values=(3, 4)))  # fmt: skip
    check("pad", ROW, 3, "linear_ramp", end_values=-4)


FAULTS: list[tuple[Any, str]] = [
    (lambda x: snp.concatenate([x, x[0]]),
     "arrays of shapes (2, 3, 4) and (3, 4) cannot be concatenated along axis 0; all other "
     "dimensions must agree"),
    (lambda x: snp.concatenate([]), "concatenate takes at least one array"),
    (lambda x: snp.concatenate([1, 2]), "scalars cannot be concatenated; use stack"),
    (lambda x: snp.stack([x, x[0]]), "stack takes arrays of one shape, got (2, 3, 4) and (3, 4)"),
    (lambda x: snp.split(x, 5), "a dimension of size 2 cannot be split into 5 equal parts"),
    (lambda x: snp.split(x[0, 0, 0], 1), "a scalar cannot be split"),
    (lambda x: snp.repeat(x, [1, 2], 1), "repeat takes 3 counts for this axis, got 2"),
    (lambda x: snp.repeat(x, -1),
     "repeat takes integers of at least 0 as counts, got -1"),
    (lambda x: snp.pad(x, 1, "edges"),
     "pad mode 'edges' is unknown; the modes are constant, empty, edge, wrap, linear_ramp, "
     "reflect, symmetric, maximum, mean, median, minimum"),
    (lambda x: snp.pad(x, 1, "edge", constant_values=1),
     "pad with mode 'edge' has no option 'constant_values'; its options are: none"),
    (lambda x: snp.pad(x, -1), "pad widths cannot be negative, got -1"),
    (lambda x: snp.pad(x, ((1, 2), (3, 4))),
     "pad takes a width, a pair of widths, or 3 pairs of them, got ((1, 2), (3, 4))"),
    (lambda x: snp.pad(x, 1, constant_values=((1, 2), (3, 4))),
     "constant_values is one value, a pair (before, after), or 3 pairs of them"),
    (lambda x: snp.pad(x[:, :0], 1, "edge"),
     "pad with mode 'edge' copies elements of the array, and its dimension 1 has none; "
     "use mode='constant'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Any, message: str) -> None:
    computes: list[Callable[[], Any]] = [lambda: run(call, X), lambda: call(from_numpy(X))]
    for compute in computes:
        with pytest.raises(OperationTypeError) as caught:
            compute()
        first, *rest = str(caught.value).split("\n")
        assert first == message
        assert "test_concatenation.py" in rest[0]


def test_traced_counts_and_positions_out_of_range() -> None:
    with pytest.raises(OperationTypeError) as caught:
        run(lambda x, n: snp.repeat(x, n, 1), X, np.array([1, 2, 3]))
    assert str(caught.value).startswith(
        "repeat with traced counts needs total_repeat_length=, the size of the result\n"
    )
    with pytest.raises(IndexError, match="delete: index 9 is out of bounds"):
        numpy_result(run, lambda x: snp.delete(x, 9, 1), X)
    with pytest.raises(IndexError, match="insert: index 9 is out of bounds"):
        numpy_result(run, lambda x: snp.insert(x, 9, 1, 1), X)


@pytest.mark.parametrize("reps", [0, 1, 2, (0, 2), (2, 0), (1, 3), (3, 1), (2, 1, 1), (0, 1, 1)])
def test_tile_is_that_of_numpy(reps: int | tuple[int, ...]) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(snp.tile(x, reps), np.tile(x, reps), strict=False)
    assert snp.tile(x, reps).shape == np.tile(x, reps).shape
