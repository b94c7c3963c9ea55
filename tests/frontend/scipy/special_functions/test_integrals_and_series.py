"""Error functions, integrals, hypergeometric functions and others against SciPy and JAX."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import grad, jacrev, jit
from shardir.frontend.errors import ArgumentError, TracedValueError
from shardir.scipy import special
from shardir.testing import collectives
from tests.optional_dependencies import require

pytestmark = pytest.mark.sample(6)

MIXED = np.array([0.5, 3, 150, -200])
INF, NAN = float("inf"), float("nan")
REAL = np.array([0.0, 1e-4, 0.5, 1, 2, 3, 4.5, 10, 50, -0.5, -3, -10, INF, -INF, NAN])
POSITIVE = np.array([1e-4, 0.5, 1, 2, 3, 4.5, 10, 50])
COMPLEX = np.array([0.5 + 1j, -0.5 + 1j, -3.3 - 2j, 10 + 10j, 0.1 - 0.1j, -20 + 0.01j, 3 + 30j])
FINITE_HYPERGEOMETRIC = np.array([0.0, 0.3, 0.95, 0.999, -0.5, -1, -3, -30])

CASES: list[tuple[str, tuple[Any, ...]]] = [
    ("erfcx", (REAL,)),
    ("erfcx", (COMPLEX,)),
    ("dawsn", (REAL,)),
    ("wofz", (REAL[:-3],)),
    ("wofz", (COMPLEX,)),
    ("exp1", (REAL,)),
    ("expi", (REAL,)),
    ("expn", (np.array([0, 1, 2, 3, 10, 50]), np.array([0.7, 0.7, 1.5, 0.01, 3, 20]))),
    ("expn", (np.array([0, 1, 2, 3]), np.zeros(4))),
    ("fresnel", (REAL,)),
    ("spence", (REAL,)),
    ("loggamma", (POSITIVE,)),
    ("loggamma", (COMPLEX,)),
    ("owens_t", (np.array([0, 1, -2, 3, 0.5, 1e-3]), np.array([0.5, -1, 2, INF, NAN, 0.3]))),
    ("hyp1f1", (np.array(1.5), np.array(2.5), REAL[:-3])),
    ("hyp1f1", (np.array([-2, -2.5, 1, 0.3]), np.array([3, 1.5, 2, 7.1]), MIXED)),
    ("hyp2f1", (np.array(1.5), np.array(0.5), np.array(2.7), FINITE_HYPERGEOMETRIC)),
    ("hyp2f1", (np.array([-2.0, 1]), np.array([3.0, 1]), np.array([2.0, 2]), np.array([5, 0.97]))),
    ("boxcox", (np.array([0, 1, 2, 3, -1, 0.5, 0]), np.array([0, 0.5, 0, 2, 1, -1e-9, 2]))),
    ("boxcox1p", (np.array([0, 1, 2, -1, -2, 1e-5]), np.array([0, 0.5, 0, 1, 1, 2]))),
    ("comb", (np.array([5, 5, 5, 0, -1, 40, 5.5]), np.array([2, 6, -1, 0, 0, 20, 2.5]))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), CASES)
def test_values_are_those_of_scipy(name: str, args: tuple[Any, ...]) -> None:
    require("jax")  # JAX requires SciPy.
    from scipy import special as scipy_special

    with np.errstate(all="ignore"):
        expected = getattr(scipy_special, name)(*args)
    with sd.enable_x64():
        got = getattr(special, name)(*args)
    for mine, theirs in zip(snp_leaves(got), snp_leaves(expected), strict=True):
        assert np.asarray(mine).dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-13)


def snp_leaves(made: Any) -> tuple[Any, ...]:
    return made if isinstance(made, tuple) else (made,)


def test_sine_and_cosine_integrals_are_those_of_scipy() -> None:
    require("jax")
    from scipy import special as scipy_special

    with sd.enable_x64():
        got = special.sici(POSITIVE)
    for mine, theirs in zip(got, scipy_special.sici(POSITIVE), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-14)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        *((name, (POSITIVE[1:6],)) for name in ("erfcx", "dawsn", "wofz", "exp1", "expi")),
        *((name, (POSITIVE[1:6],)) for name in ("fresnel", "sici", "loggamma", "spence")),
        ("expn", (np.array([1, 2, 3]), np.array([0.3, 1, 4]))),
        ("hyp1f1", (np.array(1.5), np.array(2.5), REAL[1:8])),
        ("hyp2f1", (np.array(1.5), np.array(0.5), np.array(2.5), np.array([0.1, 0.5, -0.5]))),
        ("owens_t", (np.array([0, 1, -2.0]), np.array([0.5, -1, 2.0]))),
        ("comb", (np.array([5, 7]), np.array([2, 3]))),
        ("boxcox", (POSITIVE[1:4], np.array(0.5))),
        ("boxcox1p", (POSITIVE[1:4], np.array(0.5))),
    ],
)  # fmt: skip
def test_single_precision_is_that_of_jax(name: str, args: tuple[Any, ...]) -> None:
    require("jax")
    from jax.scipy import special as jax_special

    narrow = [x.astype(np.int32 if x.dtype.kind == "i" else np.float32) for x in args]
    expected, got = getattr(jax_special, name)(*narrow), getattr(special, name)(*narrow)
    for mine, theirs in zip(snp_leaves(got), snp_leaves(expected), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=3e-5, atol=1e-6)


DERIVATIVES: list[Any] = [
    ("erfcx", (0.5,), (0,)),
    ("dawsn", (0.5,), (0,)),
    ("exp1", (0.5,), (0,)),
    ("expi", (0.5,), (0,)),
    ("loggamma", (1.5,), (0,)),
    pytest.param("hyp1f1", (1.5, 2.5, 0.5), (0, 1, 2), marks=pytest.mark.long),
    pytest.param("hyp2f1", (1.5, 0.5, 2.6, 0.5), (0, 1, 2, 3), marks=pytest.mark.long),
    ("owens_t", (0.5, 0.7), (0, 1)),
    ("comb", (5.0, 2.0), (0, 1)),
    ("boxcox", (2.0, 0.0), (0, 1)),
    ("boxcox1p", (2.0, 0.5), (0, 1)),
]


@pytest.mark.parametrize(("name", "at", "positions"), DERIVATIVES)
def test_derivatives_are_differences(
    name: str, at: tuple[float, ...], positions: tuple[int, ...]
) -> None:
    function, step = getattr(special, name), 1e-5
    with sd.enable_x64():
        for i in positions:
            above, below = (
                function(*(x + sign * step * (j == i) for j, x in enumerate(at)))
                for sign in (1, -1)
            )
            slope = (float(above) - float(below)) / (2 * step)
            assert float(grad(function, i)(*at)) == pytest.approx(slope, rel=1e-7, abs=1e-9)


def test_derivatives_of_pairs_and_stacks() -> None:
    with sd.enable_x64():
        sine, cosine = jacrev(special.fresnel)(0.5)
        np.testing.assert_allclose([sine, cosine], [np.sin(np.pi / 8), np.cos(np.pi / 8)])
        sine, cosine = jacrev(special.sici)(0.5)
        np.testing.assert_allclose([sine, cosine], [np.sin(0.5) / 0.5, np.cos(0.5) / 0.5])
        assert float(grad(lambda x: special.expn(2, x))(0.5)) == -float(special.exp1(0.5))
        slopes = jacrev(lambda z: special.bessel_jn(z, v=2))(0.5)
        j = special.bessel_jn(0.5, v=3)
        np.testing.assert_allclose(slopes, [-j[1], (j[0] - j[2]) / 2, (j[1] - j[3]) / 2])
        assert float(grad(special.spence)(np.float64(0.5))) == pytest.approx(np.log(0.5) / 0.5)


def test_bessel_functions_are_stacked() -> None:
    require("jax")
    from scipy.special import jv

    z = np.array([[1e-9, 0, 0.5], [3, 20, -2]])
    with sd.enable_x64():
        got = jit(lambda z: special.bessel_jn(z, v=3))(z)
        zero = special.bessel_jn(z, v=0)
    np.testing.assert_allclose(got, [jv(n, z) for n in range(4)], atol=1e-15)
    np.testing.assert_allclose(zero, [jv(0, z)], atol=1e-15)


def test_bernoulli_numbers() -> None:
    got = special.bernoulli(6)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, [1, -1 / 2, 1 / 6, 0, -1 / 30, 0, 1 / 42], rtol=1e-6)
    with pytest.raises(ArgumentError, match="n of bernoulli is at least 0, got -1"):
        special.bernoulli(-1)


def test_combinations_with_repetition() -> None:
    got = special.comb(np.array([5, 0, 5, -3]), np.array([2, 0, 0, 2]), repetition=True)
    np.testing.assert_allclose(got, [15, 1, 1, 0], rtol=1e-6)


def test_spherical_harmonics() -> None:
    require("jax")
    from scipy.special import sph_harm_y

    n, m = np.array([2, 1, 3, 3, 0, 5]), np.array([-1, 1, -3, 2, 0, 4])
    theta, phi = np.linspace(0.2, 2, 6), np.linspace(0.1, 4, 6)
    with sd.enable_x64():
        got = special.sph_harm_y(n, m, theta, phi)
        for other in (-theta, theta + 3):
            np.testing.assert_allclose(
                special.sph_harm_y(n, m, other, phi), sph_harm_y(n, m, other, phi), atol=1e-14
            )
    np.testing.assert_allclose(got, sph_harm_y(n, m, theta, phi), atol=1e-15)
    traced = jit(lambda n, m, x, y: special.sph_harm_y(n, m, x, y, n_max=5))
    single = traced(n, m, theta.astype("f"), phi.astype("f"))
    assert single.dtype == np.complex64
    np.testing.assert_allclose(single, got, atol=1e-6)
    with pytest.raises(TracedValueError, match="sph_harm_y needs the degrees, which are traced"):
        jit(special.sph_harm_y)(n, m, theta, phi)


def test_spence_takes_the_types_of_jax() -> None:
    with pytest.raises(ArgumentError, match="spence takes float32 or float64, got int32; convert"):
        special.spence(3)


@pytest.mark.parametrize("name", ["erfcx", "expi", "fresnel", "owens_t"])
def test_sharded_arguments_need_no_communication(name: str) -> None:
    mesh = sd.make_mesh((8,), ("x",))
    x = sd.device_put(np.linspace(0.1, 5, 16).astype("f"), sd.NamedSharding(mesh, sd.P("x")))
    function = getattr(special, name)
    args = (x, x) if name == "owens_t" else (x,)
    assert not collectives(jit(function), args)
    for got, alone in zip(
        snp_leaves(jit(function)(*args)),
        snp_leaves(function(*(snp.asarray(np.asarray(a)) for a in args))),
        strict=True,
    ):
        np.testing.assert_allclose(got, alone, rtol=1e-6)
