"""1-D convolutions, and polynomials as vectors of coefficients, highest power first."""

from operator import index
from typing import SupportsIndex

from shardir.errors import count_noun
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.creation.filling import zeros
from shardir.frontend.numpy.shaping.repetition import trim_zeros
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, slice_dim
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_conjugate,
    emit_elementwise,
)
from shardir.frontend.numpy.tracer_helpers.product_precision import check_precision
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    convert,
    promote,
    promote_inexact,
    promote_to,
    promote_to_wider,
    reshape,
    splat,
)
from shardir.frontend.tracing.promotion import dtype_of, inexact_dtype
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import COMPLEX, INTEGERS

MAX_UNROLLED_WINDOW = 16
"""The maximum window length for which integer and complex convolutions are sums of products."""
CONVOLVE_STATIC_ARGNAMES = ("mode", "precision", "preferred_element_type")


@public(static=CONVOLVE_STATIC_ARGNAMES)
def convolve(
    a: ArrayLike,
    v: ArrayLike,
    mode: str = "full",
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Return the discrete convolution of two vectors.

    `mode` is "full" (every overlap), "same" (the length of the longer vector) or "valid" (complete
    overlaps only). Integers become floats unless `preferred_element_type` is given.
    """
    check_precision(precision)
    x, y = _promote_vectors("convolve", a, v, preferred_element_type)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    return _emit_convolution(
        "convolve", x, _reverse(y), mode, y.shape[0] // 2, preferred_element_type
    )


@public(static=CONVOLVE_STATIC_ARGNAMES)
def correlate(
    a: ArrayLike, v: ArrayLike, mode: str = "valid", *, precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the cross-correlation of two vectors, the second one conjugated.

    `mode` is "full", "same" or "valid", and integers become floats, as in `convolve`.
    """
    check_precision(precision)
    x, y = _promote_vectors("correlate", a, v, preferred_element_type)
    y = emit_conjugate(y)
    if x.shape[0] >= y.shape[0]:
        return _emit_convolution("correlate", x, y, mode, y.shape[0] // 2, preferred_element_type)
    return _reverse(
        _emit_convolution("correlate", y, x, mode, x.shape[0] // 2, preferred_element_type)
    )


def _promote_vectors(
    name: str, a: ArrayLike, v: ArrayLike, dtype: DTypeLike | None
) -> tuple[Tracer, Tracer]:
    x, y = promote_inexact(a, v) if dtype is None else promote_to_wider(dtype_of(dtype), a, v)
    for each in (x, y):
        if each.ndim != 1 or not each.shape[0]:
            raise ShapeError(
                with_location(
                    f"{name} takes vectors that are not empty, got {x.shape} and {y.shape}"
                )
            )
    return x, y


def _reverse(x: Tracer) -> Tracer:
    result: Tracer = emit("reverse", x, dims=(0,), weak=x.weak_type)
    return result


def _emit_convolution(
    name: str, x: Tracer, window: Tracer, mode: str, low: int, dtype: DTypeLike | None
) -> Tracer:
    size = window.shape[0]
    pads = {"full": (size - 1, size - 1), "same": (low, size - 1 - low), "valid": (0, 0)}
    if mode not in pads:
        raise ArgumentError(
            with_location(f"{name} has no mode {mode!r}; it is 'full', 'same' or 'valid'")
        )
    if size <= MAX_UNROLLED_WINDOW and x.value.type.dtype in (*INTEGERS, *COMPLEX):
        line = _convolve_by_slices(x, window, pads[mode])
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


def _convolve_by_slices(x: Tracer, window: Tracer, pads: tuple[int, int]) -> Tracer:
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
        factor = reshape(slice_dim(window, 0, i, i + 1), ())
        term = emit_elementwise(
            "mul", slice_dim(padded, 0, i, i + count), broadcast(factor, (count,))
        )
        total = term if total is None else emit_elementwise("add", total, term)
    assert total is not None
    return total


@public(static=("unroll",))
@strip_weak_types
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Tracer:
    """Return the value of the polynomial `p` at `x`, elementwise, by Horner's rule."""
    coefficients, points = promote(p, x)
    _check_coefficients("polyval", coefficients)
    value = constant_like(points, 0)
    for i in range(coefficients.shape[0]):
        value = value * points + reshape(slice_dim(coefficients, 0, i, i + 1), ())
    return value


def _check_coefficients(name: str, *polynomials: Tracer) -> None:
    for p in polynomials:
        if p.ndim != 1:
            raise ShapeError(
                with_location(f"{name} takes vectors of coefficients, got shape {p.shape}")
            )


@public()
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Tracer:
    """Return the sum of two polynomials."""
    return emit_elementwise("add", *_equal_lengths("polyadd", a1, a2))


@public()
def polysub(a1: ArrayLike, a2: ArrayLike) -> Tracer:
    """Return the difference of two polynomials."""
    return emit_elementwise("sub", *_equal_lengths("polysub", a1, a2))


def _equal_lengths(name: str, a1: ArrayLike, a2: ArrayLike) -> list[Tracer]:
    pair = promote(a1, a2)
    _check_coefficients(name, *pair)
    length = max(p.shape[0] for p in pair)
    zeros = [splat(0, p.value.type.with_shape((length - p.shape[0],))) for p in pair]
    return [concatenate_parts([zero, p], 0) for zero, p in zip(zeros, pair, strict=True)]


@with_argument_errors
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Tracer:
    """Return the product of two polynomials.

    `trim_leading_zeros` removes the leading zeros of both, which must be concrete.
    """
    if check_flag("trim_leading_zeros", trim_leading_zeros):
        a1, a2 = (_trim_factor(p) for p in (a1, a2))
    return _polymul(a1, a2)


@public(name="polymul")
def _polymul(a1: ArrayLike, a2: ArrayLike) -> Tracer:
    return convolve(a1, a2)


def _trim_factor(p: ArrayLike) -> ArrayLike:
    """Return a polynomial without leading zeros; the polynomial 0 has one coefficient."""
    trimmed = trim_zeros(p, "f")
    return trimmed if trimmed.size else zeros((1,), trimmed.dtype)


@public(static=("m",))
def polyder(p: ArrayLike, m: int = 1) -> Tracer:
    """Return the `m`-th derivative of a polynomial."""
    order = _check_order("polyder", m)
    (coefficients,) = promote_inexact(p)
    _check_coefficients("polyder", coefficients)
    for _ in range(order):
        count = coefficients.shape[0] - 1
        if count < 1:
            return splat(0, coefficients.value.type.with_shape((0,)))
        powers = emit_elementwise("sub", *_count_and_iota(coefficients, count))
        coefficients = emit_elementwise("mul", slice_dim(coefficients, 0, 0, count), powers)
    return coefficients


def _count_and_iota(x: Tracer, count: int) -> tuple[Tracer, Tracer]:
    """Return `count`, and the vector 0, 1, ..., count - 1, in the element type of `x`."""
    steps: Tracer = emit("iota", dim=0, result=x.value.type.with_shape((count,)))
    return constant_like(steps, count), steps


MAX_INTEGRATION_ORDER = 1 << 10


@public(static=("m",))
def polyint(p: ArrayLike, m: int = 1, k: object = None) -> Tracer:
    """Return the `m`-th integral of a polynomial, with the integration constants `k` (0 by
    default).
    """
    order = _check_order("polyint", m)
    if order > MAX_INTEGRATION_ORDER:
        raise ArgumentError(
            with_location(f"m of polyint is {order}; it must be at most {MAX_INTEGRATION_ORDER}")
        )
    given = as_tracer(0 if k is None else k)
    name = inexact_dtype(promote(p, given)[0].value.type.dtype)
    coefficients, constants = promote_to((name, False), p, given)
    _check_coefficients("polyint", coefficients)
    if constants.ndim == 0 or constants.shape == (1,):
        constants = broadcast(reshape(constants, (1,)), (order,))
    if constants.shape != (order,):
        raise ShapeError(
            with_location(
                f"polyint takes {count_noun(order, 'constant')}, got shape {constants.shape}"
            )
        )
    for i in range(order):
        powers = emit_elementwise("sub", *_count_and_iota(coefficients, coefficients.shape[0]))
        raised = emit_elementwise("div", coefficients, powers)
        coefficients = concatenate_parts([raised, slice_dim(constants, 0, i, i + 1)], 0)
    return coefficients


def _check_order(name: str, m: SupportsIndex) -> int:
    order = index(m)
    if order < 0:
        raise ArgumentError(with_location(f"m of {name} is {order}; it must not be negative"))
    return order
