"""Roots of polynomials and polynomial fits against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardir.frontend.arrays.array import from_numpy
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy import api as snp
from tests.error_assertions import assert_raises_exactly
from tests.namespace import close, eagerly, run

GENERATOR = np.random.default_rng(47)
TWO: Any = np.ones(2)
LONG, SHORT = GENERATOR.normal(size=6).astype("f"), GENERATOR.normal(size=3).astype("f")
PLACES = np.linspace(0, 1, 12).astype("f")
VALUES = GENERATOR.normal(size=(12, 2)).astype("f")


def test_zeros_and_coefficients() -> None:
    close(run(snp.poly, SHORT), np.poly(SHORT), 1e-4)
    close(eagerly(snp.poly, np.diag(SHORT)).real, np.poly(SHORT), 1e-4)
    odd = np.array([0, 0, 1, 3, 2, 0], "f")
    for line in (LONG, odd, np.zeros(3, "f"), np.ones(1, "f")):
        got = np.sort(np.asarray(snp.roots(line)))
        close(got, np.sort(np.roots(line).astype("c8")), 1e-3)
    got = np.sort(eagerly(lambda p: snp.roots(p, strip_zeros=False), LONG))
    close(got, np.sort(np.roots(LONG).astype("c8")), 1e-3)


def test_division() -> None:
    for u, v in ((LONG, SHORT), (SHORT, LONG)):
        quotient, rest = run(snp.polydiv, u, v)
        close(np.polyadd(np.polymul(quotient, v), rest)[-u.size :], u, 1e-3)
    close(run(snp.polydiv, LONG, SHORT)[0], np.polydiv(LONG, SHORT)[0], 1e-3)


def test_fits() -> None:
    for y in (VALUES, VALUES[:, 0]):
        expected = np.polyfit(PLACES, y, 3)
        close(eagerly(snp.polyfit, PLACES, y, 3), expected, 1e-2)
        weights = abs(VALUES[:, 1])
        close(eagerly(snp.polyfit, PLACES, y, 2, w=weights), np.polyfit(PLACES, y, 2, w=weights),
              1e-2)  # fmt: skip
        for cov in (True, "unscaled"):
            got = eagerly(snp.polyfit, PLACES, y, 2, cov=cov)
            for mine, theirs in zip(got, np.polyfit(PLACES, y, 2, cov=cov), strict=True):
                close(mine, theirs.reshape(mine.shape), 1e-2)
    found, missed, rank, values, _ = eagerly(snp.polyfit, PLACES, VALUES, 2, full=True)
    told: Any = np.polyfit(PLACES, VALUES, 2, full=True)
    close(found, told[0], 1e-2)
    close(missed, told[1], 1e-2)
    close(values, told[3], 1e-3)
    assert rank == 3


def test_bessel() -> None:
    close(eagerly(snp.i0, LONG), np.i0(LONG), 1e-4)


def test_iterables() -> None:
    assert snp.iterable([1])
    assert snp.iterable(from_numpy(LONG))
    assert not snp.iterable(3)


ERRORS: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda x: snp.roots(x), ArgumentError,
     "roots of traced coefficients needs strip_zeros=False; the first coefficient must then be "
     "nonzero"),
    (lambda x: snp.polydiv(x, x[:0]), ShapeError,
     "the divisor of polydiv is empty; pass at least one coefficient"),
    (lambda x: snp.polydiv(x, x, trim_leading_zeros=TWO), ArgumentError,
     "trim_leading_zeros is True or False, got float64[2]"),
    (lambda x: snp.polyfit(x, x[:2], 1), ShapeError,
     "polyfit of degree 1 takes as many values as points, got shapes (2,) and (6,)"),
    (lambda x: snp.polyfit(x, x, 5, cov=True), ArgumentError,
     "polyfit of 6 points and degree 5 has no covariance to scale; cov='unscaled' leaves it as it "
     "is"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS)
def test_invalid_arguments_are_errors(
    call: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    assert_raises_exactly(lambda: run(call, LONG), kind, message)
