"""Errors of arguments of unsupported types: the function, the parameter, and the accepted types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import OperationTypeError, ShardirError
from shardir.frontend.errors import (
    ArgumentError,
    AxisError,
    IndexingError,
    NotAnArrayError,
    ShapeError,
    StructureError,
    TracedValueError,
)
from tests.error_assertions import error_line, raw

X = snp.arange(3.0)
ENDLESS: list[Any] = [1.0]
ENDLESS.append(ENDLESS)
HUGE = 10**30
MASKED = np.ma.array([1.0, 2.0])
TYPES = (
    "is not an element type; the element types are bool, int2, int4, int8, int16, int32, int64, "
    "uint2, uint4, uint8, uint16, uint32, uint64, float4_e2m1fn, float8_e3m4, float8_e4m3, "
    "float8_e4m3fn, float8_e4m3b11fnuz, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, "
    "float8_e8m0fnu, float16, bfloat16, float32, float64, complex64, complex128"
)
BEYOND = f"is {HUGE}; indices are of 32 bits, so it is at most 2147483647"
NO_MASK = (
    "is a masked array, which shardir does not support; pass x.filled(number), or the mask as a "
    "separate array"
)
CONTAINS_ITSELF = "the list [1.0, [...]] contains itself; a pytree must be finite"
Case = tuple[Callable[[], Any], type[ShardirError], str]

PLACES: list[Case] = [
    (lambda: snp.tril_indices(raw("a")), ArgumentError,
     "n of tril_indices must be an integer, got 'a'"),
    (lambda: snp.tril_indices(3, raw(0.5)), ArgumentError,
     "k of tril_indices must be an integer, got 0.5"),
    (lambda: snp.triu_indices(3, 0, raw([1])), ArgumentError,
     "m of triu_indices must be an integer, got [1]"),
    (lambda: snp.triu_indices(raw(np.ones(3, int))), ArgumentError,
     "n of triu_indices must be an integer, got int64[3]"),
    (lambda: snp.triu_indices(-3), ArgumentError, "n of triu_indices is at least 0, got -3"),
    (lambda: snp.tril_indices(3, 0, -1), ArgumentError,
     "m of tril_indices is at least 0, got -1"),
    (lambda: snp.tril_indices(HUGE), ArgumentError, f"n of tril_indices {BEYOND}"),
    (lambda: snp.tril_indices(raw(X)), ArgumentError,
     "argument n of tril_indices is f32[3], and must be an integer"),
    (lambda: snp.tril_indices_from(raw(None)), NotAnArrayError,
     "argument arr of tril_indices_from is None of type NoneType, which is not an array"),
    (lambda: snp.tril_indices_from(X), OperationTypeError,
     "tril_indices_from takes a matrix, got shape (3,)"),
    (lambda: snp.triu_indices_from(snp.ones((2, 2)), raw("a")), ArgumentError,
     "k of triu_indices_from must be an integer, got 'a'"),
    (lambda: snp.diag_indices(raw(None)), ArgumentError,
     "n of diag_indices must be an integer, got None"),
    (lambda: snp.diag_indices(2, raw("ab")), ArgumentError,
     "ndim of diag_indices must be an integer, got 'ab'"),
    (lambda: snp.diag_indices(2, HUGE), ArgumentError,
     f"ndim of diag_indices is {HUGE}; arrays have at most 64 dimensions"),
    (lambda: snp.diag_indices(HUGE), ArgumentError, f"n of diag_indices {BEYOND}"),
    (lambda: snp.diag_indices_from(raw(3)), OperationTypeError,
     "diag_indices_from takes an array of equal dimensions, got shape ()"),
    (lambda: snp.diag_indices_from(raw("a")), NotAnArrayError,
     "argument arr of diag_indices_from is 'a' of type str, which is not an array"),
    (lambda: snp.mask_indices(3, raw(4)), ArgumentError, "mask_indices takes a function, got 4"),
    (lambda: snp.mask_indices(raw("a"), snp.triu), ArgumentError,
     "n of mask_indices must be an integer, got 'a'"),
    (lambda: snp.nonzero([[1, 2], [3]]), NotAnArrayError,
     "argument a of nonzero is a nested list, which is not an array: setting an array element "
     "with a "
     "sequence. The requested array has an inhomogeneous shape after 1 dimensions. The detected "
     "shape was (2,) + inhomogeneous part."),
    (lambda: snp.nonzero(raw(None)), NotAnArrayError,
     "argument a of nonzero is None of type NoneType, which is not an array"),
    (lambda: snp.nonzero([None]), NotAnArrayError,  # type: ignore[arg-type]
     "argument a of nonzero is [None], which is not an array of numbers"),
    (lambda: snp.nonzero(ENDLESS), StructureError, CONTAINS_ITSELF),
    (lambda: snp.flatnonzero(raw("a")), NotAnArrayError,
     "argument a of flatnonzero is 'a' of type str, which is not an array"),
    (lambda: snp.ravel_multi_index(raw(3), (2, 3)), IndexingError,
     "ravel_multi_index takes a list of index arrays, or one along its first axis, got 3"),
    (lambda: snp.ravel_multi_index(([0], [1]), raw("ab")), ShapeError,
     "shape ('a', 'b') has the size 'a', which is not an integer"),
    (lambda: snp.ravel_multi_index(([0], [1]), (2, 3), raw(3)), IndexingError,
     "mode 3 is unknown; the modes are 'raise', 'clip', 'wrap' and 'ignore'"),
    (lambda: snp.ravel_multi_index(("a", [1]), (2, 3)), NotAnArrayError,
     "argument multi_index.0 of ravel_multi_index is 'a' of type str, which is not an array"),
    (lambda: snp.fill_diagonal(snp.ones((2, 2)), 0, inplace=raw(np.ones(2))), ArgumentError,
     "inplace of fill_diagonal is True or False, got float64[2]"),
]  # fmt: skip

CHOICES: list[Case] = [
    (lambda: snp.choose([0, 1], raw(3)), ArgumentError,
     "choose takes choices as a list, or along an array, got 3"),
    (lambda: snp.choose([0, 1], raw({"a": 1})), ArgumentError,
     "choose takes choices as a list, or along an array, got {'a': 1}"),
    (lambda: snp.choose("a", [X]), NotAnArrayError,
     "argument a of choose is 'a' of type str, which is not an array"),
    (lambda: snp.choose([0.5], [X]), IndexingError, "choose takes integers as indices, got f32"),
    (lambda: snp.choose([0], [X], mode=raw(np.ones(2))), ArgumentError,
     "choose has no mode float64[2]; its modes are 'raise', 'clip' and 'wrap'"),
    (lambda: snp.extract(raw(None), X), NotAnArrayError,
     "argument condition of extract is None of type NoneType, which is not an array"),
    (lambda: snp.compress([True], X, raw("a")), AxisError, "an axis must be an integer, got 'a'"),
    (lambda: snp.compress([True], X, 3), AxisError,
     "axis 3 is out of range for an array of rank 1"),
    (lambda: snp.trim_zeros(raw(None)), NotAnArrayError,
     "argument filt of trim_zeros is None of type NoneType, which is not an array"),
    (lambda: snp.trim_zeros([[0, 1], [2, 0]], axis=2), AxisError,
     "axis 2 is out of range for an array of rank 2"),
    (lambda: snp.trim_zeros(X, raw(3)), ArgumentError,
     "trim 3 is unknown; it is 'f', 'b' or 'fb'"),
    (lambda: snp.searchsorted(X, 1, side=raw(np.ones(2))), ArgumentError,
     "side float64[2] is unknown; it is 'left' or 'right'"),
    (lambda: snp.searchsorted(X, 1, method=raw([1])), ArgumentError,
     "method [1] is unknown; the methods are scan, scan_unrolled, sort, compare_all"),
    (lambda: snp.interp(1, X, X, period=raw("a")), NotAnArrayError,
     "argument period of interp is 'a' of type str, which is not an array"),
    (lambda: snp.interp(1, X, X, period=raw([1, 2])), ArgumentError,
     "the period of interp is a number, got [1, 2]"),
    (lambda: snp.unique(X, raw(MASKED)), ArgumentError,
     "return_index of unique is True or False, got float64[2]"),
    (lambda: snp.unique(X, axis=raw("a")), AxisError, "an axis must be an integer, got 'a'"),
    (lambda: snp.unique(X, axis=1), AxisError, "axis 1 is out of range for an array of rank 1"),
    (lambda: snp.intersect1d(X, X, return_indices=raw(MASKED)), ArgumentError,
     "return_indices of intersect1d is True or False, got float64[2]"),
    (lambda: snp.setdiff1d(X, X, raw(MASKED)), ArgumentError,
     "assume_unique of setdiff1d is True or False, got float64[2]"),
    (lambda: snp.roots(raw(None)), NotAnArrayError,
     "argument p of roots is None of type NoneType, which is not an array"),
    (lambda: snp.roots(MASKED), NotAnArrayError, f"argument p of roots {NO_MASK}"),
]  # fmt: skip

NUMBERS: list[Case] = [
    (lambda: snp.bincount(raw("a")), NotAnArrayError,
     "argument x of bincount is 'a' of type str, which is not an array"),
    (lambda: snp.bincount(snp.array([float("nan")])), OperationTypeError,
     "bincount takes a vector of integers, got f32[1]"),
    (lambda: snp.bincount(snp.arange(3), minlength=raw("a")), ArgumentError,
     "minlength must be an integer, got 'a'"),
    (lambda: snp.bincount(snp.arange(3), length=raw(1.5)), ArgumentError,
     "length of bincount must be an integer, got 1.5"),
    (lambda: snp.bincount(snp.arange(3), length=-1), ArgumentError,
     "length of bincount is at least 0, got -1"),
    (lambda: snp.histogram_bin_edges(X, raw(3.7)), ArgumentError,
     "the number of bins must be an integer, got 3.7"),
    (lambda: snp.histogram_bin_edges(X, raw(float("nan"))), ArgumentError,
     "the number of bins must be an integer, got nan"),
    (lambda: snp.histogram_bin_edges(X, 3, raw({"a": 1})), ArgumentError,
     "range of a histogram is {'a': 1}; it is a pair, (lowest, highest)"),
    (lambda: snp.histogram_bin_edges(X, 3, (1,)), ArgumentError,
     "range of a histogram is (1,); it is a pair, (lowest, highest)"),
    (lambda: snp.histogram(X, 3, density=raw(MASKED)), ArgumentError,
     "density of histogram is True or False, got float64[2]"),
    (lambda: snp.histogramdd(raw(None)), NotAnArrayError,
     "argument sample of histogramdd is None of type NoneType, which is not an array"),
    (lambda: snp.histogramdd(snp.ones((3, 2)), range=raw(3)), ArgumentError,
     "range of histogramdd is 3; it is a list of a pair for each column"),
    (lambda: snp.quantile(X, raw(1j)), ArgumentError,
     "quantile takes a real number as q, got 1j"),
    (lambda: snp.quantile(X, 10**400), ArgumentError,
     f"quantile takes q from 0 to 1, got 1{'0' * 56}..."),
    (lambda: snp.quantile(X, 0.5, method=raw(np.ones(2))), ArgumentError,
     "quantile has no method float64[2]; the methods are linear, lower, higher, midpoint, nearest, "
     "inverted_cdf"),
    (lambda: snp.percentile(X, HUGE), ArgumentError,
     f"percentile takes q from 0 to 100, got {HUGE}"),
    (lambda: snp.nanpercentile(X, raw(None)), NotAnArrayError,
     "argument q of nanpercentile is None of type NoneType, which is not an array"),
    (lambda: snp.nanpercentile(X, raw(["a"])), NotAnArrayError,
     "argument q of nanpercentile is ['a'], which is not an array of numbers"),
    (lambda: snp.hamming(raw(np.ones(3))), ArgumentError,
     "M of hamming is float64[3]; it must be an integer"),
    (lambda: snp.kaiser(3, 10**400), ArgumentError,
     f"kaiser takes a real number as beta, got 1{'0' * 56}..."),
    (lambda: snp.linspace(0, 1, raw(np.ones(3))), ArgumentError,
     "num of linspace is float64[3]; it must be an integer"),
    (lambda: snp.mgrid["a"], ArgumentError,  # type: ignore[index]
     "mgrid takes slices of concrete numbers, as mgrid[0:3, 0:1:5j], got 'a'"),
    (lambda: snp.mgrid[: 10**25], ArgumentError,
     "mgrid cannot make coordinates of slice(None, 10000000000000000000000000, None): Maximum "
     "allowed size exceeded"),
    (lambda: snp.ogrid[0:3:0], ArgumentError,
     "ogrid takes slices of concrete numbers, as ogrid[0:3, 0:1:5j], got slice(0, 3, 0)"),
]  # fmt: skip

TYPES_AND_SHAPES: list[Case] = [
    (lambda: snp.asarray(1, np.array([1])), NotAnArrayError, f"int64[1] {TYPES}"),
    (lambda: snp.asarray(1, raw([1])), NotAnArrayError, f"[1] {TYPES}"),
    (lambda: snp.asarray(1, raw({"a": 1})), NotAnArrayError, f"{{'a': 1}} {TYPES}"),
    (lambda: snp.asarray(X, order=raw(np.ones(2))), ArgumentError,
     "arrays are stored in row-major order, there is no float64[2]"),
    (lambda: snp.array(X, ndmin=raw(np.ones(2))), ArgumentError,
     "ndmin of array must be an integer, got float64[2]"),
    (lambda: snp.array(X, ndmin=HUGE), ArgumentError,
     f"ndmin of array is {HUGE}; arrays have at most 64 dimensions"),
    (lambda: snp.zeros(raw([np.ones(3)])), ShapeError,
     "shape (float64[3],) has the size array([1., 1., 1.]), which is not an integer"),
    (lambda: snp.promote_types("f4", raw(None)), NotAnArrayError,
     "argument b of promote_types is None of type NoneType, which is not an array"),
    (lambda: snp.broadcast_shapes(raw(np.datetime64("2020-01-01"))), ShapeError,
     "shape (np.datetime64('2020-01-01'),) has the size np.datetime64('2020-01-01'), which is "
     "not an integer"),
    (lambda: snp.broadcast_shapes(raw(X)), ArgumentError,
     "an array of type f32[] is not an index; indices are integers"),
    (lambda: snp.lexsort(raw({"a": 1})), OperationTypeError,
     "lexsort takes a list of keys, or keys along an array, got {'a': i32[]}"),
    (lambda: snp.array(X, copy=raw(MASKED)), ArgumentError,
     "copy of array is True or False, got float64[2]"),
    (lambda: snp.can_cast("f4", "f8", raw(3)), ArgumentError,
     "casting of can_cast is 3; the rules are 'no', 'equiv', 'safe', 'same_kind', 'unsafe'"),
    (lambda: snp.array_split(X, HUGE), OperationTypeError,
     f"a split of a dimension of size 3 into {HUGE} parts would have more than 65536 empty parts; "
     "use fewer parts"),
    (lambda: snp.hsplit(raw(None), 2), NotAnArrayError,
     "argument ary of hsplit is None of type NoneType, which is not an array"),
    (lambda: snp.array_split(X, ENDLESS), StructureError, CONTAINS_ITSELF),
    (lambda: snp.einsum(snp.ones((2, 2)), [0, "a"]), ArgumentError,
     "einsum takes lists of integers as axes, got [0, 'a']"),
    (lambda: snp.einsum(snp.ones((2, 2)), [0, 1], raw(5)), ArgumentError,
     "einsum takes lists of integers as axes, got [0, 1], 5"),
    (lambda: snp.diff(X, raw(1.5)), ArgumentError, "n of diff must be an integer, got 1.5"),
    (lambda: snp.polyint(X, HUGE), ArgumentError,
     f"m of polyint is {HUGE}; it must be at most 1024"),
    (lambda: snp.einsum_path("ij,jk", X, X), ArgumentError,
     "einsum subscripts 'ij,jk': has 'ij' for an operand of rank 1"),
    (lambda: snp.einsum_path("i,i", X, raw(None)), NotAnArrayError,
     "argument operands.1 of einsum_path is None of type NoneType, which is not an array"),
    (lambda: snp.pad(X, 1, raw(3)), OperationTypeError,
     "pad mode 3 is unknown; the modes are constant, empty, edge, wrap, "
     "linear_ramp, reflect, symmetric, maximum, mean, median, minimum"),
    (lambda: snp.pad(X, 1, lambda line: line), ArgumentError,
     "the function of pad takes (line): too many positional arguments"),
    (lambda: snp.pad(X, raw(None)), OperationTypeError,
     "pad takes a width, a pair of widths, or 1 pair of them, got None"),
    (lambda: snp.pad(X, raw({"a": 1})), AxisError, "an axis must be an integer, got 'a'"),
    (lambda: snp.pad(X, {2: 1}), AxisError, "axis 2 is out of range for an array of rank 1"),
    (lambda: snp.vectorize(abs, excluded=raw(3)), ArgumentError,
     "excluded of vectorize is 3; it is a set of positions"),
    (lambda: snp.vectorize(abs, signature=raw(3)), ArgumentError,
     "the signature of vectorize is text as '(n),(n,m)->(m)', got 3"),
    (lambda: snp.apply_over_axes(lambda x, axis: None, X, 0), NotAnArrayError,
     "argument a of asarray is None of type NoneType, which is not an array"),
    (lambda: snp.apply_over_axes(snp.sum, X, raw(np.array("a"))), AxisError,
     "an axis must be an integer, got array('a', dtype='<U1')"),
]  # fmt: skip

CASES = [*PLACES, *CHOICES, *NUMBERS, *TYPES_AND_SHAPES]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[case[2][:40] for case in CASES])
def test_an_invalid_argument_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert error_line(kind, wrong) == text


@pytest.mark.parametrize("operands", [(X, X), (X, X, X)])
def test_einsum_path_refuses_other_names_of_orders(operands: tuple[Any, ...]) -> None:
    subscripts = ",".join("i" * len(operands))
    text = error_line(
        ArgumentError, lambda: snp.einsum_path(subscripts, *operands, optimize=raw("a"))
    )
    assert text == (
        "einsum_path does not support the order 'a'; it is 'auto', 'optimal' or 'greedy'"
    )


def test_errors_of_einsum_path_are_passed_on() -> None:
    text = error_line(
        ArgumentError, lambda: snp.einsum_path("i,i,i", X, X, X, optimize=raw([(0, "a")]))
    )
    assert text.startswith("einsum_path does not support the order [(0, 'a')]: ")


def test_the_error_of_a_traced_size_is_that_of_the_tracer() -> None:
    for function in (snp.tril_indices, snp.diag_indices, snp.hamming):
        with pytest.raises(TracedValueError, match="has no int value"):
            sd.jit(function)(3)


@pytest.mark.parametrize("k", [-HUGE, -5, -4, -1, 0, 2, 3, HUGE])
def test_diagonals_outside_of_the_matrix_are_equal(k: int) -> None:
    near = min(max(k, -9), 9)
    for ours, theirs in ((snp.tril_indices, np.tril_indices), (snp.triu_indices, np.triu_indices)):
        for mine, expected in zip(ours(4, k, 3), theirs(4, near, 3), strict=True):
            np.testing.assert_array_equal(mine, expected)


def test_unusual_valid_arguments_are_accepted() -> None:
    assert snp.diff(X, HUGE).shape == (0,)
    assert snp.array_split(X, 5)[4].shape == (0,)
    assert snp.promote_types([], "i4") == snp.float32
    assert not snp.isdtype("S4", "numeric")
    assert snp.histogram(X, np.int64(2))[0].tolist() == [1, 2]
    assert snp.percentile(X, 100) == 2
    assert snp.percentile(X, [0, 50]).tolist() == [0, 1]
    assert snp.pad(X, {-1: (1, 0)}).tolist() == [0, 0, 1, 2]
    assert snp.einsum(snp.ones((2, 3)), [1, 0], np.array([0, 1])).shape == (3, 2)
    assert snp.mgrid[0:2, 0:1:3j].shape == (2, 2, 3)
    assert snp.trim_zeros([0, 0]).shape == (0,)
    assert snp.unique(X, axis=-1).tolist() == [0, 1, 2]
    assert snp.compress([True, False], snp.ones((3, 2)), axis=-1).shape == (3, 1)
