"""Convolutions and correlations of signals, the namespace `shardir.scipy.signal`.

`mode` selects a part of the complete result: "full" is all of it, "same" the central part with the
shape of the first operand, and "valid" the part that does not depend on elements outside of the
operands.
"""

from collections.abc import Sequence

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.convolutions.convolution import conv_general_dilated
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind, is_complex
from shardir.frontend.numpy.tracer_helpers.product_precision import (
    PrecisionLike,
    check_precision,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]

_MODES = ("full", "same", "valid")
_METHODS = ("auto", "direct", "fft")


@public(static=("mode", "method", "precision"))
def convolve(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Tracer:
    """Return the convolution of two arrays along all dimensions.

    The method "direct", which "auto" selects, adds products; "fft" multiplies Fourier transforms.
    `precision` is accepted and ignored.
    """
    check_precision(precision)
    return _convolve("convolve", in1, in2, mode, method)


@public(static=("mode", "method", "precision"))
def correlate(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    method: str = "auto",
    precision: PrecisionLike = None,
) -> Tracer:
    """Return the correlation of two arrays along all dimensions; see `convolve`."""
    check_precision(precision)
    return _convolve("correlate", in1, _reverse(in2), mode, method)


@public(static=("mode", "boundary", "fillvalue", "precision"))
def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Tracer:
    """Return the convolution of two matrices; elements outside of them are zero."""
    check_precision(precision)
    _check_matrices("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve("convolve2d", in1, in2, mode, "direct")


@public(static=("mode", "boundary", "fillvalue", "precision"))
def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: PrecisionLike = None,
) -> Tracer:
    """Return the correlation of two matrices; elements outside of them are zero.

    As in SciPy, with the mode "same" an even number of elements has its center one element further
    than in `correlate`, and with the mode "valid" the smaller matrix is conjugated.
    """
    check_precision(precision)
    _check_matrices("correlate2d", in1, in2, boundary, fillvalue)
    x, y = as_tracer(in1), as_tracer(in2)
    if mode == "valid" and x.size < y.size:
        x, y = as_tracer(snp.conj(x)), as_tracer(snp.conj(y))
    return _convolve("correlate2d", x, _reverse(y), mode, "direct", extra=1)


@public(static=("mode", "axes"))
def fftconvolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None
) -> Tracer:
    """Return the convolution of two arrays along `axes`, by default all, by Fourier transforms.

    The other dimensions have equal sizes.
    """
    return _convolve("fftconvolve", in1, in2, mode, "fft", axes)


def _reverse(x: ArrayLike) -> Tracer:
    return as_tracer(snp.flip(snp.conj(x)))


def _check_matrices(
    name: str, in1: ArrayLike, in2: ArrayLike, boundary: str, fillvalue: float
) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise ArgumentError(
            with_location(
                f"{name} has boundary {brief(boundary)} and fillvalue {brief(fillvalue)}; it "
                "supports 'fill' and 0, so pad the first operand with snp.pad"
            )
        )
    shapes = as_tracer(in1).shape, as_tracer(in2).shape
    if any(len(shape) != 2 for shape in shapes):
        raise ShapeError(
            with_location(f"{name} takes matrices, got shapes {shapes[0]} and {shapes[1]}")
        )


def _convolve(
    name: str,
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str,
    method: str,
    axes: int | Sequence[int] | None = None,
    extra: int = 0,
) -> Tracer:
    kind = inexact_kind(in1, in2)
    x, y = (convert(as_tracer(each), *kind) for each in (in1, in2))
    for word, given, known in (("mode", mode, _MODES), ("method", method, _METHODS)):
        if given not in known:
            names = ", ".join(map(repr, known))
            raise ArgumentError(
                with_location(f"the {word} of {name} is {brief(given)}; it is one of {names}")
            )
    convolved = set(canonicalize_axes(axes, x.ndim))
    _check_shapes(name, x, y, mode, convolved)
    if mode == "valid" and any(x.shape[dim] < y.shape[dim] for dim in convolved):
        x, y = y, x
    ranges = [
        _select_range(size, other, mode, extra)
        for size, other in zip(x.shape, y.shape, strict=True)
    ]
    if method == "fft" or is_complex(x):
        return _convolve_by_fft(x, y, ranges, sorted(convolved))
    padding = [
        (size - 1 - start, start + count - other)
        for (start, count), size, other in zip(ranges, y.shape, x.shape, strict=True)
    ]
    ones = (1,) * x.ndim
    return conv_general_dilated(x[None, None], snp.flip(y)[None, None], ones, padding)[0, 0]


def _check_shapes(name: str, x: Tracer, y: Tracer, mode: str, convolved: set[int]) -> None:
    fits = x.ndim == y.ndim and all(
        dim in convolved or size == other
        for dim, (size, other) in enumerate(zip(x.shape, y.shape, strict=True))
    )
    if not fits or 0 in (*x.shape, *y.shape):
        raise ShapeError(
            with_location(
                f"{name} got shapes {x.shape} and {y.shape}; they need the same number of "
                "dimensions, elements in each, and equal sizes of dimensions that it does not "
                "convolve"
            )
        )
    larger = {x.shape[dim] > y.shape[dim] for dim in convolved if x.shape[dim] != y.shape[dim]}
    if mode == "valid" and len(larger) == 2:
        raise ShapeError(
            with_location(
                f"{name} got shapes {x.shape} and {y.shape}; with the mode 'valid', one of them is "
                "at least as large as the other in every dimension"
            )
        )


def _select_range(size: int, other: int, mode: str, extra: int) -> tuple[int, int]:
    """Return the start and the size of the selected part of the complete result."""
    if mode == "full":
        return 0, size + other - 1
    if mode == "valid":
        return other - 1, size - other + 1
    return (other - 1 + extra) // 2, size


def _convolve_by_fft(
    x: Tracer, y: Tracer, ranges: Sequence[tuple[int, int]], dims: Sequence[int]
) -> Tracer:
    sizes = [x.shape[dim] + y.shape[dim] - 1 for dim in dims]
    forward, backward = (
        (snp.fft.fftn, snp.fft.ifftn) if is_complex(x) else (snp.fft.rfftn, snp.fft.irfftn)
    )
    result = backward(forward(x, sizes, dims) * forward(y, sizes, dims), sizes, dims)
    selected = tuple(
        slice(ranges[dim][0], sum(ranges[dim])) if dim in dims else slice(None)
        for dim in range(x.ndim)
    )
    return as_tracer(result[selected])
