"""Functions that torch lacks, or whose special cases differ from the IR's."""

import math

import torch
from torch import Tensor

ERROR_POLYNOMIALS = (
    (2.81022636e-08, -0.000200214257),
    (3.43273939e-07, 0.000100950558),
    (-3.5233877e-06, 0.00134934322),
    (-4.39150654e-06, -0.00367342844),
    (0.00021858087, 0.00573950773),
    (-0.00125372503, -0.0076224613),
    (-0.00417768164, 0.00943887047),
    (0.246640727, 1.00167406),
    (1.50140941, 2.83297682),
)
"""Coefficients for both intervals, highest power first."""


def cube_root(x: Tensor) -> Tensor:
    """Return the real cube root; one step of Halley's method makes it exact up to the
    last digit.
    """
    wide = x.to(torch.float64)
    root = wide.abs().pow(1 / 3)
    cube = root * root * root
    size = wide.abs()
    better = root * (cube + 2 * size) / (2 * cube + size)
    plain = (size == 0) | ~size.isfinite()
    return torch.copysign(torch.where(plain, size, better), wide).to(x.dtype)


def exp2_of_complex(x: Tensor) -> Tensor:
    """Return 2 to the power of complex numbers."""
    return torch.exp(x * math.log(2))


def expm1_of_complex(x: Tensor) -> Tensor:
    """Return exp(x) - 1, accurate near 0."""
    half = torch.sin(x.imag / 2)
    real = torch.expm1(x.real) * torch.cos(x.imag) - 2 * half * half
    imag = torch.where(x.imag == 0, x.imag, torch.exp(x.real) * torch.sin(x.imag))
    return torch.complex(real, imag)


def digamma_of(x: Tensor) -> Tensor:
    """Return the derivative of the logarithm of the gamma function; NaN at its poles."""
    pole = (x <= 0) & (x == torch.floor(x))
    return torch.where(pole, math.nan, torch.digamma(x))


def complementary_error(x: Tensor) -> Tensor:
    """Return 1 - erf(x); f32 is computed in f64 for the accuracy of the tail."""
    return torch.erfc(x.to(torch.float64)).to(x.dtype)


def inverse_error_as_xla(x: Tensor) -> Tensor:
    """Return the inverse error function by Giles' polynomials in f32, as XLA for random numbers."""
    w = -torch.log1p(-x * x)
    near = w < 5
    w = torch.where(near, w - 2.5, torch.sqrt(w) - 3)
    value = torch.zeros_like(w)
    for a, b in ERROR_POLYNOMIALS:
        value = value * w + torch.where(near, a, b).to(w.dtype)
    return torch.where(x.abs() == 1, torch.copysign(torch.full_like(x, math.inf), x), value * x)


def inverse_error(x: Tensor) -> Tensor:
    """Return the number whose error function is `x`; NaN outside of -1 to 1."""
    return torch.erfinv(x.to(torch.float64)).to(x.dtype)
