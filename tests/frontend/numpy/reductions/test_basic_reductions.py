"""Reductions against NumPy, over axes, dtypes, masks and special values."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardir import nn
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.numpy import api as snp
from shardir.ir.types import dtype_name
from tests.error_assertions import error_line
from tests.namespace import check, close, numpy_result, ops, run, words

pytestmark = pytest.mark.sample(5)

GENERATOR = np.random.default_rng(5)
FLOATS = GENERATOR.normal(size=(2, 3, 4)).astype("f")
HOLES = np.where(GENERATOR.random((2, 3, 4)) < 0.3, np.nan, FLOATS).astype("f")
HOLES[0, 1] = np.nan
FEW = np.where(GENERATOR.permutation(24).reshape(2, 3, 4) < 2, np.nan, FLOATS).astype("f")
FEW[:, :, 0] = FLOATS[:, :, 0]
FEW[:, 0] = FLOATS[:, 0]
FEW[0] = FLOATS[0]
ODD = np.array([[1, np.inf, 3], [np.nan, 2, 1], [-np.inf, 5, -0.0]], "f")
WHOLE = GENERATOR.integers(-9, 9, (2, 3, 4)).astype("i4")
TRUTH = FLOATS > 0
PLANE = (FLOATS + 1j * FLOATS[::-1]).astype("c8")
MASK = GENERATOR.random((2, 3, 4)) < 0.6

SUMS = words("sum prod mean var std")
EXTREMES = words("max min amax amin ptp")
TRUTHS = words("any all count_nonzero")
NANS = words("nansum nanprod nanmean nanvar nanstd nanmax nanmin")
AXES = [None, 0, -1, (0, 2), (1,), (), (-1, 0, 1)]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", SUMS + EXTREMES + TRUTHS + NANS + ["nanmedian", "median"])
def test_reductions_over_axes(name: str, axis: Any, keepdims: bool) -> None:
    if axis == () and name in ("ptp", "median", "nanmedian"):
        return
    x = HOLES if name.startswith("nan") else FLOATS
    check(name, x, axis=axis, keepdims=keepdims)


@pytest.mark.parametrize("name", SUMS + EXTREMES + TRUTHS + NANS)
@pytest.mark.parametrize("axis", [None, 1])
def test_integers(name: str, axis: Any) -> None:
    check(name, WHOLE, axis=axis)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "any", "all", "max", "min"])
def test_bools(name: str) -> None:
    check(name, TRUTH, axis=1)


@pytest.mark.parametrize("name", [*SUMS, "any", "all", "count_nonzero", "nansum", "nanmean"])
def test_complex_numbers(name: str) -> None:
    check(name, PLANE, axis=(0, 2), rtol=1e-4)


@pytest.mark.parametrize("name", SUMS + EXTREMES + TRUTHS + NANS)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_special_floats(name: str, axis: Any) -> None:
    check(name, ODD, axis=axis)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "any", "all", "nansum", "nanprod"])
def test_empty_arrays(name: str) -> None:
    check(name, FLOATS[:, :0])
    check(name, FLOATS[:, :0], axis=1)


@pytest.mark.parametrize("name", [*words("max min amax amin ptp argmax argmin nanmax median")])
def test_extremes_of_empty_arrays_are_errors(name: str) -> None:
    told = name.removeprefix("a") if name in ("amax", "amin") else name
    told = "max" if name == "ptp" else told
    remedy = "reduce along axes with elements|pass initial="
    message = rf"^{told} of no elements, shape \(2, 0, 4\), has no result; ({remedy})"
    with pytest.raises(ShapeError, match=message):
        run(getattr(snp, name), FLOATS[:, :0])


def test_extremes_along_a_nonempty_axis_of_an_empty_array_are_empty() -> None:
    check("max", FLOATS[:, :0], axis=0)


@pytest.mark.parametrize("where", [MASK, MASK[0], MASK[:, :1].copy()], ids=["whole", "row", "one"])
@pytest.mark.parametrize("name", SUMS + TRUTHS[:2] + ["nansum", "nanmean", "nanvar"])
def test_where(name: str, where: Any) -> None:
    check(name, FLOATS, axis=1, where=where)
    check(name, FLOATS, where=where)


@pytest.mark.parametrize("name", ["max", "min", "sum", "prod", "nanmax", "nansum"])
def test_initial(name: str) -> None:
    check(name, FLOATS, axis=1, initial=0.5)
    check(name, FLOATS, axis=1, initial=0.5, where=MASK)
    if name != "nanmax":
        check(name, WHOLE, initial=3)
    # As in JAX, the initial value is converted to the dtype of the array.
    whole = run(getattr(snp, name), WHOLE[0], initial=0.5)
    assert whole.dtype == np.int32
    assert whole == run(getattr(snp, name), WHOLE[0], initial=0)


def test_extremes_of_bools_with_an_initial_value_are_bools() -> None:
    flags = np.array([[True, False], [False, False]])
    for name, first in (("max", 0), ("max", 1), ("min", 1), ("min", False)):
        check(name, [flags], axis=1, initial=first)


def test_extremes_with_where_require_an_initial_value() -> None:
    with pytest.raises(OperationTypeError, match=r"^max with where= needs initial="):
        run(snp.max, FLOATS, where=MASK)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_and_argmin(name: str, axis: Any, keepdims: bool) -> None:
    for x in (FLOATS, WHOLE):
        check(name, x, axis=axis, keepdims=keepdims)
    check(name, ODD, axis=None if axis is None else axis % 2, keepdims=keepdims)
    check(f"nan{name}", FEW, axis=axis, keepdims=keepdims)


def test_nanargmax_of_all_nan_is_minus_one() -> None:
    assert run(snp.nanargmax, np.array([[1, np.nan], [np.nan, np.nan]], "f"), axis=1).tolist() == [
        0,
        -1,
    ]


@pytest.mark.parametrize("ddof", [0, 1, 2])
@pytest.mark.parametrize("name", ["var", "std", "nanvar", "nanstd"])
def test_degrees_of_freedom(name: str, ddof: int) -> None:
    check(name, FLOATS, axis=1, ddof=ddof)
    check(name, FLOATS, axis=0, ddof=0)


def test_correction_is_ddof() -> None:
    check("var", FLOATS, axis=1, correction=1)
    with pytest.raises(ArgumentError, match="var takes ddof or correction, which mean the same"):
        run(snp.var, FLOATS, ddof=1, correction=1)


@pytest.mark.parametrize(
    ("name", "dtype", "expected"),
    [
        ("sum", "i1", "i32"), ("sum", "u1", "u32"), ("sum", "bool", "i32"), ("sum", "f2", "f16"),
        ("prod", "i2", "i32"), ("mean", "i1", "f32"), ("mean", "f2", "f16"), ("mean", "c8", "c64"),
        ("var", "c8", "f32"), ("var", "i1", "f32"), ("std", "f2", "f16"), ("max", "i1", "i8"),
        ("argmax", "f4", "i32"), ("cumsum", "i1", "i8"), ("cumsum", "bool", "i32"),
        ("count_nonzero", "f4", "i32"), ("median", "i4", "f32"), ("ptp", "u1", "u8"),
        ("nansum", "bool", "i32"), ("average", "i4", "f32"), ("cumulative_sum", "i1", "i32"),
    ],
)  # fmt: skip
def test_dtypes_agree_with_jax(name: str, dtype: str, expected: str) -> None:
    assert dtype_name(run(getattr(snp, name), np.ones(3, dtype)).dtype) == expected


def test_dtype_argument() -> None:
    assert run(snp.sum, FLOATS, dtype=int).tolist() == FLOATS.astype("i4").sum()
    assert run(snp.mean, WHOLE, dtype="float16").dtype == np.float16
    assert run(snp.sum, WHOLE.astype("i1"), promote_integers=False).dtype == np.int8


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_floats_are_averaged_without_overflow(dtype: Any) -> None:
    x = np.full(5000, 100, dtype)
    assert run(snp.mean, x) == 100
    assert run(snp.var, x) == 0


def test_operations() -> None:
    assert ops(snp.sum, FLOATS) == ["sum"]
    assert ops(snp.sum, FLOATS, axis=1, keepdims=True) == ["sum", "reshape"]
    assert ops(snp.mean, FLOATS) == ["sum", "constant", "div"]
    assert ops(snp.max, FLOATS, axis=0) == ["max"]
    assert ops(snp.median, FLOATS[0, 0, :3]) == words("sort slice reshape slice reshape ne select")


def test_invalid_axes_are_errors() -> None:
    with pytest.raises(AxisError) as error:
        run(lambda x: x.sum(axis=3), FLOATS)
    text = str(error.value)
    assert text.startswith("axis 3 is out of range for an array of rank 3\n")
    assert "run(lambda x: x.sum(axis=3), FLOATS)" in text
    with pytest.raises(AxisError, match=r"axes \(0, -3\) name one dimension twice"):
        run(snp.sum, FLOATS, axis=(0, -3))


def test_out_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="sum takes no out=; arrays are immutable"):
        run(snp.sum, FLOATS, out=FLOATS[0].tolist())


@pytest.mark.parametrize("axis", [None, 0, (0, 1), -1])
@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("q", [0, 0.3, 0.5, 0.9, 1])
@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_quantiles(name: str, q: float, method: str, axis: Any) -> None:
    x = HOLES[:, [0, 2]] if name == "nanquantile" else FLOATS
    check(name, x, q, axis=axis, method=method)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("q", [np.array([0.1, 0.5], "f"), np.array([[0.25], [0.75]], "f")])
def test_many_quantiles(q: Any, keepdims: bool) -> None:
    for name, x in (("quantile", FLOATS), ("nanquantile", HOLES), ("quantile", WHOLE)):
        # NumPy's nanquantile has the axes in another order if q is an array.
        line = numpy_result(
            getattr(np, name), x.astype("f8"), q.ravel(), axis=(0, 2), keepdims=keepdims
        )
        expected = line.reshape(q.shape + line.shape[1:])
        close(run(getattr(snp, name), x, q, axis=(0, 2), keepdims=keepdims), expected, 1e-4)


def test_percentiles() -> None:
    for name in ("percentile", "nanpercentile"):
        check(name, FLOATS, 30, axis=1)
        got = run(getattr(snp, name), FLOATS, [10, 90], axis=1)
        close(got, np.percentile(FLOATS, [10, 90], axis=1), 1e-4)


def test_quantiles_of_special_floats() -> None:
    assert repr(run(snp.quantile, ODD, 0.5, axis=1).tolist()) == "[3.0, nan, -0.0]"
    check("median", np.array([1, np.inf, np.inf, np.inf], "f"))
    check("median", np.array([1, 2, np.nan], "f"))
    check("nanmedian", np.array([[1, 2, np.nan], [np.nan, np.nan, np.nan]], "f"), axis=1)
    assert run(snp.quantile, np.array([1, np.inf], "f"), np.array(0.0, "f")) == 1


def test_quantiles_are_between_the_extremes() -> None:
    with pytest.raises(ArgumentError, match=r"quantile takes q from 0 to 1, got 1.5"):
        run(snp.quantile, FLOATS, 1.5)
    with pytest.raises(ArgumentError, match="quantile has no method 'cubic'; the methods are lin"):
        run(snp.quantile, FLOATS, 0.5, method="cubic")


def test_average() -> None:
    weights = np.abs(FLOATS)
    for axis in (None, 1, (0, 2)):
        check("average", FLOATS, axis=axis)
        check("average", FLOATS, axis=axis, weights=weights, returned=True)
        check("average", FLOATS, axis=axis, weights=weights, keepdims=True)
    check("average", FLOATS, axis=1, weights=np.array([1, 2, 3], "f"))
    with pytest.raises(ShapeError, match=r"weights of average have shape \(3,\), not \(2, 3, 4\)"):
        run(snp.average, FLOATS, weights=np.array([1, 2, 3], "f"))


@pytest.mark.parametrize("options", [{}, {"bias": True}, {"ddof": 2}, {"rowvar": False}], ids=str)
def test_covariances(options: Any) -> None:
    x = FLOATS[0]
    check("cov", x, **options)
    check("cov", PLANE[0], **options)
    if options != {"rowvar": False}:
        check("cov", x[0], **options)
        check("cov", x, x[::-1].copy(), **options)
        how_often, how_much = np.array([1, 2, 1, 3], "i4"), np.array([0.5, 1, 2, 0.1], "f")
        check("cov", x, fweights=how_often, **options)
        check("cov", x, aweights=how_much, **options)
        check("cov", x, fweights=how_often, aweights=how_much, **options)


def test_correlations() -> None:
    check("corrcoef", FLOATS[0])
    check("corrcoef", FLOATS[0], FLOATS[1])
    check("corrcoef", FLOATS[0], rowvar=False)
    check("corrcoef", PLANE[0])
    check("corrcoef", FLOATS[0, 0])
    with pytest.raises(ShapeError, match=r"cov takes a vector or a matrix, got shape \(2, 3, 4\)"):
        run(snp.cov, FLOATS)


def test_sums_of_bools_in_bool_are_logical() -> None:
    x = np.array([[True, True], [False, True]])
    for name in ("sum", "prod"):
        found = run(lambda x: getattr(snp, name)(x, axis=1, dtype=bool), x)  # noqa: B023
        np.testing.assert_array_equal(found, getattr(np, name)(x, axis=1, dtype=bool))
        assert found.dtype == bool
    for name, op in (("cumsum", np.logical_or), ("cumprod", np.logical_and)):
        found = run(lambda x: getattr(snp, name)(x, axis=1, dtype=bool), x)  # noqa: B023
        np.testing.assert_array_equal(found, op.accumulate(x, axis=1))


def test_an_initial_value_is_one_number_and_a_mask_has_bools() -> None:
    x = np.ones((2, 3), np.float32)
    assert error_line(OperationTypeError, lambda: snp.sum(x, axis=1, initial=np.zeros(2))) == (
        "initial= takes one number, got an array of shape (2,)"
    )
    for function in (snp.sum, snp.nansum, snp.mean, nn.logsumexp):
        assert error_line(OperationTypeError, lambda f=function: f(x, where=np.ones(3, int))) == (  # type: ignore[misc]
            "where= takes bools, got i32[3]; compare the numbers, as in w != 0"
        )
