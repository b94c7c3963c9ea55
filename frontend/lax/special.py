"""Special functions under the names of `jax.lax`; `shardir.scipy.special` has more of them."""

from types import ModuleType
from typing import Any


def bessel_i0e(x: Any) -> Any:
    """The modified Bessel function of order 0, divided by `exp(abs(x))`."""
    return _there().i0e(x)


def bessel_i1e(x: Any) -> Any:
    """The modified Bessel function of order 1, divided by `exp(abs(x))`."""
    return _there().i1e(x)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """The regularized incomplete beta function."""
    return _there().betainc(a, b, x)


def igamma(a: Any, x: Any) -> Any:
    """The regularized lower incomplete gamma function."""
    return _there().gammainc(a, x)


def igammac(a: Any, x: Any) -> Any:
    """The regularized upper incomplete gamma function."""
    return _there().gammaincc(a, x)


def polygamma(m: Any, x: Any) -> Any:
    """The derivative of order `m` of `digamma`, where `m` is given in floats."""
    return _there().polygamma(m, x)


def zeta(x: Any, q: Any) -> Any:
    """The Hurwitz zeta function, the sum of `(n + q)**-x`."""
    return _there().zeta(x, q)


def _there() -> ModuleType:
    # It is written in terms of this namespace.
    from shardir.frontend.scipy import special

    return special
