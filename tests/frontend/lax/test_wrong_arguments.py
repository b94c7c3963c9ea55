"""Errors of `lax` functions for arguments of unsupported types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import OperationTypeError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    NotAnArrayError,
    NumberRangeError,
    ShapeError,
)
from tests.error_assertions import assert_raises_exactly

lax: Any = shardir.lax
X = np.ones(3, np.float32)
MATRIX, ROWS = np.ones((2, 5), np.float32), np.array([[0], [1]])


def gather(numbers: tuple[tuple[int, ...], ...], sizes: tuple[int, int]) -> Any:
    return lax.gather(MATRIX, ROWS, lax.GatherDimensionNumbers(*numbers), sizes)


CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: gather(((1,), (0,), (1,)), (2, 1)),
        OperationTypeError,
        "gather has dimension 0 in collapsed_slice_dims, so its slice size must be 1, and it is 2; "
        "put it into offset_dims, or pass the slice size 1",
    ),
    (
        lambda: gather(((1,), (0,), (1,)), (0, 5)),
        OperationTypeError,
        "gather has dimension 0 in collapsed_slice_dims, so its slice size must be 1, and it is 0; "
        "put it into offset_dims, or pass the slice size 1",
    ),
    (
        lambda: gather(((1,), (7,), (1,)), (1, 1)),
        OperationTypeError,
        "offset_dims of gather are (1,); they are 2 different dimensions of the result, 0 to 1, "
        "one for each dimension of the operand that is neither collapsed nor batching",
    ),
    (
        lambda: gather(((1,), (), (1,), (0,), (0,)), (2, 2)),
        OperationTypeError,
        "gather has dimension 0 in operand_batching_dims, so its slice size must be 1, and it is "
        "2; put it into offset_dims, or pass the slice size 1",
    ),
    (
        lambda: lax.batch_matmul(None, X),
        NotAnArrayError,
        "argument lhs of batch_matmul is None of type NoneType, which is not an array",
    ),
    (
        lambda: lax.batch_matmul(X, X),
        OperationTypeError,
        "batch_matmul takes arrays of the same rank, at least 2, got shapes (3,) and (3,)",
    ),
    (
        lambda: lax.broadcast_to_rank(X, "a"),
        ArgumentError,
        "the rank of broadcast_to_rank must be an integer, got 'a'",
    ),
    (
        lambda: lax.broadcast_to_rank(X, 0),
        OperationTypeError,
        "broadcast_to_rank adds dimensions, and shape (3,) has more than 0",
    ),
    (
        lambda: lax.broadcast_to_rank(X, 10**30),
        ArgumentError,
        "the rank of broadcast_to_rank is at most 64, got 1000000000000000000000000000000",
    ),
    (
        lambda: lax.broadcast_like(X, None),
        NotAnArrayError,
        "argument like_arr of broadcast_like is None of type NoneType, which is not an array",
    ),
    (
        lambda: lax.shape_as_value((1, "a")),
        ShapeError,
        "shape (1, 'a') has the size 'a', which is not an integer",
    ),
    (
        lambda: lax.shape_as_value((2**31,)),
        NumberRangeError,
        "shape_as_value returns sizes as int32, which cannot represent those of (2147483648,)",
    ),
    (
        lambda: lax.reduce_xor(None, (0,)),
        NotAnArrayError,
        "argument operand of reduce_xor is None of type NoneType, which is not an array",
    ),
    (
        lambda: lax.reduce_window(X, "a", lax.add, (1,), (1,), "SAME"),
        NotAnArrayError,
        "argument init_value of reduce_window is 'a' of type str, which is not an array",
    ),
    (
        lambda: lax.reduce_window(X, X, lax.add, (1,), (1,), "SAME"),
        OperationTypeError,
        "the init_value of reduce_window is a number, got f32[3]",
    ),
    (
        lambda: lax.reduce_window(X, 0.0, lax.add, None, (1,), "SAME"),
        OperationTypeError,
        "window_dimensions must be 1 integer above 0, got ()",
    ),
    (
        lambda: lax.reduce_window(X, 0.0, lax.add, 2.5, (1,), "SAME"),
        OperationTypeError,
        "window_dimensions must be 1 integer above 0, got 2.5",
    ),
    (
        lambda: lax.reduce_window(X, 0.0, lax.add, (2,), (1,), [(0, 1), (1, 1)]),
        OperationTypeError,
        "padding has a pair for each of 1 dimension, got ((0, 1), (1, 1))",
    ),
    (
        lambda: lax.reduce_window(X, 0.0, lax.add, (2,), (1,), [(0, 1.5)]),
        OperationTypeError,
        "padding [(0, 1.5)] is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs",
    ),
    (
        lambda: lax.platform_dependent(X, cpu=3),
        ArgumentError,
        "the function of platform_dependent for cpu must be a function, got 3",
    ),
    (
        lambda: lax.platform_dependent(X, cpu=lambda: 3),
        ArgumentError,
        "the function of platform_dependent for cpu takes (): too many positional arguments",
    ),
    (
        lambda: lax.rng_uniform(0.0, 1.0, "a"),
        ShapeError,
        "shape ('a',) has the size 'a', which is not an integer",
    ),
    (lambda: lax.composite(3, "cube"), ArgumentError, "composite takes a function, got 3"),
    (
        lambda: lax.padtype_to_pads(None, (1,), (1,), "SAME"),
        ArgumentError,
        "in_shape of padtype_to_pads must be a tuple of integers, got None",
    ),
    (
        lambda: lax.padtype_to_pads((3,), (2, 2), (1,), "SAME"),
        ArgumentError,
        "window_shape of padtype_to_pads has 1 number here, got (2, 2)",
    ),
    (
        lambda: lax.conv_dimension_numbers(None, (1, 2, 3), None),
        ArgumentError,
        "lhs_shape of a convolution must be a tuple of integers, got None",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2), None),
        ArgumentError,
        "rhs_shape of a convolution has 3 numbers here, got (1, 2)",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), 5),
        OperationTypeError,
        "dimension_numbers are three strings or tuples, got 5",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ((0, 1, 2), (0, 1, 1), (0, 1, 2))),
        OperationTypeError,
        "dimension_numbers place each of the dimensions 0 to 2 once, got (0, 1, 1)",
    ),
    (
        lambda: lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), ((0, 1, 2), "OIH", (0, 1, 2))),
        OperationTypeError,
        "dimension_numbers place each of the dimensions 0 to 2 once, got 'OIH'",
    ),
    (
        lambda: lax.conv_general_permutations(None),
        OperationTypeError,
        "dimension_numbers are three strings or tuples, got None",
    ),
    (
        lambda: lax.conv_general_permutations((None, None, None)),
        ArgumentError,
        "dimension_numbers must be a tuple of integers, got None",
    ),
    (
        lambda: lax.conv_shape_tuple((1, 2, 5), (4, 2), (1,), "SAME"),
        ArgumentError,
        "conv_shape_tuple takes shapes of one rank, at least 2, got (1, 2, 5) and (4, 2)",
    ),
    (
        lambda: lax.conv_shape_tuple((2, 2, 5), (4, 2, 3), (1,), "SAME", 0),
        ArgumentError,
        "batch_group_count is at least 1, got 0",
    ),
    (
        lambda: lax.conv_general_shape_tuple((1, 2, 5), (4, 2, 3), (1,), [(0, "a")], None),
        OperationTypeError,
        "padding [(0, 'a')] is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs",
    ),
    (
        lambda: lax.conv_transpose_shape_tuple((1, 2, 5), (4, 2, 3), (1,), "FULL", None),
        OperationTypeError,
        "padding 'FULL' is unknown; it is 'SAME', 'SAME_LOWER', 'VALID' or pairs",
    ),
    (
        lambda: lax.reduce_window_shape_tuple(3, (2,), (1,), "VALID"),
        ArgumentError,
        "operand_shape of a window must be a tuple of integers, got 3",
    ),
    (
        lambda: lax.pshuffle(X, (), 3),
        ArgumentError,
        "perm of pshuffle must be a tuple of integers, got 3",
    ),
    (
        lambda: lax.pbroadcast(X, (), "a"),
        ArgumentError,
        "source of pbroadcast must be an integer, got 'a'",
    ),
    (
        lambda: lax.pcast(X, "i", to=X),
        ArgumentError,
        "pcast takes to='varying' and the names of axes, got to=array([1., 1., 1.], dtype=float32)",
    ),
    (
        lambda: lax.fori_loop(0, 3, len, X, unroll=int),
        ArgumentError,
        "unroll of fori_loop must be an integer, got <class 'int'>",
    ),
    (
        lambda: lax.fori_loop(0, 3, len, X, unroll=X),
        ArgumentError,
        "unroll of fori_loop must be an integer, got float32[3]",
    ),
    (
        lambda: lax.full(np.ones((1, 1)), 0.0),
        ShapeError,
        "shape (float64[1],) has the size array([1.]), which is not an integer",
    ),
    (
        lambda: lax.shape_as_value(np.array([[3]])),
        ShapeError,
        "shape (int64[1],) has the size array([3]), which is not an integer",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:40] for *_, text in CASES])
def test_an_invalid_argument_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)
