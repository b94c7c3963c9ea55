"""Continuous distributions, each a namespace of functions of `x`, `loc` and `scale`.

Outside of its support a density is 0 and its logarithm -inf.
"""

from collections.abc import Callable
from math import log as log_of, pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats, like
from shardir.frontend.scipy import special
from shardir.frontend.scipy.stirling import log_poisson

Formula = Callable[..., Any]


class Distribution:
    """The functions of one distribution. Made from formulas of the standard one.

    `logpdf`, `pdf`, `logcdf`, `cdf`, `logsf`, `sf` take `x`, the parameters of the shape, `loc`
    and `scale`; `ppf` and `isf` take a probability first. Those without a formula raise no error
    where another gives them.
    """

    def __init__(
        self,
        name: str,
        shapes: int,
        logpdf: Formula,
        cdf: Formula | None = None,
        sf: Formula | None = None,
        logcdf: Formula | None = None,
        logsf: Formula | None = None,
        ppf: Formula | None = None,
        isf: Formula | None = None,
    ) -> None:
        self.name = name
        self.logpdf = self._scaled("logpdf", shapes, logpdf, density=True)
        self.pdf = self._through(self.logpdf, snp.exp)
        if cdf is not None:
            self.cdf = self._scaled("cdf", shapes, cdf)
            self.logcdf = (
                self._through(self.cdf, snp.log)
                if logcdf is None
                else self._scaled("logcdf", shapes, logcdf)
            )
            above = sf or (lambda *xs: 1 - cdf(*xs))
            self.sf = self._scaled("sf", shapes, above)
            self.logsf = (
                self._through(self.sf, snp.log)
                if logsf is None
                else self._scaled("logsf", shapes, logsf)
            )
        if ppf is not None:
            back = isf or (lambda q, *xs: ppf(1 - q, *xs))
            self.ppf = self._inverse("ppf", shapes, ppf)
            self.isf = self._inverse("isf", shapes, back)

    def _scaled(self, what: str, shapes: int, formula: Formula, density: bool = False) -> Formula:
        @public(name=f"{self.name}.{what}")
        def function(*args: Any) -> Any:
            x, *rest = args
            loc, scale = rest[shapes], rest[shapes + 1]
            x, loc, scale, *shape = floats(x, loc, scale, *rest[:shapes])
            made = formula((x - loc) / scale, *shape)
            return made - snp.log(scale) if density else made

        return self._called(what, shapes, function)

    def _inverse(self, what: str, shapes: int, formula: Formula) -> Formula:
        @public(name=f"{self.name}.{what}")
        def function(*args: Any) -> Any:
            q, *rest = args
            loc, scale = rest[shapes], rest[shapes + 1]
            q, loc, scale, *shape = floats(q, loc, scale, *rest[:shapes])
            return formula(q, *shape) * scale + loc

        return self._called(what, shapes, function)

    def _called(self, what: str, shapes: int, function: Formula) -> Formula:
        def called(x: Any, *args: Any, loc: Any = 0, scale: Any = 1) -> Any:
            given = [*args[shapes:], *[None] * 2]
            loc = loc if given[0] is None else given[0]
            scale = scale if given[1] is None else given[1]
            return function(x, *args[:shapes], loc, scale)

        called.__name__ = what
        return called

    def _through(self, inner: Formula, outer: Formula) -> Formula:
        def called(x: Any, *args: Any, loc: Any = 0, scale: Any = 1) -> Any:
            return outer(inner(x, *args, loc=loc, scale=scale))

        return called

    def __repr__(self) -> str:
        return f"<distribution {self.name}>"


def _inside(good: Any, value: Any) -> Any:
    return snp.where(good, value, -snp.inf)


def _uniform_cdf(x: Any) -> Any:
    return snp.clip(x, 0, 1)


def _gamma_logpdf(x: Any, a: Any) -> Any:
    safe = snp.where(x >= 0, x, snp.ones_like(x))
    plain = special.xlogy(a - 1, safe) - safe - special.gammaln(a)
    return _inside(x >= 0, log_poisson(a - 1, safe, plain))


