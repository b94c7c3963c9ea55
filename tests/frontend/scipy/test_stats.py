"""Distributions in f64 against SciPy 1.17."""

from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from shardir import enable_x64, grad
from shardir.errors import ShardirError
from shardir.frontend.errors import NotAnArrayError
from shardir.frontend.numpy import api as snp
from shardir.frontend.scipy import stats
from tests.error_assertions import error_line

pytestmark = pytest.mark.sample(5)

VALUES: list[tuple[str, tuple[Any, ...], float]] = [
    ("norm.logpdf", (1.3, 0.25, 1.5), -1.5694036413128372),
    ("norm.pdf", (1.3, 0.25, 1.5), 0.20816928891117417),
    ("norm.cdf", (1.3, 0.25, 1.5), 0.758036347776927),
    ("norm.logcdf", (1.3, 0.25, 1.5), -0.2770239422771313),
    ("norm.sf", (1.3, 0.25, 1.5), 0.24196365222307303),
    ("norm.logsf", (1.3, 0.25, 1.5), -1.4189677615315315),
    ("norm.ppf", (0.3, 0.25, 1.5), -0.5366007690620613),
    ("norm.isf", (0.3, 0.25, 1.5), 1.0366007690620613),
    ("uniform.logpdf", (0.8, 0.25, 1.5), -0.4054651081081644),
    ("uniform.pdf", (0.8, 0.25, 1.5), 0.6666666666666666),
    ("uniform.cdf", (0.8, 0.25, 1.5), 0.3666666666666667),
    ("uniform.logcdf", (0.8, 0.25, 1.5), -1.0033021088637848),
    ("uniform.sf", (0.8, 0.25, 1.5), 0.6333333333333333),
    ("uniform.logsf", (0.8, 0.25, 1.5), -0.456758402495715),
    ("uniform.ppf", (0.3, 0.25, 1.5), 0.7),
    ("uniform.isf", (0.3, 0.25, 1.5), 1.2999999999999998),
    ("expon.logpdf", (1.3, 0.25, 1.5), -1.1054651081081643),
    ("expon.pdf", (1.3, 0.25, 1.5), 0.33105686919427296),
    ("expon.cdf", (1.3, 0.25, 1.5), 0.5034146962085906),
    ("expon.logcdf", (1.3, 0.25, 1.5), -0.6863410028083851),
    ("expon.sf", (1.3, 0.25, 1.5), 0.49658530379140947),
    ("expon.logsf", (1.3, 0.25, 1.5), -0.7000000000000001),
    ("expon.ppf", (0.3, 0.25, 1.5), 0.7850124159080987),
    ("expon.isf", (0.3, 0.25, 1.5), 2.0559592064889043),
    ("logistic.logpdf", (-1.3, 0.25, 1.5), -2.047609720839815),
    ("logistic.pdf", (-1.3, 0.25, 1.5), 0.12904298399744693),
    ("logistic.cdf", (-1.3, 0.25, 1.5), 0.26243837851237506),
    ("logistic.logcdf", (-1.3, 0.25, 1.5), -1.3377389730324918),
    ("logistic.sf", (-1.3, 0.25, 1.5), 0.7375616214876249),
    ("logistic.logsf", (-1.3, 0.25, 1.5), -0.30440563969915846),
    ("logistic.ppf", (0.3, 0.25, 1.5), -1.0209467905808056),
    ("logistic.isf", (0.3, 0.25, 1.5), 1.5209467905808056),
    ("laplace.logpdf", (-0.4, 0.25, 1.5), -1.5319456220014431),
    ("laplace.pdf", (-0.4, 0.25, 1.5), 0.21611478033383658),
    ("laplace.cdf", (-0.4, 0.25, 1.5), 0.32417217050075486),
    ("laplace.logcdf", (-0.4, 0.25, 1.5), -1.1264805138932787),
    ("laplace.sf", (-0.4, 0.25, 1.5), 0.6758278294992451),
    ("laplace.logsf", (-0.4, 0.25, 1.5), -0.391816925468076),
    ("cauchy.logpdf", (1.3, 0.25, 1.5), -1.9489711139149324),
    ("cauchy.pdf", (1.3, 0.25, 1.5), 0.14242053073100253),
    ("cauchy.cdf", (1.3, 0.25, 1.5), 0.6944001122142149),
    ("cauchy.logcdf", (1.3, 0.25, 1.5), -0.3647069540371981),
    ("cauchy.sf", (1.3, 0.25, 1.5), 0.30559988778578523),
    ("cauchy.logsf", (1.3, 0.25, 1.5), -1.1854785888829502),
    ("cauchy.ppf", (0.3, 0.25, 1.5), -0.8398137920080415),
    ("cauchy.isf", (0.3, 0.25, 1.5), 1.3398137920080415),
    ("gamma.logpdf", (1.3, 2.5, 0.25, 1.5), -1.925160394489182),
    ("gamma.pdf", (1.3, 2.5, 0.25, 1.5), 0.14585236106505053),
    ("gamma.cdf", (1.3, 2.5, 0.25, 1.5), 0.07568672719833307),
    ("gamma.logcdf", (1.3, 2.5, 0.25, 1.5), -2.581152468147601),
    ("gamma.sf", (1.3, 2.5, 0.25, 1.5), 0.924313272801667),
    ("gamma.logsf", (1.3, 2.5, 0.25, 1.5), -0.07870422497282438),
    ("beta.logpdf", (0.6, 2.5, 1.5, 0.25, 1.5), -1.093388703494549),
    ("beta.pdf", (0.6, 2.5, 1.5, 0.25, 1.5), 0.3350790839602113),
    ("beta.cdf", (0.6, 2.5, 1.5, 0.25, 1.5), 0.04888684814300719),
    ("beta.logcdf", (0.6, 2.5, 1.5, 0.25, 1.5), -3.0182468728066913),
    ("beta.sf", (0.6, 2.5, 1.5, 0.25, 1.5), 0.9511131518569927),
    ("beta.logsf", (0.6, 2.5, 1.5, 0.25, 1.5), -0.05012224154083605),
    ("t.logpdf", (-1.3, 4.0, 0.25, 1.5), -1.9778144917886384),
    ("t.pdf", (-1.3, 4.0, 0.25, 1.5), 0.13837131874325803),
    ("t.cdf", (-1.3, 4.0, 0.25, 1.5), 0.17991377439318273),
    ("t.logcdf", (-1.3, 4.0, 0.25, 1.5), -1.7152775740129866),
    ("t.sf", (-1.3, 4.0, 0.25, 1.5), 0.8200862256068173),
    ("t.logsf", (-1.3, 4.0, 0.25, 1.5), -0.1983457910730008),
    ("chi2.logpdf", (2.2, 3.0, 0.25, 1.5), -1.8432215090790915),
    ("chi2.pdf", (2.2, 3.0, 0.25, 1.5), 0.15830661755576123),
    ("chi2.cdf", (2.2, 3.0, 0.25, 1.5), 0.2708669237287519),
    ("chi2.logcdf", (2.2, 3.0, 0.25, 1.5), -1.3061276350615605),
    ("chi2.sf", (2.2, 3.0, 0.25, 1.5), 0.7291330762712481),
    ("chi2.logsf", (2.2, 3.0, 0.25, 1.5), -0.31589901730758874),
    ("pareto.logpdf", (1.7, 2.5, 0.25, 1.5), -np.inf),
    ("pareto.pdf", (1.7, 2.5, 0.25, 1.5), 0.0),
    ("pareto.cdf", (1.7, 2.5, 0.25, 1.5), 0.0),
    ("pareto.logcdf", (1.7, 2.5, 0.25, 1.5), -np.inf),
    ("pareto.sf", (1.7, 2.5, 0.25, 1.5), 1.0),
    ("pareto.logsf", (1.7, 2.5, 0.25, 1.5), 0.0),
    ("pareto.ppf", (0.3, 2.5, 0.25, 1.5), 1.9800236616727798),
    ("pareto.isf", (0.3, 2.5, 0.25, 1.5), 2.677966874151019),
    ("bernoulli.logpmf", (1, 0.3), -1.2039728043259361),
    ("bernoulli.pmf", (0, 0.3), 0.7000000000000002),
    ("bernoulli.cdf", (0.5, 0.3), 0.7),
    ("bernoulli.ppf", (0.8, 0.3), 1.0),
    ("poisson.logpmf", (3, 2.5), -1.5428872736055896),
    ("poisson.pmf", (3, 2.5), 0.21376301724973648),
    ("poisson.cdf", (3, 2.5), 0.7575761331330662),
    ("geom.logpmf", (3, 0.3), -1.917322692203401),
    ("geom.pmf", (3, 0.3), 0.14699999999999996),
    ("gumbel_l.logpdf", (1.3, 0.25, 1.5), -1.7192178155786408),
    ("gumbel_l.pdf", (1.3, 0.25, 1.5), 0.17920626545451823),
    ("gumbel_l.cdf", (1.3, 0.25, 1.5), 0.8665132033419162),
    ("gumbel_l.logcdf", (1.3, 0.25, 1.5), -0.14327793238697964),
    ("gumbel_l.sf", (1.3, 0.25, 1.5), 0.13348679665808386),
    ("gumbel_l.logsf", (1.3, 0.25, 1.5), -2.0137527074704766),
    ("gumbel_l.ppf", (0.3, 0.25, 1.5), -1.2963956497380842),
    ("gumbel_l.isf", (0.3, 0.25, 1.5), 0.5284401382935486),
    ("gumbel_r.logpdf", (1.3, 0.25, 1.5), -1.602050411899574),
    ("gumbel_r.pdf", (1.3, 0.25, 1.5), 0.2014829710873123),
    ("gumbel_r.cdf", (1.3, 0.25, 1.5), 0.6086053178044064),
    ("gumbel_r.logcdf", (1.3, 0.25, 1.5), -0.49658530379140947),
    ("gumbel_r.sf", (1.3, 0.25, 1.5), 0.3913946821955936),
    ("gumbel_r.logsf", (1.3, 0.25, 1.5), -0.9380388107358797),
    ("gumbel_r.ppf", (0.3, 0.25, 1.5), -0.028440138293548634),
    ("gumbel_r.isf", (0.3, 0.25, 1.5), 1.7963956497380849),
    ("gennorm.logpdf", (-1.3, 1.7, 0.25, 1.5), -2.0419228082348067),
    ("gennorm.cdf", (-1.3, 1.7, 0.25, 1.5), 0.08955334597823643),
    ("gennorm.sf", (-1.3, 1.7, 0.25, 1.5), 0.9104466540217636),
    ("truncnorm.logpdf", (0.9, -1.0, 2.0, 0.25, 1.5), -1.2181262358772633),
    ("truncnorm.pdf", (0.9, -1.0, 2.0, 0.25, 1.5), 0.29578387721798155),
    ("truncnorm.cdf", (0.9, -1.0, 2.0, 0.25, 1.5), 0.6217466187323731),
    ("truncnorm.logcdf", (0.9, -1.0, 2.0, 0.25, 1.5), -0.47522263462081216),
    ("truncnorm.sf", (0.9, -1.0, 2.0, 0.25, 1.5), 0.3782533812676269),
    ("truncnorm.logsf", (0.9, -1.0, 2.0, 0.25, 1.5), -0.9721909871133703),
    ("vonmises.logpdf", (1.3, 2.5), -2.3599686660439048),
    ("wrapcauchy.logpdf", (1.3, 0.4), -1.956718734215689),
    ("binom.logpmf", (3, 7, 0.3), -1.4832701272433244),
    ("nbinom.logpmf", (3, 7, 0.3), -5.067017663254437),
    ("betabinom.pmf", (3, 7, 1.5, 2.5), 0.16448974609375003),
]
"""Function, arguments with loc and scale, value."""


