"""Errors for arguments of another type than a function needs: they name the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.tree_util
from shardir.errors import OperationTypeError, OutOfMemoryError, ShardirError
from shardir.frontend.argument_errors import raise_memory_error
from shardir.frontend.errors import (
    ArgumentError,
    ShapeError,
    ShardingError,
    StructureError,
)
from tests.error_assertions import error_line

sd: Any = shardir
lax: Any = shardir.lax
snp: Any = shardir.numpy
A = np.ones((4, 4), np.float32)
STARTS = np.zeros((1, 1), np.int32)
DOT_NUMBERS = (
    "dimension_numbers of dot_general are ((lhs contracting, rhs contracting), (lhs batch, rhs "
    "batch)) dimensions, got "
)
SPLIT = "indices_or_sections of a split must be a tuple of integers, got "


class Fields:
    pass


def gathered(numbers: Any, sizes: Any = (1, 4)) -> Any:
    return lax.gather(A, STARTS, numbers, sizes)


CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: lax.broadcast_in_dim(A, "S4", (0, 1)),
        ArgumentError,
        "argument shape of broadcast_in_dim is 'S4', and must be a sequence of integers",
    ),
    (
        lambda: lax.broadcast_in_dim(A, (4, 4), broadcast_dimensions=(0, 1.5)),
        ArgumentError,
        "argument broadcast_dimensions.1 of broadcast_in_dim is 1.5, and must be an integer",
    ),
    (
        # Two arguments misfit; the error names the first one.
        lambda: lax.broadcast_in_dim(A, 1.5, 1.5),
        ArgumentError,
        "argument shape of broadcast_in_dim is 1.5, and must be a sequence of integers",
    ),
    (
        lambda: lax.concatenate(len, 0),
        ArgumentError,
        "argument operands of concatenate is <built-in function len>, and must be a sequence of "
        "arrays",
    ),
    (
        lambda: lax.dynamic_slice(A, (0, 0), (np.datetime64("2020-01-01"), 1)),
        ArgumentError,
        "argument slice_sizes.0 of dynamic_slice is np.datetime64('2020-01-01'), and must be an "
        "integer",
    ),
    (
        lambda: lax.dynamic_slice_in_dim(A, 0, "a"),
        ArgumentError,
        "slice_size of dynamic_slice_in_dim must be an integer, got 'a'",
    ),
    (
        lambda: lax.dynamic_slice(A, (0, 0), (2, 2), allow_negative_indices=3),
        OperationTypeError,
        "allow_negative_indices of dynamic_slice is a bool, or one for each of 2 dimensions, got 3",
    ),
    (
        lambda: lax.fft(A, "FFT", 4.5),
        ArgumentError,
        "argument fft_lengths of fft is 4.5, and must be a sequence of integers",
    ),
    (lambda: lax.dot_general(A, A, ((1.5,), (0,))), ArgumentError, DOT_NUMBERS + "((1.5,), (0,))"),
    (lambda: lax.dot(A, A, dimension_numbers=True), ArgumentError, DOT_NUMBERS + "True"),
    (
        lambda: lax.dot_general(A, A, (((1.5,), (0,)), ((), ()))),
        ArgumentError,
        "the dimensions of dot_general must be a tuple of integers, got (1.5,)",
    ),
    (
        lambda: lax.dot_general(A, A, (((1,), (2,)), ((), ()))),
        OperationTypeError,
        "rhs of dot_general has 2 dimensions, and not 2",
    ),
    (
        lambda: lax.dot_general(A, A, (((-3,), (0,)), ((), ()))),
        OperationTypeError,
        "lhs of dot_general has 2 dimensions, and not -3",
    ),
    (
        lambda: lax.dot_general(A, A, (((0, 0), (0, 1)), ((), ()))),
        OperationTypeError,
        "dot_general contracts or batches dimension 0 of lhs twice; name each dimension once",
    ),
    (
        lambda: lax.dot_general(A, A, (((1,), (0,)), ((0,), (-2,)))),
        OperationTypeError,
        "dot_general contracts or batches dimension 0 of rhs twice; name each dimension once",
    ),
    (
        lambda: gathered(lax.GatherDimensionNumbers((0, 1, 2), (0,), (0,))),
        OperationTypeError,
        "offset_dims of gather are (0, 1, 2); they are 1 different dimensions of the result, 0 to "
        "3, one for each dimension of the operand that is neither collapsed nor batching",
    ),
    (
        lambda: gathered(lax.GatherDimensionNumbers((2,), (0,), (0,))),
        OperationTypeError,
        "offset_dims of gather are (2,); they are 1 different dimensions of the result, 0 to 1, "
        "one for each dimension of the operand that is neither collapsed nor batching",
    ),
    (
        lambda: gathered(lax.GatherDimensionNumbers((1,), (0,), (0.5,))),
        ArgumentError,
        "dimension_numbers of gather must be a tuple of integers, got (0.5,)",
    ),
    (
        lambda: gathered(lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4.5)),
        ArgumentError,
        "slice_sizes of gather must be a tuple of integers, got (1, 4.5)",
    ),
    (
        lambda: lax.conv_general_permutations(np.array("x")),
        OperationTypeError,
        "dimension_numbers are three strings or tuples, got array('x', dtype='<U1')",
    ),
    (lambda: snp.array_split(A, "12"), ArgumentError, SPLIT + "'12'"),
    (lambda: snp.split(A, [1.7]), ArgumentError, SPLIT + "(1.7,)"),
    (lambda: snp.split(A, np.float16), ArgumentError, SPLIT + "<class 'numpy.float16'>"),
    (
        lambda: snp.pad(A, 1.5),
        OperationTypeError,
        "pad takes a width, a pair of widths, or 2 pairs of them, got 1.5",
    ),
    (lambda: snp.arange(None), ArgumentError, "arange needs a number at which it stops, got None"),
    (
        lambda: snp.diff(A, prepend=(1.5,)),
        ShapeError,
        "diff prepends and appends numbers, or arrays of rank 2 to f32[4, 4], got f32[1]",
    ),
    (lambda: snp.cov(A, ddof=[1]), ArgumentError, "ddof of cov must be an integer, got [1]"),
    (
        lambda: snp.apply_along_axis(3, 0, A),
        ArgumentError,
        "func1d of apply_along_axis must be a function, got 3",
    ),
    (
        lambda: lax.ppermute(A, (), [(0.5, 0)]),
        ArgumentError,
        "perm of ppermute is [(0.5, 0)]; it is a list of pairs (source, target)",
    ),
    (
        lambda: lax.pmax(A, (), axis_index_groups=[[0.5]]),
        ArgumentError,
        "axis_index_groups of pmax is [[0.5]]; it is a list of lists of positions",
    ),
    (
        lambda: sd.nn.initializers.ones(3),
        ArgumentError,
        "ones takes (key, shape, dtype): missing a required argument: 'shape'",
    ),
    (
        lambda: sd.tree_util.flatten_one_level(1),
        StructureError,
        "1 of type int is not a container",
    ),
    (
        lambda: sd.tree.register_dataclass(Fields),
        StructureError,
        "Fields is not a dataclass; decorate it with @dataclass first, or name its data_fields "
        "and meta_fields",
    ),
    (
        lambda: sd.sharding.SingleDeviceSharding(1),
        ShardingError,
        "a SingleDeviceSharding needs a device, got 1; take one from devices()",
    ),
    (
        lambda: sd.sharding.SingleDeviceSharding(sd.devices()[0], memory_kind="unpinned_host"),
        ShardingError,
        "the memory kind 'unpinned_host' is not supported: arrays are in the memory of their "
        'devices, "device"; to keep an array in host memory, convert it with numpy.asarray',
    ),
    (
        lambda: lax.broadcast(A, 10**30),
        OutOfMemoryError,
        "no memory for more than 1073741824.0 PiB: a process can address at most 64.0 PiB; "
        "compute on smaller arrays",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:40] for *_, text in CASES])
def test_an_argument_of_another_type_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert error_line(kind, wrong) == text


@pytest.mark.parametrize(("flag", "columns"), [([1, "a"], 4), ([], 2)])
def test_svd_uses_the_truth_value_of_full_matrices(flag: Any, columns: int) -> None:
    assert snp.linalg.svd(A[:, :2], full_matrices=flag)[0].shape == (4, columns)


@pytest.mark.parametrize("message", ["no memory", "no memory\n --> program.py:3:1"])
def test_an_error_of_memory_keeps_its_state_and_one_location(message: str) -> None:
    error = OutOfMemoryError(message)
    error.has_started = True
    with pytest.raises(OutOfMemoryError) as caught:
        raise_memory_error("sin", error)
    assert caught.value is error
    assert error.has_started
    assert str(error).count(" --> ") == 1