def _beta_logpdf(x: Any, a: Any, b: Any) -> Any:
    good = (x >= 0) & (x <= 1)
    safe = snp.where(good, x, snp.full_like(x, 0.5))
    made = special.xlogy(a - 1, safe) + special.xlog1py(b - 1, -safe) - special.betaln(a, b)
    return _inside(good, made)


def _t_logpdf(x: Any, df: Any) -> Any:
    half = (df + 1) / 2
    made = -special.betaln(df / 2, like(df, 0.5)) - 0.5 * snp.log(df)
    return made - half * snp.log1p(x * x / df)


def _t_cdf(x: Any, df: Any) -> Any:
    tail = 0.5 * special.betainc(df / 2, snp.full_like(df, 0.5), df / (df + x * x))
    return snp.where(x > 0, 1 - tail, tail)


def _chi2_logpdf(x: Any, df: Any) -> Any:
    return _gamma_logpdf(x / 2, df / 2) - log_of(2)


def _laplace_cdf(x: Any) -> Any:
    half = 0.5 * snp.exp(-snp.abs(x))
    return snp.where(x < 0, half, 1 - half)


def _positive(x: Any) -> Any:
    return snp.maximum(x, 0.0)


norm = Distribution(
    "norm",
    0,
    lambda x: -0.5 * (x * x + log_of(2 * pi)),
    special.ndtr,
    lambda x: special.ndtr(-x),
    special.log_ndtr,
    lambda x: special.log_ndtr(-x),
    special.ndtri,
    lambda q: -special.ndtri(q),
)
uniform = Distribution(
    "uniform", 0, lambda x: _inside((x >= 0) & (x <= 1), x * 0), _uniform_cdf, ppf=lambda q: q
)
expon = Distribution(
    "expon",
    0,
    lambda x: _inside(x >= 0, -x),
    lambda x: -snp.expm1(-_positive(x)),
    lambda x: snp.exp(-_positive(x)),
    logsf=lambda x: -_positive(x),
    ppf=lambda q: -snp.log1p(-q),
)
logistic = Distribution(
    "logistic",
    0,
    lambda x: -snp.abs(x) - 2 * snp.log1p(snp.exp(-snp.abs(x))),
    special.expit,
    lambda x: special.expit(-x),
    ppf=special.logit,
    isf=lambda q: -special.logit(q),
)
laplace = Distribution("laplace", 0, lambda x: -snp.abs(x) - log_of(2), _laplace_cdf)
cauchy = Distribution(
    "cauchy",
    0,
    lambda x: -log_of(pi) - snp.log1p(x * x),
    lambda x: 0.5 + snp.arctan(x) / pi,
    lambda x: 0.5 - snp.arctan(x) / pi,
    ppf=lambda q: snp.tan(pi * (q - 0.5)),
    isf=lambda q: snp.tan(pi * (0.5 - q)),
)
gamma = Distribution(
    "gamma",
    1,
    _gamma_logpdf,
    lambda x, a: special.gammainc(a, _positive(x)),
    lambda x, a: special.gammaincc(a, _positive(x)),
)
beta = Distribution(
    "beta",
    2,
    _beta_logpdf,
    lambda x, a, b: special.betainc(a, b, snp.clip(x, 0, 1)),
    lambda x, a, b: special.betainc(b, a, 1 - snp.clip(x, 0, 1)),
)
t = Distribution("t", 1, _t_logpdf, _t_cdf, lambda x, df: _t_cdf(-x, df))
chi2 = Distribution(
    "chi2",
    1,
    _chi2_logpdf,
    lambda x, df: special.gammainc(df / 2, _positive(x) / 2),
    lambda x, df: special.gammaincc(df / 2, _positive(x) / 2),
)
pareto = Distribution(
    "pareto",
    1,
    lambda x, b: _inside(x >= 1, snp.log(b) - (b + 1) * snp.log(snp.maximum(x, 1.0))),
    lambda x, b: 1 - snp.power(snp.maximum(x, 1.0), -b),
    lambda x, b: snp.power(snp.maximum(x, 1.0), -b),
    ppf=lambda q, b: snp.power(1 - q, -1 / b),
    isf=lambda q, b: snp.power(q, -1 / b),
)