@pytest.mark.parametrize(("name", "args", "expected"), VALUES)
def test_values(name: str, args: tuple[Any, ...], expected: float) -> None:
    with enable_x64():
        got = attrgetter(name)(stats)(*args)
        np.testing.assert_allclose(float(got), expected, rtol=1e-11)


TAILS: list[tuple[str, tuple[float, ...], float]] = [
    ("laplace.sf", (50.0,), 9.643749239819589e-23),
    ("laplace.logsf", (50.0,), -50.69314718055995),
    ("laplace.logcdf", (30.0,), -4.6788114844201966e-14),
    ("logistic.logsf", (1000.0,), -1000.0),
    ("logistic.logcdf", (40.0,), -4.248354255291589e-18),
    ("expon.logcdf", (30.0,), -9.357622968840613e-14),
    ("expon.logcdf", (1e-05,), -11.512930464966061),
    ("expon.isf", (1e-10,), 23.025850929940457),
    ("cauchy.sf", (10000000000.0,), 3.183098861837907e-11),
    ("cauchy.logpdf", (1e30,), -139.29983546549214),
    ("cauchy.logcdf", (1000000.0,), -3.183099368442871e-07),
    ("cauchy.logsf", (1000000.0,), -14.960240443814008),
    ("cauchy.ppf", (1e-10,), -3183098861.8379064),
    ("cauchy.isf", (1e-10,), 3183098861.8379064),
    ("uniform.logsf", (1e-30,), -1e-30),
    ("t.cdf", (0.0001, 1000000.0), 0.5000398942180001),
    ("t.sf", (0.75, 1000000.0), 0.22662744060070772),
    ("t.sf", (8.0, 30.0), 3.1329112378503795e-09),
    ("t.cdf", (-0.5, 3.0), 0.3257239824240755),
    ("beta.sf", (1e-30, 0.001, 20.0), 0.06342962169037161),
    ("beta.sf", (0.001, 3.7, 100000.0), 2.1897487648873947e-39),
    ("beta.logpdf", (0.5, 1000000.0, 1000000.0), 7.028537390753627),
    ("pareto.cdf", (1.0001, 2.0), 0.0001999700039995167),
    ("pareto.logsf", (1e30, 20.0), -1381.5510557964274),
    ("gamma.logcdf", (1.0, 0.001), -0.00021963247503191066),
    ("gamma.logsf", (100.0, 1.0), -100.0),
    ("gumbel_r.logsf", (60.0,), -60.0),
    ("gumbel_r.sf", (30.0,), 9.357622968839737e-14),
    ("gumbel_l.logcdf", (-60.0,), -60.0),
    ("gumbel_l.cdf", (-30.0,), 9.357622968839737e-14),
    ("gennorm.sf", (6.0, 2.0), 1.0759868356249449e-17),
    ("truncnorm.logsf", (8.9, 8.0, 9.0), -8.226426505573968),
    ("truncnorm.logcdf", (2.9, -1.0, 3.0), -0.0006143773018412076),
    ("binom.logpmf", (500000.0, 1000000.0, 0.5), -7.13354688230902),
    ("nbinom.logpmf", (100000.0, 100000.0, 0.5), -7.021976105257636),
    ("vonmises.logpdf", (0.001, 100000.0), 4.787522953440858),
]
"""What is 0 or 1, or a difference of nearly equal numbers, by another way."""


