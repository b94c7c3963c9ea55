"""Convolutions and polynomials against NumPy."""

from typing import Any

import numpy as np
import pytest

from shardir import jit
from shardir.frontend.errors import ArgumentError, ShapeError, TracedValueError
from shardir.frontend.numpy import api as snp
from tests.namespace import check, ops, run, same

GENERATOR = np.random.default_rng(19)
LONG, SHORT = GENERATOR.normal(size=7).astype("f"), GENERATOR.normal(size=4).astype("f")
THREE = GENERATOR.normal(size=3).astype("f")
WHOLE = np.array([3, -1, 2], "i4")
PLANE = (LONG[:3] + 1j * LONG[3:6]).astype("c8")


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolve_and_correlate(name: str, mode: str) -> None:
    for x, y in ((LONG, SHORT), (SHORT, LONG), (LONG, THREE), (THREE, SHORT), (LONG, LONG[::-1])):
        check(name, x, y.copy(), mode)
    check(name, WHOLE, WHOLE[:2], mode, dtype="f32")  # as in JAX; integers in NumPy
    check(name, LONG, PLANE, mode)
    for size in (1, 16, 17):
        for dtype in ("u1", "i2", "c8"):
            x, y = np.arange(40).astype(dtype), np.arange(size, 0, -1).astype(dtype)
            expected = getattr(np, name)(x, y, mode)
            same(run(getattr(snp, name), x, y, mode, preferred_element_type=dtype), expected)


def test_invalid_operands_of_convolve_are_errors() -> None:
    with pytest.raises(ShapeError, match=r"convolve takes vectors that are not empty, got \(0,\)"):
        run(snp.convolve, LONG[:0], SHORT)
    with pytest.raises(ArgumentError, match="convolve has no mode 'half'; it is 'full', 'same' or"):
        run(snp.convolve, LONG, SHORT, "half")
    assert run(snp.convolve, WHOLE, WHOLE, preferred_element_type=float).dtype == np.float32
    assert ops(snp.correlate, LONG, SHORT) == ["reshape", "reshape", "convolution", "reshape"]


def test_polynomials() -> None:
    check("polyval", THREE, LONG)
    check("polyval", THREE, 2.0, dtype="f32")
    check("polyval", WHOLE, np.arange(6, dtype="i4").reshape(2, 3))
    for name in ("polyadd", "polysub", "polymul"):
        check(name, LONG, SHORT)
        check(name, WHOLE, SHORT)
    assert run(snp.polyval, LONG[:0], LONG).tolist() == [0] * 7


@pytest.mark.parametrize("m", [0, 1, 2, 5])
def test_derivatives_and_integrals(m: int) -> None:
    check("polyder", SHORT, m)
    check("polyder", WHOLE, m, dtype="f32")  # as in JAX; integers in NumPy
    check("polyint", SHORT, m)
    check("polyint", SHORT, m, k=2.0)
    if m == 2:
        check("polyint", WHOLE, m, k=np.array([1.0, 2.0], "f"))


def test_negative_orders_are_errors() -> None:
    with pytest.raises(ArgumentError, match="m of polyder is -1; it must not be negative"):
        run(snp.polyder, SHORT, -1)
    with pytest.raises(ShapeError, match=r"polyint takes 1 constant, got shape \(3,\)"):
        run(snp.polyint, SHORT, 1, THREE)
    with pytest.raises(ShapeError, match=r"polyval takes vectors of coefficients, got shape \(\)"):
        run(snp.polyval, np.array(1.0, "f"), 2.0)


def test_matrices_and_vectors() -> None:
    x: Any = GENERATOR.normal(size=(2, 3, 4)).astype("f")
    check("matvec", x, SHORT)
    check("matvec", x, x[:, 0].copy())
    check("vecmat", THREE, x)
    check("vecmat", PLANE, x)
    with pytest.raises(ShapeError, match=r"matvec takes matrices and vectors, got shapes \(4,\)"):
        run(snp.matvec, SHORT, SHORT)
    with pytest.raises(ShapeError, match=r"vecmat takes vectors and matrices, got shapes \(4,\)"):
        run(snp.vecmat, SHORT, SHORT)


def test_leading_zeros_are_trimmed_on_request() -> None:
    padded = np.concatenate([np.zeros(2, "f"), SHORT])
    found = snp.polymul(padded, THREE, trim_leading_zeros=True)
    np.testing.assert_allclose(found, np.polymul(padded, THREE), rtol=1e-5)
    assert snp.polymul(np.zeros(2, "f"), SHORT, trim_leading_zeros=True).shape == (4,)
    product = np.polymul(SHORT, THREE)
    quotient, rest = snp.polydiv(product, THREE, trim_leading_zeros=True)
    np.testing.assert_allclose(quotient, SHORT, rtol=1e-4)
    assert rest.shape == (0,)
    with pytest.raises(TracedValueError, match="call polydiv outside of jit"):
        jit(lambda u: snp.polydiv(u, THREE, trim_leading_zeros=True))(product)
