"""Insertion and deletion at traced indices, and removal of zeros at the ends."""

from typing import Any

import numpy as np
import pytest

from shardir import jit, numpy as snp
from shardir.errors import OperationTypeError
from shardir.frontend.errors import (
    ArgumentError,
    IndexingError,
    NotAnArrayError,
    ShapeError,
    TracedValueError,
)
from tests.error_assertions import error_line

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("index", [2, -1, 0, 4, [3, 1], [1, 1, -3], [2]])
@pytest.mark.parametrize("axis", [1, None])
def test_traced_positions_insert_as_in_numpy(index: Any, axis: int | None) -> None:
    at = np.array(index, np.int32)
    found = jit(lambda x, i: snp.insert(x, i, 7, axis=axis))(X, at)
    np.testing.assert_array_equal(found, np.insert(X, index, 7, axis=axis))


@pytest.mark.parametrize("index", [np.array([1]), [1], np.array(1), 1, slice(1, 2)])
def test_an_array_of_one_position_is_a_sequence_of_positions(index: Any) -> None:
    columns = -X[:, :1] if np.ndim(index) or isinstance(index, slice) else -X[:3, 0]

    def insert(x: Any, values: Any) -> Any:
        return snp.insert(x, index, values, axis=1)

    for made in (insert(X, columns), jit(insert)(X, columns)):
        np.testing.assert_array_equal(made, np.insert(X, index, columns, axis=1))


def test_rows_are_inserted_at_one_traced_position() -> None:
    rows = -X[:2, :3]
    found = jit(lambda x, i, v: snp.insert(x, i, v, axis=1))(X, np.int32(2), rows)
    np.testing.assert_array_equal(found, np.insert(X, 2, rows, axis=1))


@pytest.mark.parametrize("index", [[2, 0], [-1], [[3, 1], [0, 2]]])
def test_distinct_traced_positions_are_deleted(index: Any) -> None:
    at = np.array(index, np.int32)
    deleted = jit(lambda x, i: snp.delete(x, i, axis=1, assume_unique_indices=True))(X, at)
    np.testing.assert_array_equal(deleted, np.delete(X, at.ravel(), axis=1))


def test_traced_positions_that_may_be_equal_are_an_error() -> None:
    two, many = np.zeros(2, np.int32), np.zeros(5, np.int32)
    assert error_line(OperationTypeError, lambda: jit(snp.delete)(X, two)) == (
        "delete takes one traced index, got i32[2]; the size of the result is unknown unless "
        "assume_unique_indices=True states that the indices are distinct"
    )
    assert error_line(
        IndexingError,
        lambda: jit(lambda x, i: snp.delete(x, i, axis=1, assume_unique_indices=True))(X, many),
    ) == ("delete cannot remove 5 distinct elements of 4")
    assert error_line(
        IndexingError, lambda: jit(lambda i: snp.insert(X, i, 7))(np.zeros((2, 2), np.int32))
    ) == ("insert takes an index or a vector of indices, got shape (2, 2)")


@pytest.mark.parametrize("trim", ["fb", "F", "b"])
@pytest.mark.parametrize("axis", [None, 0, (1, 0), -1])
def test_zeros_are_trimmed_along_axes(trim: str, axis: Any) -> None:
    x = np.pad(X, ((1, 2), (0, 3)))
    for each in (x, np.zeros((2, 3))):
        found = snp.trim_zeros(each, trim, axis=axis)
        np.testing.assert_array_equal(found, np.trim_zeros(each, trim, axis=axis))  # type: ignore[arg-type]


def test_trim_zeros_refuses_other_directions_and_traced_arrays() -> None:
    assert error_line(ArgumentError, lambda: snp.trim_zeros(X, "x")) == (
        "trim 'x' is unknown; it is 'f', 'b' or 'fb'"
    )
    with pytest.raises(TracedValueError, match="the size of trim_zeros depends on the values"):
        jit(snp.trim_zeros)(X)


def test_a_function_pads_lines() -> None:
    def numpy_mode(line: Any, width: Any, axis: int, options: Any) -> None:
        line[: width[0]], line[-width[1] :] = options["value"] + axis, -1

    def mode(line: Any, width: Any, axis: int, options: Any) -> Any:
        return line.at[: width[0]].set(options["value"] + axis).at[-width[1] :].set(-1)

    widths = ((1, 2), (2, 1))
    expected = np.pad(X, widths, numpy_mode, value=7)
    np.testing.assert_array_equal(snp.pad(X, widths, mode, value=7), expected)
    assert error_line(ShapeError, lambda: snp.pad(X, 1, lambda line, *_: line[1:])) == (
        "the function of pad returned f32[4] for a line of shape (5,); return all elements of the "
        "padded line"
    )
    told = error_line(NotAnArrayError, lambda: snp.pad(X, 1, lambda *_: None))
    assert told == (
        "the function of pad returned None of type NoneType, which is not an array; return arrays, "
        "numbers and containers of them only"
    )


def test_indices_unravel_into_traced_sizes() -> None:
    indices = np.array([[-1, 5, 40], [0, -70, 23]], np.int8)
    found = jit(snp.unravel_index)(indices, np.array([4, 6], np.int8))
    expected = np.unravel_index(
        np.where(indices < 0, np.maximum(indices + 24, 0), np.minimum(indices, 23)), (4, 6)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.int8
    # The product of the sizes needs more than 32 bits.
    wide = jit(snp.unravel_index)(indices, np.array([65536, 65537], np.int32))
    np.testing.assert_array_equal(wide[0], np.where(indices < 0, 65535, 0))
    np.testing.assert_array_equal(wide[1], indices.astype(int) % 65537)
