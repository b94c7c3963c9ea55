"""Special functions with the names of `jax.lax`; `shardir.scipy.special` has more of them."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.tracing.tracer import Tracer

if TYPE_CHECKING:
    from shardir.frontend.scipy import special
    from shardir.frontend.scipy.special_functions import incomplete_gamma
else:
    special = lazy_import("shardir.frontend.scipy.special")
    incomplete_gamma = lazy_import("shardir.frontend.scipy.special_functions.incomplete_gamma")


@with_argument_errors
def bessel_i0e(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 0, divided by `exp(abs(x))`."""
    return special.i0e(x)


@with_argument_errors
def bessel_i1e(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 1, divided by `exp(abs(x))`."""
    return special.i1e(x)


@with_argument_errors
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized incomplete beta function."""
    return special.betainc(a, b, x)


@with_argument_errors
def igamma(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized lower incomplete gamma function."""
    return special.gammainc(a, x)


@with_argument_errors
def igammac(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized upper incomplete gamma function."""
    return special.gammaincc(a, x)


@with_argument_errors
def polygamma(m: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative of order `m` of `digamma`; `m` is a float."""
    return special.polygamma(m, x)


@with_argument_errors
def zeta(x: ArrayLike, q: ArrayLike) -> Tracer:
    """Return the Hurwitz zeta function, the sum of `(n + q)**-x`."""
    return special.zeta(x, q)


@with_argument_errors
def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative of `igamma` in its first argument."""
    return incomplete_gamma.gammainc_slope(a, x)


@with_argument_errors
def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative in `a` of a sample `x` of the gamma distribution with shape `a`."""
    return incomplete_gamma.gamma_sample_slope(a, x)