@pytest.mark.parametrize(("name", "args", "expected"), TAILS)
def test_tails(name: str, args: tuple[float, ...], expected: float) -> None:
    function = attrgetter(name)(stats)
    with enable_x64():
        np.testing.assert_allclose(float(function(*args)), expected, rtol=2e-10)
    single = function(*map(np.float32, args))
    assert single.dtype == np.float32
    # This is the error of the results caused by rounding the arguments to f32.
    np.testing.assert_allclose(float(single), expected, rtol=1e-3, atol=1e-44)


def test_derivatives_of_tails_are_finite() -> None:
    for name in ("laplace", "logistic", "cauchy", "expon"):
        distribution = getattr(stats, name)
        for x in (0.5, 3.0, 40.0, 1e10):
            for of in (distribution.logpdf, distribution.logcdf, distribution.logsf):
                assert np.isfinite(float(grad(of)(x)))


def test_derivatives_of_distribution_functions_are_densities() -> None:
    """The test includes small densities."""
    for name, args in (("expon", (20.0,)), ("pareto", (9.0, 9.0)), ("cauchy", (1e4,))):
        distribution = getattr(stats, name)
        slope, density = grad(distribution.cdf)(*args), distribution.pdf(*args)
        np.testing.assert_allclose(float(slope), float(density), rtol=1e-5)


