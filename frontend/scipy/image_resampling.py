"""Resampling of images, the namespace `shardir.image`.

A dimension is resampled by a product with a matrix of weights. The centers of elements are at 0.5,
1.5, ..., so that element `i` of the input covers the interval from `i` to `i + 1`. Sources of the
kernels: R. G. Keys, Cubic convolution interpolation for digital image processing, 1981; C. Duchon,
Lanczos filtering in one and two dimensions, 1979.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from math import pi
from typing import TypeAlias

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.contraction import dot_general
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.numpy.tracer_helpers.product_precision import (
    Precision,
    PrecisionLike,
    check_precision,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]

Kernel: TypeAlias = Callable[[Tracer], Tracer]
"""The weight of an element at a distance of at least 0."""
_SMALLEST_SUM = 1000 * 2.0**-23
"""The sum of the weights of an output element at or below which the element is 0."""


@with_method_errors
class ResizeMethod(Enum):
    """The method with which an image is resampled."""

    NEAREST = 0
    """The nearest element."""
    LINEAR = 1
    """Linear interpolation."""
    LANCZOS3 = 2
    """Lanczos' kernel with radius 3."""
    LANCZOS5 = 3
    """Lanczos' kernel with radius 5."""
    CUBIC = 4
    """Keys' cubic kernel with the slope -0.5."""
    CUBIC_PYTORCH = 5
    """`CUBIC`; without antialiasing, the slope is -0.75 and elements at the edges are repeated."""
    AREA = 6
    """The mean of the elements that an output element covers."""

    @staticmethod
    def from_string(s: str) -> "ResizeMethod":
        """Return the method with a name; raise `ArgumentError` for an unknown one."""
        if s not in _METHODS:
            raise ArgumentError(
                with_location(f"no method is named {brief(s)}; it is one of {', '.join(_METHODS)}")
            )
        return _METHODS[s]


_METHODS = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


@public(static=("shape", "method", "antialias", "precision"))
def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Tracer:
    """Return the image with another shape, which has a size for each dimension of the image.

    `antialias` widens the kernel of dimensions that become smaller. As in products, an algorithm
    as `precision` states the types in which sums are computed. Raise `ShapeError` for another
    number of dimensions.
    """
    check_precision(precision)
    x, sizes, chosen = _check_image("resize", image, shape, method)
    if chosen is ResizeMethod.NEAREST:
        return _take_nearest(x, sizes)
    x = convert(x, *inexact_kind(x))
    for dim, (size, new) in enumerate(zip(x.shape, sizes, strict=True)):
        if size != new:
            scale = convert(as_tracer(new / size if new else 1.0), "f32")
            weights = _weights(size, new, scale, convert(as_tracer(0.0), "f32"), chosen, antialias)
            x = _resample(x, dim, weights, precision)
    return x


@public(static=("shape", "spatial_dims", "method", "antialias", "precision"))
def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Tracer:
    """Return an image of which the position `p * scale + translation` is position `p` of `image`.

    `scale` and `translation` have an element for each of `spatial_dims`. Elements that come from
    outside of the image are 0. Raise `ShapeError` for another number of dimensions or elements, and
    `ArgumentError` for the method "nearest".
    """
    check_precision(precision)
    x, sizes, chosen = _check_image("scale_and_translate", image, shape, method)
    if chosen is ResizeMethod.NEAREST:
        raise ArgumentError(
            with_location("scale_and_translate has no method 'nearest'; use 'linear', or resize")
        )
    scales, offsets = as_tracer(scale), as_tracer(translation)
    if not scales.shape == offsets.shape == (len(spatial_dims),):
        raise ShapeError(
            with_location(
                f"scale_and_translate has {len(spatial_dims)} spatial_dims, a scale of shape "
                f"{scales.shape} and a translation of shape {offsets.shape}; give both one number "
                "for each of these dimensions"
            )
        )
    kind = inexact_kind(scales, offsets)
    scales, offsets = convert(scales, *kind), convert(offsets, *kind)
    x = convert(x, *inexact_kind(x))
    for i, dim in enumerate(range(x.ndim)[d] for d in spatial_dims):
        weights = _weights(x.shape[dim], sizes[dim], scales[i], offsets[i], chosen, antialias)
        x = _resample(x, dim, weights, precision)
    return x


