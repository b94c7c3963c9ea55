"""The gamma function and its relatives."""

from math import log as log_of, pi
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.eager import public
from shardir.frontend.numpy.pointwise import floats, inexact, like, pointwise
from shardir.frontend.scipy.stirling import FAR, log_beta


@public()
def gammaln(x: Any) -> Any:
    """The logarithm of the size of the gamma function."""
    return pointwise("lgamma", x, kind=inexact(x))


@public()
def digamma(x: Any) -> Any:
    """The derivative of `gammaln`."""
    return pointwise("digamma", x, kind=inexact(x))


psi = digamma


@public()
def gammasgn(x: Any) -> Any:
    """The sign of the gamma function, 1 or -1; that of a zero at zero, NaN at other poles."""
    (x,) = floats(x)
    below = snp.floor(x)
    sign = snp.where((x > 0) | (below % 2 == 0), 1.0, -1.0)
    sign = snp.where((x < 0) & (below == x), snp.nan, sign)
    return snp.where(x == 0, snp.copysign(snp.ones_like(x), x), sign).astype(x.dtype)


@public()
def gamma(x: Any) -> Any:
    """The gamma function."""
    (x,) = floats(x)
    return gammasgn(x) * snp.exp(gammaln(x))


@public(static=("exact",))
def factorial(n: Any, exact: bool = False) -> Any:
    """gamma(n + 1), 0 for negative n."""
    (n,) = floats(n)
    return snp.where(n < 0, like(n, 0), snp.exp(gammaln(snp.where(n < 0, like(n, 0), n) + 1)))


@public()
def betaln(a: Any, b: Any) -> Any:
    """The logarithm of the size of the beta function."""
    a, b = floats(a, b)
    return log_beta(a, b, gammaln)


@public()
def beta(a: Any, b: Any) -> Any:
    """The beta function."""
    a, b = floats(a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * snp.exp(betaln(a, b))


@public(static=("d",))
def multigammaln(a: Any, d: int) -> Any:
    """The logarithm of the gamma function of d-by-d matrices."""
    (a,) = floats(a)
    total = like(a, 0.25 * d * (d - 1) * log_of(pi))
    for j in range(d):
        total = total + gammaln(a - j / 2)
    return total


@public()
def poch(z: Any, m: Any) -> Any:
    """gamma(z + m) / gamma(z)."""
    z, m = floats(z, m)
    low, size = snp.minimum(z, z + m), snp.abs(m)
    far = (low >= FAR) & (size > 0)
    low, size = snp.where(far, low, like(low, FAR)), snp.where(far, size, like(size, 1))
    ratio = gammaln(size) - betaln(low, size)
    plain = gamma(snp.where(far, like(z, 1), z + m)) / gamma(snp.where(far, like(z, 1), z))
    made = snp.where(far, snp.exp(snp.where(m > 0, ratio, -ratio)), plain)
    return snp.where(m == 0, like(z, 1), made)
