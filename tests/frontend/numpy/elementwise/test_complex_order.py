"""The order of complex numbers: by real part, then by imaginary part."""

from collections.abc import Callable

import numpy as np
import pytest

from shardir import grad, lax, nn, numpy as snp
from shardir.errors import OperationTypeError
from tests.error_assertions import error_line
from tests.namespace import eagerly, run

NUMBERS = np.array([[1 + 2j, 1 - 2j, 0.5 + 9j], [3j, -1 + 1j, 1 + 2j]], np.complex64)
WITH_NAN = NUMBERS + np.array([[0, 0, np.nan], [0, 0, 0]])
REVERSED = np.ascontiguousarray(NUMBERS[::-1])


@pytest.mark.parametrize("x", [NUMBERS, WITH_NAN])
@pytest.mark.parametrize("name", ["max", "min", "ptp"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_extremes_are_those_of_numpy(name: str, axis: int | None, x: np.ndarray) -> None:
    found = run(lambda x: getattr(snp, name)(x, axis=axis), x)
    expected = getattr(np, name)(x, axis=axis)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(found[~np.isnan(found)], expected[~np.isnan(expected)])


def test_an_extreme_of_a_part_has_an_initial_value() -> None:
    chosen = NUMBERS.real > 0
    found = run(lambda x, w: snp.max(x, axis=0, where=w, initial=-5), NUMBERS, chosen)
    np.testing.assert_array_equal(found, [1 + 2j, 1 - 2j, 1 + 2j])
    assert run(lambda x: snp.nanmax(x), WITH_NAN) == 1 + 2j


@pytest.mark.parametrize("name", ["maximum", "minimum", "less", "less_equal", "greater"])
def test_pairs_compare_as_in_numpy(name: str) -> None:
    for x in (NUMBERS, WITH_NAN):
        for pair in ((x, REVERSED), (REVERSED, x)):
            found = eagerly(getattr(snp, name), *pair)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(found, getattr(np, name)(*pair))


def test_functions_of_lax_have_the_same_order() -> None:
    np.testing.assert_array_equal(
        eagerly(lax.max, NUMBERS, REVERSED), np.maximum(NUMBERS, REVERSED)
    )
    np.testing.assert_array_equal(
        run(lambda x: lax.reduce_max(x, (1,)), NUMBERS), np.max(NUMBERS, axis=1)
    )
    for reverse in (False, True):
        found = run(lambda x: lax.cummin(x, 1, reverse=reverse), NUMBERS)  # noqa: B023
        step = -1 if reverse else 1
        expected = np.minimum.accumulate(NUMBERS[:, ::step], 1)[:, ::step]
        np.testing.assert_array_equal(found, expected)


def test_the_derivative_of_an_extreme_belongs_to_the_elements_that_attain_it() -> None:
    x = snp.array(NUMBERS)
    found = grad(lambda x: snp.max(x).real)(x)
    np.testing.assert_array_equal(found, [[0.5, 0, 0], [0, 0, 0.5]])
    for function in (snp.maximum, lax.min):
        found = grad(lambda x, f=function: f(x, NUMBERS).real.sum())(x)
        np.testing.assert_array_equal(found, np.full(NUMBERS.shape, 0.5))


def test_updates_of_slices_and_masks_have_the_same_order() -> None:
    found = run(lambda x, y: x.at[:, 1].max(y[:, 1]), NUMBERS, REVERSED)
    expected = NUMBERS.copy()
    expected[:, 1] = np.maximum(NUMBERS, REVERSED)[:, 1]
    np.testing.assert_array_equal(found, expected)
    assert error_line(OperationTypeError, lambda: snp.array(NUMBERS).at[[0, 1]].max(1j)) == (
        "x.at[index].max of complex numbers takes integers, slices without steps and masks; for "
        "index arrays without repeated indices, use "
        "x.at[index].set(snp.maximum(x[index], values))"
    )


@pytest.mark.parametrize(
    ("name", "power", "log"),
    [("logaddexp", np.exp, np.log), ("logaddexp2", np.exp2, np.log2)],
)
def test_logarithms_of_sums_are_those_of_complex_powers(
    name: str, power: Callable[[np.ndarray], np.ndarray], log: Callable[[np.ndarray], np.ndarray]
) -> None:
    found = run(getattr(snp, name), NUMBERS, REVERSED)
    np.testing.assert_allclose(found, log(power(NUMBERS) + power(REVERSED)), rtol=1e-5)
    huge = run(getattr(snp, name), NUMBERS + 1000, REVERSED - 1000)
    np.testing.assert_allclose(power(1j * huge.imag), power(1j * NUMBERS.imag), atol=1e-3)
    np.testing.assert_allclose(huge.real, NUMBERS.real + 1000)


def test_logsumexp_of_complex_numbers() -> None:
    expected = np.log(np.exp(NUMBERS).sum(axis=0))
    np.testing.assert_allclose(run(lambda x: nn.logsumexp(x, axis=0), NUMBERS), expected, rtol=1e-5)


def test_clip_refuses_complex_numbers() -> None:
    assert error_line(OperationTypeError, lambda: snp.clip(NUMBERS, 0, 1)) == (
        "clip takes no complex numbers, got c64[2, 3]; pass .real, .imag or abs"
    )
