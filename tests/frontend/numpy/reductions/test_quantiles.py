"""Quantiles of numbers with NaN, and at traced fractions."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import OperationTypeError
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.reductions import quantile_ranks
from tests.error_assertions import error_line
from tests.namespace import run

pytestmark = pytest.mark.sample(3)

METHODS = ("linear", "lower", "higher", "midpoint")
RANDOM = np.random.default_rng(3)


def drawn(count: int, share: float) -> Any:
    x = RANDOM.standard_normal(count).astype(np.float32)
    x[RANDOM.random(count) < share] = np.nan
    return x


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("count", "share"), [(1, 0), (2, 0.5), (10, 0.3), (301, 0.4), (50, 1.0)])
def test_nanquantile_of_vectors(count: int, share: float, method: Any) -> None:
    x = drawn(count, share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for q in (0, 0.25, 0.5, 0.77, 1.0, [0.1, 0.5, 0.9]):
            expected = np.nanquantile(x.astype(float), q, method=method)
            close(snp.nanquantile(x, q, method=method), expected)
        close(snp.nanmedian(x), np.nanmedian(x))


def test_infinities_are_numbers() -> None:
    x = np.array([np.inf, 1, np.nan, -np.inf, 2, -np.inf, np.nan, np.inf, 3], np.float32)
    for q in (0, 0.2, 0.5, 0.7, 1.0):
        close(snp.nanquantile(x, q, method="lower"), np.nanquantile(x, q, method="lower"))
    close(snp.nanmedian(x), 2)


@pytest.mark.parametrize("method", METHODS)
def test_at_traced_fractions(method: Any) -> None:
    for x in (drawn(101, 0), drawn(101, 0.2), drawn(7, 0)):
        q = np.array([0, 0.3, 1, 0.55], np.float32)
        found = sd.jit(
            lambda x, q: (snp.nanquantile(x, q, method=method), snp.quantile(x, q, method=method))
        )(x, q)
        wide = x.astype(float)
        close(found[0], np.nanquantile(wide, q, method=method))
        close(found[1], np.quantile(wide, q, method=method))
    assert np.isnan(snp.quantile(drawn(9, 0), snp.asarray([np.nan, 0.5]))[0])


def test_one_quantile_of_long_rows_needs_no_sort() -> None:
    x = drawn(quantile_ranks.SELECTION_MIN_LINE_ELEMENTS, 0.1)
    for function in (snp.nanmedian, lambda x: snp.nanquantile(x, [0.9])):
        text = sd.jit(function).lower(x).compile().as_text("schedule")
        assert "select positions: " in text
        assert "sort" not in text


def test_derivatives_and_batches() -> None:
    x = np.array([3, np.nan, 1, 2, np.nan, 4], np.float32)
    close(sd.grad(snp.nanmedian)(x), [0.5, 0, 0, 0.5, 0, 0])
    batch = np.stack([drawn(40, 0.3) for _ in range(3)])
    close(sd.vmap(snp.nanmedian)(batch), np.nanmedian(batch, axis=1))
    fractions = np.array([0.2, 0.5, 0.9], np.float32)
    found = sd.vmap(lambda x, q: snp.nanquantile(x, q))(batch, fractions)
    wide = batch.astype(float)
    close(found, [np.nanquantile(row, q) for row, q in zip(wide, fractions, strict=True)])


@pytest.mark.parametrize("long", [2, 1 << 16], ids=("selected", "sorted"))
@pytest.mark.parametrize("method", [*METHODS, "nearest"])
def test_positions_close_to_integers(
    method: str, long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product 0.29 * 100 is below 29 in f64 and 29 in f32; 0.9 * 3 is nearest to 3."""
    monkeypatch.setattr(quantile_ranks, "SELECTION_MIN_LINE_ELEMENTS", long)
    for count, q, missing in ((101, 0.29, 0), (103, 0.29, 2), (4, 0.9, 0), (9, 0.7, 3), (5, 1, 5)):
        x = np.arange(count, dtype=np.float32)[::-1].copy()
        x[:missing] = np.nan
        found = sd.jit(lambda x, q=q: snp.nanquantile(x, q, method=method))(x)
        place = np.float32(q) * np.float32(count - missing - 1)
        down, up = np.floor(place), np.ceil(place)
        expected = {
            "linear": place, "lower": down, "higher": up, "midpoint": (down + up) / 2,
            "nearest": np.round(place),
        }[method]  # fmt: skip
        close(found, expected if missing < count else np.nan)


