"""Special functions in f64 against SciPy 1.17, and their derivatives."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from shardir import enable_x64, grad, hessian, jit, vmap
from shardir.frontend.numpy import api as snp
from shardir.frontend.scipy import special
from tests.optional_dependencies import require

pytestmark = pytest.mark.sample(5)

INF = float("inf")
VALUES: list[tuple[str, tuple[Any, ...], float]] = [
    ("erf", (-2.3,), -0.9988568234026434),
    ("erf", (0.4,), 0.42839235504666845),
    ("erfc", (3.0,), 2.2090496998585445e-05),
    ("erfinv", (-0.7,), -0.7328690779592169),
    ("erfinv", (0.999,), 2.326753765513524),
    ("expit", (-4.0,), 0.01798620996209156),
    ("expit", (2.0,), 0.8807970779778823),
    ("logit", (0.2,), -1.3862943611198906),
    ("gammaln", (0.3,), 1.0957979948180756),
    ("gammaln", (-1.7,), 0.9218446876946376),
    ("gammaln", (25.0,), 54.78472939811232),
    ("digamma", (0.3,), -3.502524222200133),
    ("digamma", (-1.7,), -1.4857174995110567),
    ("digamma", (25.0,), 3.198742512851974),
    ("gamma", (4.5,), 11.63172839656745),
    ("gamma", (-1.5,), 2.363271801207355),
    ("factorial", (3.0,), 6.0),
    ("factorial", (6.5,), 1871.2543057977884),
    ("betaln", (0.5, 2.5), 0.1639006328376739),
    ("beta", (0.5, 2.5), 1.1780972450961724),
    ("xlogy", (0.0, 0.0), 0.0),
    ("xlogy", (2.0, 3.0), 2.1972245773362196),
    ("xlog1py", (0.0, -1.0), 0.0),
    ("xlog1py", (2.0, 3.0), 2.772588722239781),
    ("entr", (0.3,), 0.3611918412977808),
    ("entr", (0.0,), 0.0),
    ("entr", (-1.0,), -INF),
    ("rel_entr", (0.3, 0.4), -0.0863046217355343),
    ("rel_entr", (0.0, 1.0), 0.0),
    ("rel_entr", (1.0, 0.0), INF),
    ("kl_div", (0.3, 0.4), 0.013695378264465707),
    ("i0", (0.5,), 1.0634833707413234),
    ("i0", (-9.0,), 1093.5883545113745),
    ("i0e", (0.0,), 1.0),
    ("i0e", (7.9,), 0.14436986414104191),
    ("i0e", (8.1,), 0.14251180948829525),
    ("i0e", (300.0,), 0.02304255841508546),
    ("i1", (0.5,), 0.25789430539089636),
    ("i1", (-9.0,), -1030.9147225169565),
    ("i1e", (0.0,), 0.0),
    ("i1e", (7.9,), 0.13489649943989365),
    ("i1e", (-8.1,), -0.13340068832583662),
    ("i1e", (300.0,), 0.02300412204026895),
    ("ndtr", (-3.0,), 0.0013498980316300933),
    ("ndtr", (1.2,), 0.8849303297782918),
    ("ndtri", (1e-30,), -11.464024688443613),
    ("ndtri", (0.025,), -1.9599639845400545),
    ("ndtri", (0.5,), 0.0),
    ("ndtri", (0.9,), 1.2815515655446004),
    ("ndtri", (1.0,), INF),
    ("log_ndtr", (-40.0,), -804.6084420137539),
    ("log_ndtr", (-9.9,), -52.226428300404045),
    ("log_ndtr", (-10.1,), -54.24604754269364),
    ("log_ndtr", (1.0,), -0.1727537790234499),
    ("log_ndtr", (6.0,), -9.86587645524372e-10),
    ("zeta", (2.5, 1.0), 1.3414872572509176),
    ("zeta", (1.01, 7.0), 98.14463369609564),
    ("zeta", (20.0, 0.3), 28679719907.929695),
    ("polygamma", (0.0, 1.5), 0.03648997397857652),
    ("polygamma", (1.0, 0.2), 26.26737720542378),
    ("polygamma", (4.0, 3.0), -0.13626612344087824),
    ("gammainc", (0.5, 0.1), 0.34527915398142317),
    ("gammainc", (3.0, 2.0), 0.32332358381693654),
    ("gammainc", (10.0, 30.0), 0.9999928782491372),
    ("gammainc", (100.0, 90.0), 0.15822098918643007),
    ("gammaincc", (0.5, 0.1), 0.6547208460185768),
    ("gammaincc", (3.0, 2.0), 0.6766764161830634),
    ("gammaincc", (10.0, 30.0), 7.121750862815593e-06),
    ("gammaincc", (100.0, 90.0), 0.84177901081357),
    ("betainc", (0.5, 2.0, 0.1), 0.45853026072441494),
    ("betainc", (5.0, 2.0, 0.9), 0.885735),
    ("betainc", (30.0, 40.0, 0.4), 0.31814380259056413),
    ("exprel", (0.0,), 1.0),
    ("exprel", (1.3,), 2.0533051289378803),
    ("poch", (2.5, 3.0), 39.375),
    ("multigammaln", (3.5, 3), 3.895898482154039),
]
"""Function, arguments, value."""

FLAT = {"polygamma": (0,), "multigammaln": (1,)}
"""Arguments without a derivative."""


@pytest.mark.parametrize(("name", "args", "expected"), VALUES)
def test_values(name: str, args: tuple[Any, ...], expected: float) -> None:
    function = getattr(special, name)
    with enable_x64():
        np.testing.assert_allclose(float(function(*args)), expected, rtol=1e-11, atol=1e-300)
    narrow = [np.float32(x) if isinstance(x, float) else x for x in args]
    single = function(*narrow)
    assert single.dtype == np.float32
    if abs(expected) < 1e30 and name not in ("erfinv", "ndtri"):
        np.testing.assert_allclose(float(single), expected, rtol=2e-5, atol=1e-30)


@cache
def derivative_of(name: str, argument: int) -> Any:
    """Return the derivative of a function by one of its arguments, compiled once."""
    static = FLAT.get(name, ())
    return jit(grad(getattr(special, name), argument), static_argnums=static)


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "args", "expected"), VALUES)
def test_derivatives(name: str, args: tuple[Any, ...], expected: float) -> None:
    function, step = getattr(special, name), 1e-5
    edge = any(x == 0 for x in args) or abs(expected) in (INF, 0)
    with enable_x64():
        for i, x in enumerate(args):
            if edge or i in FLAT.get(name, ()) or min(abs(x), abs(x - 1)) < 1e-3:
                continue

            def along(x: Any, i: int = i) -> Any:
                return function(*args[:i], x, *args[i + 1 :])

            h = step * max(1, abs(x))
            differences = [float(along(x + h) - along(x - h)), float(along(x + 2 * h))]
            differences[1] -= float(along(x - 2 * h))
            measured = (8 * differences[0] - differences[1]) / (12 * h)
            got = float(derivative_of(name, i)(*args))
            np.testing.assert_allclose(got, measured, rtol=2e-6, atol=2e-9 * max(1, abs(expected)))


def test_functions_compose_with_transformations() -> None:
    with enable_x64():
        xs = snp.linspace(0.1, 0.9, 5)
        slopes = jit(vmap(grad(lambda x: special.betainc(2.0, 3.0, x))))(xs)
        np.testing.assert_allclose(slopes, 12 * xs * (1 - xs) ** 2, rtol=1e-10)
        second = vmap(grad(grad(special.ndtr)))(xs)
        bell = np.exp(-(np.asarray(xs) ** 2) / 2) / np.sqrt(2 * np.pi)
        np.testing.assert_allclose(second, -xs * bell, rtol=1e-9)


def test_outside_of_their_domains() -> None:
    nan = [special.gammainc(-1.0, 1.0), special.gammaincc(1.0, -1.0), special.ndtri(2.0)]
    nan += [special.betainc(1.0, 1.0, 2.0), special.zeta(0.5, 1.0)]
    assert all(np.isnan(float(x)) for x in nan)
    assert float(special.gammainc(1.0, INF)) == 1
    assert float(special.gammaincc(1.0, INF)) == 0
    assert float(special.betainc(1.0, 1.0, 1.0)) == 1
    assert float(special.factorial(-3)) == 0
    assert float(special.ndtri(0.0)) == -INF
    assert float(special.gammasgn(-1.5)) == 1


NAN = float("nan")
EDGES: list[tuple[str, tuple[float, ...], float]] = [
    ("logit", (-0.0,), -INF),
    ("gammasgn", (NAN,), NAN),
    ("entr", (NAN,), NAN),
    ("entr", (INF,), -INF),
    ("exprel", (INF,), INF),
    ("exprel", (-INF,), 0.0),
    ("exprel", (NAN,), NAN),
    ("xlogy", (0.0, NAN), NAN),
    ("xlogy", (0.0, -1.0), 0.0),
    ("xlogy", (0.0, INF), 0.0),
    ("xlog1py", (0.0, NAN), NAN),
    ("xlog1py", (0.0, -2.0), 0.0),
    ("xlog1py", (0.0, INF), 0.0),
    ("rel_entr", (NAN, 0.5), NAN),
    ("rel_entr", (0.5, NAN), NAN),
    ("rel_entr", (-1.0, 0.5), INF),
    ("rel_entr", (INF, 1e30), INF),
    ("rel_entr", (1e30, INF), -INF),
    ("kl_div", (INF, 0.0), INF),
    ("kl_div", (2.5, -INF), INF),
    ("kl_div", (0.5, NAN), NAN),
    ("gammainc", (-1e-40, INF), NAN),
    ("gammaincc", (INF, -1e-40), NAN),
    ("betaln", (10.0, INF), -INF),
    ("betaln", (INF, INF), -INF),
    ("beta", (INF, 0.5), 0.0),
    ("betaln", (-3.0, 1e6), INF),
    ("zeta", (2.0, -3.0), INF),
    ("zeta", (0.5, -3.0), NAN),
    ("zeta", (1.5, INF), 0.0),
    ("zeta", (INF, 1.0), 1.0),
    ("zeta", (INF, 1.5), 0.0),
    ("zeta", (INF, 0.5), INF),
    ("zeta", (NAN, INF), NAN),
    ("polygamma", (3.0, INF), 0.0),
    ("polygamma", (20.0, 1e35), -0.0),
]
"""What is said of the ends, of what is not there, and of zeros."""


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("name", "args", "expected"), EDGES)
def test_edges(name: str, args: tuple[float, ...], expected: float, wide: bool) -> None:
    with enable_x64(wide):
        type = np.float64 if wide else np.float32
        got = np.asarray(getattr(special, name)(*(np.asarray([x, x], type) for x in args)))
    np.testing.assert_array_equal(got, [expected, expected])
    assert (np.signbit(got) == np.signbit(expected)).all() or np.isnan(expected)


def test_results_whose_factors_overflow() -> None:
    """The expected numbers are from mpmath."""
    with enable_x64():
        np.testing.assert_allclose(special.exprel(712.0), 2.3184146982986436e306, rtol=1e-15)
        np.testing.assert_allclose(special.polygamma(10.0, 1e30), -3.6288e-295, rtol=1e-12)
        np.testing.assert_allclose(special.polygamma(1.0, 1e200), 1e-200, rtol=1e-12)
        mixed = special.polygamma(snp.array([4.0, 1.0]), snp.array([1e60, -0.5]))
        np.testing.assert_allclose(mixed, [-6e-240, 8.934802200544679], rtol=1e-12)


def test_softmax_functions_are_exported() -> None:
    x = snp.array([1.0, 2.0])
    np.testing.assert_allclose(special.softmax(x), np.exp(special.log_softmax(x)), rtol=1e-6)
    np.testing.assert_allclose(special.logsumexp(x), np.log(np.exp([1, 2]).sum()), rtol=1e-6)


def test_softmax_functions_cover_all_elements_by_default() -> None:
    x = np.arange(6.0).reshape(2, 3)
    exponentials = np.exp(x)
    for axis, sums in ((None, exponentials.sum()), (0, exponentials.sum(0))):
        np.testing.assert_allclose(special.softmax(x, axis=axis), exponentials / sums, rtol=1e-6)
        np.testing.assert_allclose(
            special.log_softmax(x, axis=axis), np.log(exponentials / sums), rtol=1e-5
        )
    np.testing.assert_allclose(special.softmax(x), exponentials / exponentials.sum(), rtol=1e-6)
    np.testing.assert_allclose(special.log_softmax(x), x - np.log(exponentials.sum()), rtol=1e-5)


def test_functions_are_public_names() -> None:
    from shardir import scipy

    assert scipy.special.ndtr is special.ndtr
    assert set(special.__all__) <= set(dir(scipy.special))


def test_derivatives_at_zero_are_those_of_jax() -> None:
    require("jax")
    import jax
    import jax.scipy.special as theirs

    assert float(grad(special.entr)(0.0)) == float(jax.grad(theirs.entr)(0.0)) == np.inf
    assert float(grad(special.entr)(-1.0)) == 0
    for name, at in (("xlogy", 0.0), ("xlog1py", -1.0)):
        ours, other = getattr(special, name), getattr(theirs, name)
        assert float(grad(ours)(0.0, at)) == float(jax.grad(other)(0.0, at)) == -np.inf
        for x, y in ((0.0, 2.0), (3.0, 2.0), (-1.0, 0.5)):
            for argument in (0, 1):
                np.testing.assert_allclose(
                    grad(ours, argument)(x, y), jax.grad(other, argument)(x, y), rtol=1e-6
                )
        assert float(grad(ours, 1)(0.0, at)) == 0
        assert np.isinf(grad(ours, 1)(1.0, at))
    second = hessian(special.xlogy, (0, 1))(2.0, 3.0)
    np.testing.assert_allclose(second, ((0, 1 / 3), (1 / 3, -2 / 9)), rtol=1e-6)


def test_the_program_of_multigammaln_does_not_grow_with_the_dimension() -> None:
    lowered = jit(lambda x: special.multigammaln(x, 1000)).lower(np.float32(600))
    assert len(lowered.module.main.body.ops) < 100