def test_invalid_parameters_give_nan() -> None:
    nan = float("nan")
    for name, args in (("expon", ()), ("uniform", ()), ("pareto", (2.0,)), ("gamma", (2.0,))):
        assert np.isnan(float(getattr(stats, name).pdf(nan, *args)))
    for name, parameter in (("poisson", 2.0), ("geom", 0.5), ("bernoulli", 0.5)):
        assert np.isnan(float(getattr(stats, name).pmf(nan, parameter)))
    assert float(stats.poisson.pmf(np.inf, 2.0)) == 0
    for name in ("expon", "uniform", "cauchy", "logistic", "norm", "gumbel_l", "gumbel_r"):
        distribution = getattr(stats, name)
        outside = [distribution.ppf(-0.1), distribution.ppf(1.1), distribution.isf(1.1)]
        outside += [distribution.cdf(0.5, scale=0.0), distribution.pdf(0.5, scale=-1.0)]
        assert np.isnan(outside).all()


def test_invalid_parameters_of_counts_give_nan() -> None:
    for got in (
        stats.binom.pmf(1, -1, 0.5),
        stats.binom.pmf(1, 2, 1.5),
        stats.nbinom.pmf(1, 0, 0.5),
        stats.betabinom.pmf(1, 2, 0.0, 1.0),
        stats.truncnorm.cdf(1.0, 2.0, 1.0),
        stats.vonmises.pdf(1.0, 0.0),
        stats.wrapcauchy.pdf(1.0, 1.0),
    ):
        assert np.isnan(float(got))


