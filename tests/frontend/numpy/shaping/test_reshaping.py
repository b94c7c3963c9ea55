"""Reshapes, transposes and rolls against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.errors import AxisError, ShapeError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, eagerly, ops, run, same

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ROW = np.arange(5, dtype=np.int32)
EMPTY = np.zeros((0, 3), np.float32)

CALLS: list[tuple[Any, ...]] = [
    ("reshape", X, (4, 6)), ("reshape", X, -1), ("reshape", X, (2, -1, 2)), ("reshape", X, 24),
    ("reshape", EMPTY, (-1, 3)), ("reshape", EMPTY, (3, 0)), ("reshape", X, [4, np.int64(6)]),
    ("ravel", X), ("ravel", EMPTY), ("ravel", X, "F"),
    ("transpose", X), ("transpose", X, (1, 0, 2)), ("transpose", X, (-1, 0, 1)),
    ("transpose", ROW), ("permute_dims", X, (2, 0, 1)), ("matrix_transpose", X),
    ("swapaxes", X, 0, -1), ("swapaxes", X, 1, 1),
    ("moveaxis", X, 0, -1), ("moveaxis", X, (0, 1), (-1, 0)), ("moveaxis", X, [2], [0]),
    ("rollaxis", X, 2), ("rollaxis", X, 0, 3), ("rollaxis", X, 1, -1), ("rollaxis", X, -1, 1),
    ("expand_dims", X, 0), ("expand_dims", X, (0, -1)), ("expand_dims", X, 2),
    ("squeeze", X[:1]), ("squeeze", X[:1, :, :1], 0), ("squeeze", X[:1, :, :1], (0, 2)),
    ("squeeze", X), ("squeeze", X[:1, :1, :1]),
    ("broadcast_to", ROW, (3, 5)), ("broadcast_to", X[:, :1], (5, 2, 3, 4)),
    ("broadcast_to", ROW, 5),
    ("broadcast_arrays", X, X[0, :, :1], np.float32(3)),
    ("flip", X), ("flip", X, 1), ("flip", X, (0, -1)), ("fliplr", X), ("flipud", X),
    ("rot90", X), ("rot90", X, 2), ("rot90", X, -1), ("rot90", X, 3, (1, 2)), ("rot90", X, 4),
    ("roll", X, 1), ("roll", X, -5), ("roll", X, 1, 1), ("roll", X, (1, -1), (0, 2)),
    ("roll", X, (1, 2), (1, 1)), ("roll", X, 2, (0, 1)), ("roll", X, 0, 0), ("roll", EMPTY, 1, 1),
    ("roll", EMPTY, 3), ("roll", X, 7, -1),
    ("atleast_1d", np.float32(2)), ("atleast_1d", X), ("atleast_1d", np.float32(2), ROW),
    ("atleast_2d", ROW), ("atleast_2d", X), ("atleast_2d", np.float32(2)),
    ("atleast_3d", ROW), ("atleast_3d", X[0]), ("atleast_3d", X), ("atleast_3d", np.float32(2)),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[0])
def test_results_agree_with_numpy(call: Any) -> None:
    name, *args = call
    check(name, *args)
    same(eagerly(getattr(snp, name), *args), run(getattr(snp, name), *args))


@pytest.mark.parametrize("shape", [(4, 6), (-1, 3), (2, 3, 2, 2)])
def test_reshape_in_column_major_order(shape: Any) -> None:
    check("reshape", X, shape, order="F")


@given(st.data())
def test_transposing_moving_and_rolling(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    x = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    perm = data.draw(st.permutations(range(x.ndim)))
    check("transpose", x, tuple(perm))
    axis = st.integers(-x.ndim, x.ndim - 1)
    check("moveaxis", x, data.draw(axis), data.draw(axis))
    check("swapaxes", x, data.draw(axis), data.draw(axis))
    check("rollaxis", x, data.draw(axis), data.draw(st.integers(-x.ndim, x.ndim)))
    check("roll", x, data.draw(st.integers(-9, 9)), data.draw(st.none() | axis))
    count = data.draw(st.integers(1, 3))
    shifts = data.draw(st.lists(st.integers(-5, 5), min_size=count, max_size=count))
    axes = data.draw(st.lists(axis, min_size=count, max_size=count))
    check("roll", x, tuple(shifts), tuple(axes))


@pytest.mark.parametrize("shift", [0, 1, -1, 5, -7])
def test_roll_by_a_traced_shift(shift: int) -> None:
    by = np.array(shift, np.int32)
    same(run(lambda x, n: snp.roll(x, n), X, by), np.roll(X, shift))
    same(run(lambda x, n: snp.roll(x, n, 1), X, by), np.roll(X, shift, 1))
    several = np.array([shift, 2], np.int32)
    same(run(lambda x, n: snp.roll(x, n, (0, 2)), X, several), np.roll(X, (shift, 2), (0, 2)))
    same(eagerly(lambda x, n: snp.roll(x, n, 1), X, by), np.roll(X, shift, 1))


def test_functions_emit_few_operations() -> None:
    assert ops(lambda x: snp.reshape(x, (4, 6)), X) == ["reshape"]
    assert ops(lambda x: snp.reshape(x, X.shape), X) == []
    assert ops(lambda x: x.transpose(0, 1, 2), X) == []
    assert ops(lambda x: snp.roll(x, 4, -1), X) == []
    assert ops(lambda x: snp.roll(x, 1, -1), X) == ["slice", "slice", "concatenate"]
    assert ops(lambda x: snp.squeeze(x), X) == []


def test_weak_types_are_kept() -> None:
    x = snp.reshape(snp.asarray(2.0), (1, 1))
    assert x.weak_type
    assert snp.roll(snp.transpose(snp.broadcast_to(x, (3, 2))), 1, 0).weak_type


FAULTS: list[tuple[Any, type[Exception], str]] = [
    (lambda x: snp.reshape(x, (5, 5)), OperationTypeError,
     "an array of 24 elements cannot be reshaped to (5, 5)"),
    (lambda x: snp.reshape(x, (-1, -1)), OperationTypeError,
     "an array of 24 elements cannot be reshaped to (-1, -1)"),
    (lambda x: snp.reshape(x, (4, 6), order="K"), OperationTypeError,
     "reshape takes order 'C' (row-major) or 'F' (column-major), got 'K'"),
    (lambda x: snp.transpose(x, (0, 1)), OperationTypeError,
     "axes (0, 1) are not those of an array of rank 3"),
    (lambda x: snp.transpose(x, (0, 1, 1)), AxisError, "axes (0, 1, 1) name one dimension twice"),
    (lambda x: snp.swapaxes(x, 0, 3), AxisError,
     "axis 3 is out of range for an array of rank 3"),
    (
        lambda x: snp.flip(x, 1.5),  # type: ignore[arg-type]
        AxisError,
        "an axis must be an integer, got 1.5",
    ),
    (lambda x: snp.squeeze(x, 1), ShapeError,
     "squeeze cannot remove axis 1 of shape (2, 3, 4), because its size is 3; name axes of size 1, "
     "or use reshape"),
    (lambda x: snp.moveaxis(x, (0, 1), 2), OperationTypeError,
     "moveaxis takes as many sources as destinations, got (0, 1) and 2"),
    (lambda x: snp.broadcast_to(x, (2, 3)), OperationTypeError,
     "shape (2, 3, 4) does not broadcast to (2, 3)"),
    (lambda x: snp.roll(x, (1, 2), (0, 1, 2)), OperationTypeError,
     "roll takes a shift for each axis, got 2 for 3 axes"),
    (lambda x: snp.matrix_transpose(x[0, 0]), OperationTypeError,
     "a matrix transpose takes at least two dimensions, got shape (4,)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), FAULTS)
def test_invalid_arguments_are_errors(call: Any, kind: type[Exception], message: str) -> None:
    computes: list[Callable[[], Any]] = [lambda: run(call, X), lambda: call(from_numpy(X))]
    for compute in computes:
        with pytest.raises(kind) as caught:
            compute()
        first, *rest = str(caught.value).split("\n")
        assert first == message
        assert "test_reshaping.py" in rest[0]
