"""The common class of continuous distributions: functions of `x`, `loc` and `scale`."""

from collections.abc import Callable

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.elementwise import math_functions, selection
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import promote_args_inexact
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.scipy.special_functions.double_double import compute_in_double
from shardir.frontend.tracing.tracer import Tracer

FormulaFunction = Callable[..., Tracer]


def _log_in_double(formula: FormulaFunction) -> FormulaFunction:
    return compute_in_double(lambda *xs: math_functions.log(formula(*xs)))


class Distribution:
    """The functions of one distribution, derived from formulas of the standard distribution.

    `logpdf`, `pdf`, `logcdf`, `cdf`, `logsf` and `sf` take `x`, the shape parameters, `loc` and
    `scale`; `ppf` and `isf` take a probability first, and are NaN outside of [0, 1]. All are NaN
    for a scale that is not positive. A function without its own formula is derived from another
    one; logarithms are then computed in f64, in which fewer probabilities round to 0 or 1.
    """

    def __init__(
        self,
        name: str,
        shapes: int,
        logpdf: FormulaFunction,
        cdf: FormulaFunction | None = None,
        sf: FormulaFunction | None = None,
        logcdf: FormulaFunction | None = None,
        logsf: FormulaFunction | None = None,
        ppf: FormulaFunction | None = None,
        isf: FormulaFunction | None = None,
    ) -> None:
        self.name = name
        self.logpdf = self._standardize_argument("logpdf", shapes, logpdf, density=True)
        self.pdf = self._compose(self.logpdf, math_functions.exp)
        if cdf is not None:
            self.cdf = self._standardize_argument("cdf", shapes, cdf)
            survival = sf or (lambda *xs: 1 - cdf(*xs))
            self.sf = self._standardize_argument("sf", shapes, survival)
            self.logcdf = self._standardize_argument(
                "logcdf", shapes, logcdf or _log_in_double(cdf)
            )
            self.logsf = self._standardize_argument(
                "logsf", shapes, logsf or _log_in_double(survival)
            )
        if ppf is not None:
            inverse_survival = isf or (lambda q, *xs: ppf(1 - q, *xs))
            self.ppf = self._scale_result("ppf", shapes, ppf)
            self.isf = self._scale_result("isf", shapes, inverse_survival)

    def _standardize_argument(
        self, what: str, shapes: int, formula: FormulaFunction, density: bool = False
    ) -> FormulaFunction:
        @public(name=f"{self.name}.{what}")
        def function(x: ArrayLike, *rest: ArrayLike) -> Tracer:
            loc, scale = rest[shapes], rest[shapes + 1]
            x, loc, scale, *shape = promote_args_inexact(x, loc, scale, *rest[:shapes])
            result = formula((x - loc) / scale, *shape)
            if density:
                # Outside of the support, the derivative by the scale is 0.
                scaled = result - math_functions.log(scale)
                result = selection.where(result == -dtypes.inf, result, scaled)
            return selection.where(scale > 0, result, dtypes.nan)

        return self._with_location_and_scale(what, shapes, function)

    def _scale_result(self, what: str, shapes: int, formula: FormulaFunction) -> FormulaFunction:
        @public(name=f"{self.name}.{what}")
        def function(q: ArrayLike, *rest: ArrayLike) -> Tracer:
            loc, scale = rest[shapes], rest[shapes + 1]
            q, loc, scale, *shape = promote_args_inexact(q, loc, scale, *rest[:shapes])
            result = formula(q, *shape) * scale + loc
            is_valid = (q >= 0) & (q <= 1) & (scale > 0)
            return selection.where(is_valid, result, dtypes.nan)

        return self._with_location_and_scale(what, shapes, function)

    def _with_location_and_scale(
        self, what: str, shapes: int, function: FormulaFunction
    ) -> FormulaFunction:
        def call_function(
            x: ArrayLike, *args: PyTree, loc: ArrayLike = 0, scale: ArrayLike = 1
        ) -> PyTree:
            given = [*args[shapes:], *[None] * 2]
            loc = loc if given[0] is None else given[0]
            scale = scale if given[1] is None else given[1]
            return function(x, *args[:shapes], loc, scale)

        call_function.__name__ = what
        return call_function

    def _compose(self, inner: FormulaFunction, outer: FormulaFunction) -> FormulaFunction:
        def call_composed(
            x: ArrayLike, *args: PyTree, loc: ArrayLike = 0, scale: ArrayLike = 1
        ) -> PyTree:
            return outer(inner(x, *args, loc=loc, scale=scale))

        return call_composed

    def __repr__(self) -> str:
        return f"<distribution {self.name}>"
