"""Expressions of functions that poplibs lacks, accurate to a few units in the last place.

Where a formula would overflow or cancel, another one is used; both are evaluated, and `Select`
selects one.
"""

from collections.abc import Callable

import numpy as np

from shardir.backends.ipu.codegen.expressions import Node, PolynomialNode, apply, cast, number
from shardir.backends.ipu.lowering.pointwise import compare, constant_like, pointwise, where
from shardir.ops.elementwise.special import GILES_CENTRE, GILES_TAIL

LN2 = float(np.log(2))

_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
"""log(erfc(x) / t) + x^2 for x >= 0 in t = 1 / (1 + x/2), error at most 1.2e-7 (W. H. Press et al.,
Numerical Recipes, 6.2, after Hastings)."""


def _with_sign(x: Node, size: Node) -> Node:
    """Return a magnitude with the sign of `x`."""
    return where(compare("<", x, constant_like(0, x)), apply("-", size), size)


@pointwise("acos", 0)
def _acos(x: Node) -> Node:
    one = constant_like(1, x)
    sine = apply("Sqrt", apply("*", apply("-", one, x), apply("+", one, x)))
    return apply("Atan2", sine, x)


@pointwise("atan")
def _atan(x: Node) -> Node:
    return apply("Atan2", x, constant_like(1, x))


@pointwise("sinh", 0)
def _sinh(x: Node) -> Node:
    """Use `expm1` near 0, and half of the exponential beyond 1, so that it overflows late."""
    size, one = apply("Abs", x), constant_like(1, x)
    grown = apply("Expm1", size)
    near = apply("*", apply("+", grown, apply("/", grown, apply("+", grown, one))), _half(x))
    half = _half_exp(x)
    far = apply("-", half, apply("/", constant_like(0.25, x), half))
    return _with_sign(x, where(compare("<", size, one), near, far))


@pointwise("cosh", 0)
def _cosh(x: Node) -> Node:
    half = _half_exp(x)
    return apply("+", half, apply("/", constant_like(0.25, x), half))


def _half(x: Node) -> Node:
    return constant_like(0.5, x)


def _half_exp(x: Node) -> Node:
    return apply("Exp", apply("-", apply("Abs", x), constant_like(LN2, x)))


@pointwise("asinh", 0)
def _asinh(x: Node) -> Node:
    size, one = apply("Abs", x), constant_like(1, x)
    square = apply("Square", x)
    root = apply("+", apply("Sqrt", apply("+", square, one)), one)
    near = apply("Log1p", apply("+", size, apply("/", square, root)))
    return _with_sign(x, where(_is_large(size), _log_twice(size), near))


@pointwise("acosh", 0)
def _acosh(x: Node) -> Node:
    past = apply("-", x, constant_like(1, x))
    root = apply("Sqrt", apply("*", past, apply("+", x, constant_like(1, x))))
    return where(_is_large(x), _log_twice(x), apply("Log1p", apply("+", past, root)))


def _is_large(x: Node) -> Node:
    """Return where the square would lose accuracy or overflow."""
    return compare(">", x, constant_like(100.0 if x.dtype == "f16" else 1e9, x))


def _log_twice(x: Node) -> Node:
    return apply("+", apply("Log", x), constant_like(LN2, x))


@pointwise("atanh", 0)
def _atanh(x: Node) -> Node:
    gap = apply("-", apply("Log1p", x), apply("Log1p", apply("-", x)))
    return apply("*", gap, _half(x))


@pointwise("erfc", 0, stores=True)
def _erfc(x: Node, store: Callable[[Node], Node]) -> Node:
    """Compute 1 - erf(x) without cancellation; the relative error is at most 2e-6."""
    wide = _to_single(x, store)
    size, one = apply("Abs", wide), number(1, "f32")
    t = store(apply("/", one, apply("+", one, apply("*", size, _half(wide)))))
    right = apply("*", t, apply("Exp", apply("-", PolynomialNode(t, _ERFC), apply("Square", wide))))
    left = apply("-", number(2, "f32"), right)
    return _from_single(where(compare("<", wide, number(0, "f32")), left, right), x)


@pointwise("erf_inv", 0, stores=True, attributes=True)
def _erf_inv(x: Node, store: Callable[[Node], Node], *, as_xla: bool = False) -> Node:
    """Use Giles' polynomials in -log(1 - x^2); XLA rounds x^2, which loses digits near -1 and 1."""
    wide = _to_single(x, store)
    if as_xla:
        log = apply("Log1p", apply("-", apply("Square", wide)))
    else:
        log = apply("+", apply("Log1p", wide), apply("Log1p", apply("-", wide)))
    w = store(apply("-", log))
    centre = PolynomialNode(apply("-", w, number(2.5, "f32")), GILES_CENTRE)
    tail = PolynomialNode(apply("-", apply("Sqrt", w), number(3, "f32")), GILES_TAIL)
    factor = where(compare("<", w, number(5, "f32")), centre, tail)
    infinite = _with_sign(wide, number(np.inf, "f32"))
    ends = compare("==", apply("Abs", wide), number(1, "f32"))
    return _from_single(where(ends, infinite, apply("*", factor, wide)), x)


def _to_single(x: Node, store: Callable[[Node], Node]) -> Node:
    """Convert a half to single precision, in which polynomials are evaluated."""
    return store(cast(x, "f32")) if x.dtype == "f16" else x


def _from_single(made: Node, x: Node) -> Node:
    return cast(made, x.dtype) if x.dtype == "f16" else made