@pytest.mark.parametrize("function", [snp.quantile, snp.nanquantile, snp.percentile])
def test_complex_fractions_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(OperationTypeError) as caught:
        function(np.ones(4, "f"), np.array([0.5j], "complex64"))
    told = str(caught.value).partition("\n")[0]
    name = function.__name__
    assert told == (
        f"argument q of {name} takes no complex numbers, got c64[1]; pass .real, .imag or abs"
    )


@pytest.mark.parametrize("method", ["linear", "lower", "inverted_cdf"])
def test_fractions_outside_of_the_range(method: Any) -> None:
    x = np.arange(5, dtype=np.float32)
    found = run(
        lambda x, q: snp.quantile(x, q, method=method), x, np.array([-0.1, 2, np.nan], np.float32)
    )
    np.testing.assert_array_equal(found, [0, 4, np.nan])
    wrong: list[tuple[Any, str]] = [
        ([0.1, 1.5], "1.5"), (np.array([[-0.5]]), "-0.5"), ([np.nan], "nan"),
    ]  # fmt: skip
    for q, named in wrong:
        told = error_line(ArgumentError, lambda: snp.quantile(x, q, method=method))  # noqa: B023
        assert told == f"quantile takes q from 0 to 1, got {named}"


@pytest.mark.parametrize("name", ["quantile", "nanpercentile"])
@pytest.mark.parametrize("keepdims", [False, True])
def test_weighted_quantiles_are_those_of_numpy(name: str, keepdims: bool) -> None:
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 3, (5, 6)) + 0.0
    x[0, 2], weights[:, 1] = np.nan, 1
    q = np.array([0, 0.3, 1]) * (100 if "percentile" in name else 1)
    options: dict[str, Any] = {"axis": 1, "method": "inverted_cdf", "keepdims": keepdims}
    found = run(
        lambda x, w: getattr(snp, name)(x, q, weights=w, **options), x, weights.astype(np.float32)
    )
    np.testing.assert_array_equal(found, getattr(np, name)(x, q, weights=weights, **options))
    plain = run(lambda x: snp.nanquantile(x, 0.4, method="inverted_cdf"), x)
    assert plain == np.nanquantile(x, 0.4, method="inverted_cdf")


def test_quantiles_of_unusable_weights_are_nan() -> None:
    rows = [[1, -1, 3], [0, 0, 0], [1, np.nan, 1], [1, np.inf, 1], [0, 2, 0]]
    x = np.tile(np.array([3, 1, 2], np.float32), (len(rows), 1))
    found = run(
        lambda x, w: snp.quantile(x, 0.5, 1, method="inverted_cdf", weights=w),
        x, np.array(rows, np.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(found, [np.nan] * 4 + [1])


def test_invalid_weights_of_quantiles_are_errors() -> None:
    x = np.ones((2, 3), np.float32)
    assert error_line(ArgumentError, lambda: snp.quantile(x, 0.5, weights=x)) == (
        "quantile takes weights with method='inverted_cdf', not 'linear'"
    )
    assert error_line(
        ShapeError, lambda: snp.quantile(x, 0.5, 1, method="inverted_cdf", weights=np.ones(2))
    ) == ("quantile takes weights of shape (2, 3) or of the shape of its axes, (3,), got (2,)")
