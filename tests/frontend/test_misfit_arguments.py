"""Errors for arguments of another type than a function needs: they name the argument."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.scipy.linalg
import shardir.scipy.special
import shardir.tree_util
from shardir.errors import OperationTypeError, OutOfMemoryError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    IndexingError,
    ShapeError,
    ShardingError,
    StructureError,
)
from shardir.frontend.tracebacks import traceback_boundary
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
ONE = snp.float32(1)


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
        lambda: sd.sharding.SingleDeviceSharding(sd.devices()[0], memory_kind=A),
        ShardingError,
        "the memory kind float32[4, 4] is not supported: arrays are in the memory of their "
        'devices, "device"; to keep an array in host memory, convert it with numpy.asarray',
    ),
    (
        lambda: sd.debug.visualize_array_sharding(1.5),
        ShardingError,
        "a value of type float is not placed on devices, so there is nothing to draw; place it "
        "with device_put",
    ),
    (
        lambda: snp.insert(A, 1.5, 2),
        IndexingError,
        "insert takes an index, several indices or a slice, got 1.5",
    ),
    (
        lambda: snp.insert(A, True, 2),
        IndexingError,
        "insert takes an index, several indices or a slice, got True",
    ),
    (
        lambda: snp.roll(A, 1.5),
        ArgumentError,
        "shift of roll must be a tuple of integers, got (1.5,)",
    ),
    (lambda: snp.linalg.multi_dot(()), ShapeError, "multi_dot takes two or more matrices, got 0"),
    (
        lambda: snp.linalg.multi_dot(snp.float32(1)),
        ShapeError,
        "multi_dot takes two or more matrices, got 1",
    ),
    (lambda: snp.block([[], [A]]), OperationTypeError, "block takes lists of at least one block"),
    (
        lambda: snp.lexsort(snp.float32(1)),
        OperationTypeError,
        "lexsort takes a list of keys, or keys along an array, got f32[]",
    ),
    (
        lambda: snp.searchsorted(A[0], A, sorter=STARTS),
        OperationTypeError,
        "searchsorted takes a vector as the sorter, got shape (1, 1)",
    ),
    (
        lambda: snp.take(A, STARTS, fill_value=(1, 2), mode="fill"),
        ArgumentError,
        "fill_value is one number, got (1, 2)",
    ),
    (
        lambda: snp.triu(A, A),
        OperationTypeError,
        "triu takes one integer as the diagonal k, got float32[4, 4]",
    ),
    (
        lambda: snp.einsum_path("ij,jk", A, A, optimize=A),
        ArgumentError,
        "einsum_path does not support the order float32[4, 4]; it is 'auto', 'optimal' or 'greedy'",
    ),
    (
        lambda: snp.array_str(A, precision=-1),
        ArgumentError,
        "precision is at least 0, got -1",
    ),
    (
        lambda: snp.load(snp.ones(2)),
        ArgumentError,
        "load reads from a path or an open file, got f32[2] of type Array",
    ),
    (
        lambda: lax.pad(A, 0.0, [(1, 1)]),
        ArgumentError,
        "padding_config of pad has 3 numbers here, got (1, 1)",
    ),
    (
        lambda: lax.pad(A, 0.0, [(1, 1, 0)]),
        OperationTypeError,
        "padding_config of pad has 2 entries here, got 1",
    ),
    (
        lambda: lax.sort(A, num_keys="a"),
        ArgumentError,
        "num_keys of sort must be an integer, got 'a'",
    ),
    (
        lambda: lax.round(A, A),
        OperationTypeError,
        "float32[4, 4] is not a rounding method; see lax.RoundingMethod",
    ),
    (
        lambda: lax.map(Fields, A),
        ArgumentError,
        "the function of map takes (): too many positional arguments",
    ),
    (
        lambda: lax.linalg.householder_product(A, 1.5),
        ShapeError,
        "taus of householder_product has at least 1 dimension, got shape ()",
    ),
    (
        lambda: lax.linalg.householder_product(A[0], A[0]),
        ShapeError,
        "a of householder_product has at least 2 dimensions, got shape (4,)",
    ),
    (
        lambda: sd.scipy.linalg.eigh_tridiagonal(1.5, A[0]),
        ShapeError,
        "d of eigh_tridiagonal has at least 1 dimension, got shape ()",
    ),
    (
        lambda: sd.scipy.special.multigammaln(A, -7),
        ArgumentError,
        "d of multigammaln is at least 1, got -7",
    ),
    (
        lambda: sd.scipy.special.sph_harm_y(2, 1, A, A, n_max=10**30),
        ArgumentError,
        f"n_max of sph_harm_y is at most 4096, got {10**30}",
    ),
    (
        lambda: sd.scipy.special.sph_harm_y(np.nan, 1, A, A),
        ArgumentError,
        "n of sph_harm_y is finite, got nan",
    ),
    (
        lambda: sd.scipy.special.bernoulli(10**30),
        ArgumentError,
        f"argument n of bernoulli has {10**30}, which does not fit into 64 bits",
    ),
    (
        lambda: snp.round(A, decimals=10**30),
        ArgumentError,
        f"argument decimals of round has {10**30}, which does not fit into 64 bits",
    ),
    (
        lambda: sd.tree.all([A]),
        ArgumentError,
        "a leaf of tree.all is True or False, got float32[4, 4]",
    ),
    (
        lambda: sd.sharding.ManualAxisType(varying="ab"),
        ArgumentError,
        "varying of ManualAxisType is a set of names, got 'ab'",
    ),
    (
        lambda: sd.sharding.ManualAxisType(varying=[1]),
        ArgumentError,
        "varying of ManualAxisType is a set of names, got [1]",
    ),
    (
        lambda: sd.pure_callback(len, np.float16, A),
        ArgumentError,
        "a result of pure_callback is declared as <class 'numpy.float16'> of type type, which has "
        "no shape and dtype; use a ShapeDtypeStruct",
    ),
    (
        lambda: snp.diag(A, "x"),  # The message names diag, and not the function that it calls.
        ArgumentError,
        "argument k of diag is 'x', and must be an integer",
    ),
    (
        lambda: snp.nanstd(A, ddof="x"),  # An operator of arrays raised the error.
        ArgumentError,
        "argument ddof of nanstd is 'x', and must be a real number",
    ),
    (
        lambda: sd.eval_shape(
            lambda: snp.fft.fft2(A, ONE)
        ),  # The length of an array raised the error.
        ArgumentError,
        "argument s of fft2 is f32[], and must be a sequence of integers or None",
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


def test_bernoulli_numbers_beyond_the_floats_are_infinite() -> None:
    found = np.asarray(sd.scipy.special.bernoulli(400))
    assert found.shape == (401,)
    assert found[2:402:4].tolist()[-1] == np.inf
    assert found[4:402:4].tolist()[-1] == -np.inf
    assert not found[3::2].any()


def test_a_sum_of_many_log_gammas_is_one_operation() -> None:
    few, many = sd.scipy.special.multigammaln(100.0, 64), sd.scipy.special.multigammaln(100.0, 65)
    last = sd.scipy.special.gammaln(100.0 - 32) + 32 * np.log(np.pi)
    np.testing.assert_allclose(many - few, last, rtol=1e-3)


@pytest.mark.parametrize(("flag", "columns"), [([1, "a"], 4), ([], 2)])
def test_svd_uses_the_truth_value_of_full_matrices(flag: Any, columns: int) -> None:
    assert snp.linalg.svd(A[:, :2], full_matrices=flag)[0].shape == (4, columns)


@pytest.mark.parametrize("message", ["no memory", "no memory\n --> program.py:3:1"])
def test_an_error_of_memory_keeps_its_state_and_one_location(message: str) -> None:
    error = OutOfMemoryError(message)
    error.has_started = True

    @traceback_boundary
    def fail() -> None:
        raise error

    with pytest.raises(OutOfMemoryError) as caught:
        fail()
    assert caught.value is error
    assert error.has_started
    assert str(error).count(" --> ") == 1
