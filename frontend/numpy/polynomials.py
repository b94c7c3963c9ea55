"""1-D convolutions, and polynomials as vectors of coefficients, highest power first."""

from operator import index
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import joined, piece
from shardir.frontend.numpy.complexes import conjugate_of
from shardir.frontend.numpy.pointwise import like, same
from shardir.frontend.operands import (
    as_tracer,
    broadcast,
    convert,
    promote,
    promote_inexact,
    promote_to,
    reshape,
    splat,
)
from shardir.frontend.promotion import dtype_of, inexact
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import COMPLEX, INTEGERS

IN_TURN = 16
"""The maximum window length for which integer and complex convolutions are sums of products."""
STATIC = ("mode", "precision", "preferred_element_type")


@public(static=STATIC)
def convolve(
    a: Any, v: Any, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the discrete convolution of two vectors.

    `mode` is "full" (every overlap), "same" (the length of the longer vector) or "valid" (complete
    overlaps only).
    """
    x, y = _vectors("convolve", a, v)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    return _slid("convolve", x, _turned(y), mode, y.shape[0] // 2, preferred_element_type)


@public(static=STATIC)
def correlate(
    a: Any, v: Any, mode: str = "valid", *, precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:  # fmt: skip
    """Return the cross-correlation of two vectors, the second one conjugated.

    `mode` is "full", "same" or "valid" as in `convolve`.
    """
    x, y = _vectors("correlate", a, v)
    y = conjugate_of(y)
    if x.shape[0] >= y.shape[0]:
        return _slid("correlate", x, y, mode, y.shape[0] // 2, preferred_element_type)
    return _turned(_slid("correlate", y, x, mode, x.shape[0] // 2, preferred_element_type))


def _vectors(name: str, a: Any, v: Any) -> tuple[Tracer, Tracer]:
    x, y = promote(a, v)
    for each in (x, y):
        if each.ndim != 1 or not each.shape[0]:
            raise ShapeError(
                point(f"{name} takes vectors that are not empty, got {x.shape} and {y.shape}")
            )
    return x, y


def _turned(x: Tracer) -> Tracer:
    result: Tracer = emit("reverse", x, dims=(0,), weak=x.weak_type)
    return result


def _slid(name: str, x: Tracer, window: Tracer, mode: str, low: int, dtype: Any) -> Tracer:
    size = window.shape[0]
    pads = {"full": (size - 1, size - 1), "same": (low, size - 1 - low), "valid": (0, 0)}
    if mode not in pads:
        raise ArgumentError(point(f"{name} has no mode {mode!r}; it is 'full', 'same' or 'valid'"))
    if size <= IN_TURN and x.value.type.dtype in (*INTEGERS, *COMPLEX):
        line = _in_turn(x, window, pads[mode])
        return line if dtype is None else convert(line, dtype_of(dtype))
    found: Tracer = emit(
        "convolution",
        reshape(x, (1, x.shape[0], 1)),
        reshape(window, (size, 1, 1)),
        strides=(1,),
        padding=(pads[mode],),
        lhs_dilation=(1,),
        rhs_dilation=(1,),
        dims="b0f,0io->b0f",
        groups=1,
        batch_groups=1,
        weak=x.weak_type and window.weak_type,
    )
    line = reshape(found, (found.shape[1],))
    return line if dtype is None else convert(line, dtype_of(dtype))


def _in_turn(x: Tracer, window: Tracer, pads: tuple[int, int]) -> Tracer:
    """Emit the convolution as a sum of products with shifted slices.

    This is one pass over the elements; processors have no instructions for such convolutions.
    """
    low, high = pads
    zero = splat(0, x.value.type.with_shape(()))
    padded: Tracer = emit("pad", x, zero, low=(low,), high=(high,), interior=(0,), weak=x.weak_type)
    size = window.shape[0]
    count = padded.shape[0] - size + 1
    total: Tracer | None = None
    for i in range(size):
        factor = reshape(piece(window, 0, i, i + 1), ())
        term = same("mul", piece(padded, 0, i, i + count), broadcast(factor, (count,)))
        total = term if total is None else same("add", total, term)
    assert total is not None
    return total


@public(static=("unroll",))
def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """Return the value of the polynomial `p` at `x`, elementwise, by Horner's rule."""
    coefficients, points = promote(p, x)
    _polynomial("polyval", coefficients)
    value = like(points, 0)
    for i in range(coefficients.shape[0]):
        value = value * points + reshape(piece(coefficients, 0, i, i + 1), ())
    return value


def _polynomial(name: str, *polynomials: Tracer) -> None:
    for p in polynomials:
        if p.ndim != 1:
            raise ShapeError(point(f"{name} takes vectors of coefficients, got shape {p.shape}"))


@public()
def polyadd(a1: Any, a2: Any) -> Any:
    """Return the sum of two polynomials."""
    return same("add", *_equal_lengths("polyadd", a1, a2))


@public()
def polysub(a1: Any, a2: Any) -> Any:
    """Return the difference of two polynomials."""
    return same("sub", *_equal_lengths("polysub", a1, a2))


def _equal_lengths(name: str, a1: Any, a2: Any) -> list[Tracer]:
    pair = promote(a1, a2)
    _polynomial(name, *pair)
    length = max(p.shape[0] for p in pair)
    zeros = [splat(0, p.value.type.with_shape((length - p.shape[0],))) for p in pair]
    return [joined([zero, p], 0) for zero, p in zip(zeros, pair, strict=True)]


@public()
def polymul(a1: Any, a2: Any) -> Any:
    """Return the product of two polynomials."""
    return convolve(a1, a2)


@public(static=("m",))
def polyder(p: Any, m: int = 1) -> Any:
    """Return the `m`-th derivative of a polynomial."""
    order = _order("polyder", m)
    (coefficients,) = promote_inexact(p)
    _polynomial("polyder", coefficients)
    for _ in range(order):
        count = coefficients.shape[0] - 1
        if count < 1:
            return splat(0, coefficients.value.type.with_shape((0,)))
        powers = same("sub", *_counted(coefficients, count))
        coefficients = same("mul", piece(coefficients, 0, 0, count), powers)
    return coefficients


def _counted(x: Tracer, count: int) -> tuple[Tracer, Tracer]:
    """Return `count`, and the vector 0, 1, ..., count - 1, in the element type of `x`."""
    steps: Tracer = emit("iota", dim=0, result=x.value.type.with_shape((count,)))
    return like(steps, count), steps


MOST = 1 << 10


@public(static=("m",))
def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Return the `m`-th integral of a polynomial, with the integration constants `k` (0 by
    default).
    """
    order = _order("polyint", m)
    if order > MOST:
        raise ArgumentError(
            point(f"polyint of order m={order}; a program has at most {MOST} integrals in a row")
        )
    given = as_tracer(0 if k is None else k)
    name = inexact(promote(p, given)[0].value.type.dtype)
    coefficients, constants = promote_to((name, False), p, given)
    _polynomial("polyint", coefficients)
    if constants.ndim == 0 or constants.shape == (1,):
        constants = broadcast(reshape(constants, (1,)), (order,))
    if constants.shape != (order,):
        raise ShapeError(point(f"polyint takes {order} constants, got shape {constants.shape}"))
    for i in range(order):
        powers = same("sub", *_counted(coefficients, coefficients.shape[0]))
        raised = same("div", coefficients, powers)
        coefficients = joined([raised, piece(constants, 0, i, i + 1)], 0)
    return coefficients


def _order(name: str, m: Any) -> int:
    order = index(m)
    if order < 0:
        raise ArgumentError(point(f"{name} of order m={order}; it must not be negative"))
    return order