def _check_image(
    name: str, image: ArrayLike, shape: Sequence[int], method: str | ResizeMethod
) -> tuple[Tracer, tuple[int, ...], ResizeMethod]:
    x, sizes = as_tracer(image), canonicalize_shape(shape)
    if len(sizes) != x.ndim:
        raise ShapeError(
            with_location(
                f"{name} of an image of shape {x.shape} has the new shape {sizes}; give a size for "
                "each dimension"
            )
        )
    return (
        x,
        sizes,
        method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method),
    )


def _take_nearest(x: Tracer, sizes: Sequence[int]) -> Tracer:
    for dim, (size, new) in enumerate(zip(x.shape, sizes, strict=True)):
        if size != new:
            positions = (snp.arange(new, dtype="float32") + 0.5) * size / new
            x = snp.take(x, snp.floor(positions).astype("int32"), axis=dim, mode="clip")
    return x


def _resample(x: Tracer, dim: int, weights: Tracer, precision: PrecisionLike) -> Tracer:
    """Return the products of a dimension with a matrix of weights (input, output)."""
    dims = ((dim,), (0,)), ((), ())
    product = dot_general(x, convert(weights, x.value.type.dtype), dims, precision)
    return snp.moveaxis(product, -1, dim)


def _weights(
    size: int, new: int, scale: Tracer, offset: Tracer, method: ResizeMethod, antialias: bool
) -> Tracer:
    """Return the weight of each input element for each output element, with sums of 1 or 0."""
    repeats_edges = method is ResizeMethod.CUBIC_PYTORCH and not antialias
    kernel = _pytorch_cubic if repeats_edges else _KERNELS.get(method)
    dtype = scale.dtype
    outputs, inverse = snp.arange(new, dtype=dtype), 1 / scale
    centers = (outputs + 0.5 - offset) * inverse - 0.5
    margin = 2 if repeats_edges else 0
    inputs = snp.arange(-margin, size + margin, dtype=dtype)[:, None]
    if kernel is None:
        starts = (outputs - offset) * inverse
        ends = snp.minimum(starts + inverse, inputs + 1)
        weights = snp.maximum(0, ends - snp.maximum(starts, inputs))
    else:
        width = snp.maximum(inverse, 1) if antialias else 1
        weights = kernel(snp.abs(centers - inputs) / width)
    if repeats_edges:
        places = snp.clip(snp.arange(-margin, size + margin), 0, size - 1)
        weights = snp.zeros((size, new), dtype).at[places].add(weights)
    total = snp.sum(weights, 0, keepdims=True)
    weights = snp.where(
        snp.abs(total) > _SMALLEST_SUM, weights / snp.where(total != 0, total, 1), 0
    )
    if not repeats_edges:
        weights = snp.where((centers >= -0.5) & (centers <= size - 0.5), weights, 0)
    return as_tracer(weights)


def _triangle(distance: Tracer) -> Tracer:
    return as_tracer(snp.maximum(0, 1 - distance))


def _cubic_kernel(a: float) -> Kernel:
    """Return Keys' kernel with the slope `a` at distance 1."""

    def weigh(distance: Tracer) -> Tracer:
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        return as_tracer(snp.where(distance >= 2, 0, snp.where(distance >= 1, far, near)))

    return weigh


def _lanczos_kernel(radius: int) -> Kernel:
    def weigh(distance: Tracer) -> Tracer:
        product = radius * snp.sin(pi * distance) * snp.sin(pi * distance / radius)
        is_apart = distance > 1e-3
        quotient = product / snp.where(is_apart, (pi * distance) ** 2, 1)
        return as_tracer(snp.where(distance > radius, 0, snp.where(is_apart, quotient, 1)))

    return weigh


_KERNELS: dict[ResizeMethod, Kernel] = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos_kernel(3),
    ResizeMethod.LANCZOS5: _lanczos_kernel(5),
    ResizeMethod.CUBIC: _cubic_kernel(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _cubic_kernel(-0.5),
}
_pytorch_cubic = _cubic_kernel(-0.75)
