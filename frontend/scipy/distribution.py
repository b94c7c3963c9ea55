"""What distributions have in common: functions of `x`, `loc` and `scale`."""

from collections.abc import Callable
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats
from shardir.frontend.scipy.narrow import in_double

Formula = Callable[..., Any]


def _logarithm(formula: Formula) -> Formula:
    return in_double(lambda *xs: snp.log(formula(*xs)))


class Distribution:
    """The functions of one distribution. Made from formulas of the standard one.

    `logpdf`, `pdf`, `logcdf`, `cdf`, `logsf`, `sf` take `x`, the parameters of the shape, `loc`
    and `scale`; `ppf` and `isf` take a probability first, and are NaN for what is none. Those
    without a formula raise no error where another gives them; logarithms without one are taken of
    f64, in which fewer probabilities are 0 or 1.
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
            above = sf or (lambda *xs: 1 - cdf(*xs))
            self.sf = self._scaled("sf", shapes, above)
            self.logcdf = self._scaled("logcdf", shapes, logcdf or _logarithm(cdf))
            self.logsf = self._scaled("logsf", shapes, logsf or _logarithm(above))
        if ppf is not None:
            back = isf or (lambda q, *xs: ppf(1 - q, *xs))
            self.ppf = self._inverse("ppf", shapes, ppf)
            self.isf = self._inverse("isf", shapes, back)

    def _scaled(self, what: str, shapes: int, formula: Formula, density: bool = False) -> Formula:
        @public(name=f"{self.name}.{what}")
        def function(x: Any, *rest: Any) -> Any:
            loc, scale = rest[shapes], rest[shapes + 1]
            x, loc, scale, *shape = floats(x, loc, scale, *rest[:shapes])
            made = formula((x - loc) / scale, *shape)
            return made - snp.log(scale) if density else made

        return self._called(what, shapes, function)

    def _inverse(self, what: str, shapes: int, formula: Formula) -> Formula:
        @public(name=f"{self.name}.{what}")
        def function(q: Any, *rest: Any) -> Any:
            loc, scale = rest[shapes], rest[shapes + 1]
            q, loc, scale, *shape = floats(q, loc, scale, *rest[:shapes])
            made = formula(q, *shape) * scale + loc
            return snp.where((q < 0) | (q > 1), snp.nan, made)

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