def test_the_density_outside_of_the_support_does_not_depend_on_the_scale() -> None:
    assert float(grad(lambda scale: stats.uniform.logpdf(9.0, scale=scale))(2.0)) == 0


def test_location_and_scale_by_name() -> None:
    expected = stats.norm.pdf(1.0, 0.5, 2.0)
    assert float(stats.norm.pdf(1.0, scale=2.0, loc=0.5)) == float(expected)


def test_outside_of_the_support() -> None:
    for name, args in (("gamma", (2.0,)), ("beta", (2.0, 2.0)), ("expon", ()), ("uniform", ())):
        distribution = getattr(stats, name)
        assert float(distribution.logpdf(-1.0, *args)) == -np.inf
        assert float(distribution.pdf(-1.0, *args)) == 0
        assert float(distribution.cdf(-1.0, *args)) == 0
    assert float(stats.poisson.logpmf(1.5, 2.0)) == -np.inf
    assert float(stats.bernoulli.pmf(2, 0.5)) == 0


def test_counts_outside_of_the_support() -> None:
    for got in (
        stats.binom.pmf([-1, 3, 0.5], 2, 0.5),
        stats.nbinom.pmf([-1, 0.5], 2, 0.5),
        stats.betabinom.pmf([-1, 3, 0.5], 2, 1.0, 1.0),
    ):
        np.testing.assert_array_equal(got, 0)
    np.testing.assert_array_equal(stats.truncnorm.cdf([-9.0, 9.0], -1.0, 2.0), [0, 1])


def test_multinomial_counts_are_along_the_last_dimension() -> None:
    chances = snp.array([0.2, 0.3, 0.5])
    counts = snp.array([[1, 2, 3], [6, 0, 0], [1, 1, 1], [7, -1, 0]])
    expected = [60 * 0.2 * 0.3**2 * 0.5**3, 0.2**6, 0, 0]
    np.testing.assert_allclose(stats.multinomial.pmf(counts, 6, chances), expected, rtol=1e-5)
    with pytest.raises(ShardirError) as error:
        stats.multinomial.pmf(snp.ones(3), 3, chances)
    assert str(error.value).split("\n")[0] == (
        "multinomial.logpmf takes integer counts, but x is of type f32[3]; convert it with "
        ".astype(int)"
    )


def test_gradients_are_finite_at_the_boundary() -> None:
    slope = grad(lambda a: stats.gamma.logpdf(-1.0, a))(2.0)
    assert float(slope) == 0
    assert float(grad(stats.norm.logcdf)(-20.0)) == pytest.approx(20.05, abs=0.01)


def test_multivariate_distributions() -> None:
    with enable_x64():
        x, alpha = snp.array([0.2, 0.3, 0.5]), snp.array([1.0, 2.0, 3.0])
        density = stats.dirichlet.logpdf(x, alpha)
        np.testing.assert_allclose(float(density), 1.5040773967762737, rtol=1e-11)
        mean, cov = snp.array([0.5, 0.0]), snp.array([[2.0, 0.3], [0.3, 1.0]])
        vectors = snp.array([[1.0, 2.0], [0.5, 0.0]])
        made = stats.multivariate_normal.logpdf(vectors, mean, cov)
        np.testing.assert_allclose(float(made[0]), -4.164046488485734, rtol=1e-11)
        assert made.shape == (2,)
        one = stats.multivariate_normal.logpdf(vectors[0], mean, 2.0)
        same = stats.multivariate_normal.logpdf(vectors[0], mean, 2.0 * snp.eye(2))
        np.testing.assert_allclose(float(one), float(same), rtol=1e-12)


def test_invalid_arguments_are_errors() -> None:
    with pytest.raises(ShardirError) as error:
        stats.dirichlet.logpdf(snp.ones(4), snp.ones(2))
    assert str(error.value).split("\n")[0] == (
        "dirichlet.logpdf got x of shape (4,) for alpha of shape (2,)"
    )


@pytest.mark.parametrize(("name", "first"), [("cdf", "x"), ("logpdf", "x"), ("ppf", "q")])
def test_an_argument_that_is_no_array_is_named(name: str, first: str) -> None:
    expected = f"argument {first} of norm.{name} is 'a' of type str, which is not an array"
    assert error_line(NotAnArrayError, lambda: getattr(stats.norm, name)("a")) == expected
