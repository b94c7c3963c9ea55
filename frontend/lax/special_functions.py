"""Special functions with the names of `jax.lax`; `shardir.scipy.special` has more of them."""

from collections.abc import Callable

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.tracing.tracer import Tracer


def bessel_i0e(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 0, divided by `exp(abs(x))`."""
    return _special_function("i0e")(x)


def bessel_i1e(x: ArrayLike) -> Tracer:
    """Return the modified Bessel function of order 1, divided by `exp(abs(x))`."""
    return _special_function("i1e")(x)


def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized incomplete beta function."""
    return _special_function("betainc")(a, b, x)


def igamma(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized lower incomplete gamma function."""
    return _special_function("gammainc")(a, x)


def igammac(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the regularized upper incomplete gamma function."""
    return _special_function("gammaincc")(a, x)


def polygamma(m: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative of order `m` of `digamma`; `m` is a float."""
    return _special_function("polygamma")(m, x)


def zeta(x: ArrayLike, q: ArrayLike) -> Tracer:
    """Return the Hurwitz zeta function, the sum of `(n + q)**-x`."""
    return _special_function("zeta")(x, q)


def igamma_grad_a(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative of `igamma` in its first argument."""
    # Imported late for start-up time, as the namespace is.
    from shardir.frontend.scipy.special_functions.incomplete_gamma import gammainc_slope

    return gammainc_slope(a, x)


def random_gamma_grad(a: ArrayLike, x: ArrayLike) -> Tracer:
    """Return the derivative in `a` of a sample `x` of the gamma distribution with shape `a`."""
    # Imported late for start-up time, as the namespace is.
    from shardir.frontend.scipy.special_functions.incomplete_gamma import gamma_sample_slope

    return gamma_sample_slope(a, x)


def _special_function(name: str) -> Callable[..., Tracer]:
    # Imported late for start-up time: most users of `shardir.lax` do not need the namespace.
    from shardir.frontend.scipy import special

    function: Callable[..., Tracer] = getattr(special, name)
    return function
