"""Discrete cosine transforms, the namespace `shardir.scipy.fft`.

The transforms have type 2; their inverses have type 3 with another factor. A Fourier transform of
the same length computes them: J. Makhoul, A fast cosine transform in one and two dimensions, 1980.
`n` and `s` are lengths to which the input is truncated or padded with zeros. Dimensions that are
not transformed may be sharded without communication.
"""

from collections.abc import Callable, Sequence
from math import pi, sqrt
from operator import index
from typing import TypeAlias

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy import fft
from shardir.frontend.numpy.elementwise import complex_parts, math_functions, selection
from shardir.frontend.numpy.shaping import concatenation
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, transpose_dims
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import is_complex
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert, reshape
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES
from shardir.ir.types import TensorType

__all__ = ["dct", "dctn", "idct", "idctn"]

Transform: TypeAlias = Callable[[Tracer, bool], Tracer]
"""A transform along the last dimension; the flag states whether it is orthonormal."""


@public(static=("type", "n", "axis", "norm"))
def dct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tracer:
    """Return the discrete cosine transform along one axis; `norm` "ortho" makes it orthonormal."""
    lengths = None if n is None else (n,)
    return _transform_dims("dct", _cosine_transform, x, type, lengths, (axis,), norm)


@public(static=("type", "n", "axis", "norm"))
def idct(
    x: ArrayLike, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Tracer:
    """Return the inverse of `dct`."""
    lengths = None if n is None else (n,)
    return _transform_dims("idct", _inverse_cosine_transform, x, type, lengths, (axis,), norm)


@public(static=("type", "s", "axes", "norm"))
def dctn(
    x: ArrayLike, type: int = 2, s: fft.Lengths = None, axes: fft.Axes = None,
    norm: str | None = None,
) -> Tracer:  # fmt: skip
    """Return the discrete cosine transform along some axes, or all."""
    return _transform_dims("dctn", _cosine_transform, x, type, s, axes, norm)


@public(static=("type", "s", "axes", "norm"))
def idctn(
    x: ArrayLike, type: int = 2, s: fft.Lengths = None, axes: fft.Axes = None,
    norm: str | None = None,
) -> Tracer:  # fmt: skip
    """Return the inverse of `dctn`."""
    return _transform_dims("idctn", _inverse_cosine_transform, x, type, s, axes, norm)


def _transform_dims(
    name: str,
    transform: Transform,
    a: ArrayLike,
    type: int,
    s: Sequence[int] | None,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Tracer:
    x = as_tracer(a)
    if type != 2:
        raise ArgumentError(with_location(f"{name} has type 2, got type={brief(type)}"))
    if norm not in (None, "backward", "ortho"):
        raise ArgumentError(
            with_location(f"{name} takes norm 'backward', 'ortho' or None, got {brief(norm)}")
        )
    if is_complex(x):
        parts = (
            _transform_dims(name, transform, part, type, s, axes, norm)
            for part in (complex_parts.real(x), complex_parts.imag(x))
        )
        result: Tracer = emit("complex", *parts)
        return result
    x = convert(x, COMPUTE_DTYPES[promotion.inexact_dtype(x.value.type.dtype)])
    dims = fft.transformed_dims(name, x, s, axes)
    sizes = [x.shape[dim] for dim in dims] if s is None else [index(size) for size in s]
    fft.check_transform_sizes(name, dims, sizes)
    for dim, size in zip(dims, sizes, strict=True):
        x = _transform_last(transform, fft.resize_dim(x, dim, size), dim, norm == "ortho")
    return x


def _transform_last(transform: Transform, x: Tracer, dim: int, is_orthonormal: bool) -> Tracer:
    """Apply a transform with its dimension moved to the end and back."""
    order = (*(d for d in range(x.ndim) if d != dim), dim)
    moved = transform(transpose_dims(x, order), is_orthonormal)
    return transpose_dims(moved, [order.index(d) for d in range(x.ndim)])


def _cosine_transform(x: Tracer, is_orthonormal: bool) -> Tracer:
    parts = [x[..., ::2], x[..., 1::2][..., ::-1]]
    spectrum = fft.fft(concatenate_parts(parts, x.ndim - 1))
    angles = _quarter_turns(x)
    rotated = complex_parts.real(spectrum) * math_functions.cos(angles) + complex_parts.imag(
        spectrum
    ) * math_functions.sin(angles)
    return rotated * (_orthonormal_factors(x) * 2 if is_orthonormal else 2)


def _inverse_cosine_transform(x: Tracer, is_orthonormal: bool) -> Tracer:
    size = x.shape[-1]
    factors = _orthonormal_factors(x)
    # The inverse divides by the squares of the factors of the orthonormal transform, twice.
    scaled = x * (factors * size * 2 if is_orthonormal else factors * factors * (2 * size))
    angles = _quarter_turns(x)
    rotated = emit(
        "complex", scaled * math_functions.cos(angles), scaled * math_functions.sin(angles)
    )
    values = complex_parts.real(fft.ifft(rotated))
    half = (size + 1) // 2
    even, odd = values[..., :half], values[..., half:][..., ::-1]
    if size % 2:
        odd = concatenation.concatenate([odd, even[..., :1]], axis=-1)
    pairs = concatenation.stack([even, odd], axis=-1)
    return reshape(pairs, (*x.shape[:-1], 2 * half))[..., :size]


def _positions(x: Tracer) -> Tracer:
    positions: Tracer = emit("iota", dim=0, result=TensorType((x.shape[-1],), "i32"))
    return positions


def _quarter_turns(x: Tracer) -> Tracer:
    """Return the angles from 0 to below pi / 2 that belong to the frequencies."""
    return convert(_positions(x), x.value.type.dtype) * (pi / (2 * x.shape[-1]))


def _orthonormal_factors(x: Tracer) -> Tracer:
    """Return the factors that make the unnormalized transform orthonormal."""
    size = x.shape[-1]
    factors = selection.where(_positions(x) == 0, sqrt(1 / (4 * size)), sqrt(1 / (2 * size)))
    return convert(factors, x.value.type.dtype)
