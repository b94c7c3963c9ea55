"""Discrete Fourier transforms, the namespace `shardir.numpy.fft`.

`n` and `s` are transform lengths, to which the input is truncated or padded with zeros; `axis` and
`axes` are the transformed axes. `norm` is "backward" (the inverse divides by the number of
elements), "forward" or "ortho". Results are complex64 or complex128, of `irfft` and `hfft` float32
or float64. Dimensions that are not transformed may be sharded without communication.
"""

from collections.abc import Iterable, Sequence
from math import prod, sqrt
from operator import index
from typing import TypeAlias

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, AxisError, ShapeError
from shardir.frontend.numpy.creation.ranges import arange
from shardir.frontend.numpy.shaping.rolling import roll
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import concatenate_parts, transpose_dims
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_conjugate,
    emit_elementwise,
    is_complex,
)
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert, splat
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPUTE_DTYPES
from shardir.ir.operation import Symbol
from shardir.ir.types import COMPLEX_OF, REAL_OF

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

FFT_NORMS = ("backward", "ortho", "forward")
ONE_AXIS_STATIC_ARGNAMES = ("n", "axis", "norm")
AXES_STATIC_ARGNAMES = ("s", "axes", "norm")

Lengths: TypeAlias = Sequence[int] | None
"""The lengths of the transformed axes; `None` keeps them."""

Axes: TypeAlias = Sequence[int] | None
"""The transformed axes; `None` is all of them."""


def check_transform_sizes(name: str, dims: Iterable[int], sizes: Iterable[int]) -> None:
    """Raise `ShapeError` for a transform of no elements."""
    for dim, size in zip(dims, sizes, strict=True):
        if size < 1:
            raise ShapeError(
                with_location(
                    f"{name} has length {size} along axis {dim}; the length of a transform, which "
                    "is the size of the axis or an argument (n or s), must be at least 1"
                )
            )


def transform(
    kind: str, name: str, a: ArrayLike, s: Lengths, axes: Axes, norm: str | None
) -> Tracer:
    """Emit one kind of transform along some axes, the last axis first."""
    x = _convert_operand(kind, name, as_tracer(a))
    dims = transformed_dims(name, x, s, axes)
    if norm not in (None, *FFT_NORMS):
        norms = ", ".join(map(repr, FFT_NORMS))
        raise ArgumentError(with_location(f"{name} takes norm {norms} or None, got {norm!r}"))
    sizes = [x.shape[d] for d in dims] if s is None else [index(n) for n in s]
    if kind == "irfft" and s is None and dims:
        sizes[-1] = 2 * (x.shape[dims[-1]] - 1)
    check_transform_sizes(name, dims, sizes)
    if not dims:
        return x
    for d, size in zip(dims, sizes, strict=True):
        last = kind == "irfft" and d == dims[-1]
        x = resize_dim(x, d, size // 2 + 1 if last else size)
    result = _transform_in_groups(kind, x, dims, sizes)
    return _normalize(result, kind, prod(sizes), norm or "backward")


def _convert_operand(kind: str, name: str, x: Tracer) -> Tracer:
    """Convert the operand to the element type that the transform requires."""
    dtype = COMPUTE_DTYPES[promotion.inexact_dtype(x.value.type.dtype)]
    if kind == "rfft":
        if dtype in REAL_OF:
            raise ArgumentError(
                with_location(f"{name} takes real numbers, got {x.value.type}; use fft")
            )
        return convert(x, dtype)
    return convert(x, COMPLEX_OF.get(dtype, dtype))


def transformed_dims(name: str, x: Tracer, s: Lengths, axes: Axes) -> list[int]:
    """Return the dimensions that `axes` names, by default the last ones or all."""
    if axes is None:
        count = x.ndim if s is None else len(s)
        axes = range(x.ndim - count, x.ndim)
    dims = [canonicalize_axis(axis, x.ndim) for axis in axes]
    if len(set(dims)) != len(dims):
        raise AxisError(with_location(f"axes {tuple(axes)} of {name} name one dimension twice"))
    if s is not None and len(s) != len(dims):
        raise ArgumentError(
            with_location(
                f"{name} takes one length for each axis, got s={tuple(s)} for axes {tuple(axes)}"
            )
        )
    return dims


def resize_dim(x: Tracer, dim: int, size: int) -> Tracer:
    """Truncate a dimension, or pad it with zeros."""
    old = x.shape[dim]
    if old == size:
        return x
    none = [0] * x.ndim
    zero = splat(0, x.value.type.with_shape(()))
    high = [size - old if d == dim else 0 for d in range(x.ndim)]
    result: Tracer = emit("pad", x, zero, low=tuple(none), high=tuple(high), interior=tuple(none))
    return result


def _transform_in_groups(kind: str, x: Tracer, dims: Sequence[int], sizes: Sequence[int]) -> Tracer:
    """Transform at most three dimensions at a time, transposed to the end and back.

    The half spectrum of a real transform is along its last axis, which is transformed first
    (`rfft`) or last (`irfft`).
    """
    rest = [d for d in range(x.ndim) if d not in dims]
    order = (*rest, *dims)
    x = transpose_dims(x, order)
    near = min(len(dims), 3)
    groups = [list(range(x.ndim - near, x.ndim))]
    for end in range(x.ndim - near, len(rest), -3):
        groups.append(list(range(max(end - 3, len(rest)), end)))
    plain = {"rfft": "fft", "irfft": "ifft"}.get(kind, kind)
    if kind == "irfft":
        groups.reverse()
    for group in groups:
        x = _transform_group(kind if group[-1] == x.ndim - 1 else plain, x, group, sizes[-1])
    back = [order.index(d) for d in range(x.ndim)]
    return transpose_dims(x, back)


def _transform_group(kind: str, x: Tracer, group: list[int], size: int) -> Tracer:
    """Transform a group of consecutive dimensions, transposed to the end and back."""
    after = list(range(group[-1] + 1, x.ndim))
    before = list(range(group[0]))
    x = transpose_dims(x, (*before, *after, *group))
    result = None
    if kind == "irfft":
        kept = x.value.type.with_shape((*x.shape[:-1], size))
        result = kept.with_dtype(REAL_OF[kept.dtype])
    transformed: Tracer = emit(
        "fft", x, kind=Symbol(kind), rank=len(group), result=result, weak=False
    )
    order = (*before, *after, *group)
    return transpose_dims(transformed, [order.index(d) for d in range(x.ndim)])


def _normalize(x: Tracer, kind: str, count: int, norm: str) -> Tracer:
    inverse = kind in ("ifft", "irfft")
    if norm == "ortho":
        factor = sqrt(count) if inverse else 1 / sqrt(count)
    elif norm == "forward":
        factor = float(count) if inverse else 1 / count
    else:
        return x
    return emit_elementwise("mul", x, constant_like(x, factor))


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the discrete Fourier transform along one axis."""
    return transform("fft", "fft", a, _as_lengths(n), (axis,), norm)


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the inverse discrete Fourier transform along one axis."""
    return transform("ifft", "ifft", a, _as_lengths(n), (axis,), norm)


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the non-negative frequencies of the transform of real elements along one axis."""
    return transform("rfft", "rfft", a, _as_lengths(n), (axis,), norm)


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the inverse of `rfft`; `n` is the length of the result, by default an even number."""
    return transform("irfft", "irfft", a, _as_lengths(n), (axis,), norm)


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the real transform of a Hermitian signal, of which the first half is given."""
    x = as_tracer(a)
    flipped = emit_conjugate(x) if is_complex(x) else x
    return transform("irfft", "hfft", flipped, _as_lengths(n), (axis,), _inverse_norm(norm))


@public(static=ONE_AXIS_STATIC_ARGNAMES)
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Tracer:
    """Return the inverse of `hfft`."""
    return emit_conjugate(
        transform("rfft", "ihfft", a, _as_lengths(n), (axis,), _inverse_norm(norm))
    )


def _as_lengths(n: int | None) -> Lengths:
    return None if n is None else (n,)


def _inverse_norm(norm: str | None) -> str | None:
    return {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)


@public(static=AXES_STATIC_ARGNAMES)
def fft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tracer:
    """Return the discrete Fourier transform along two axes."""
    return transform("fft", "fft2", a, s, _check_two_axes("fft2", axes), norm)


@public(static=AXES_STATIC_ARGNAMES)
def ifft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tracer:
    """Return the inverse discrete Fourier transform along two axes."""
    return transform("ifft", "ifft2", a, s, _check_two_axes("ifft2", axes), norm)


@public(static=AXES_STATIC_ARGNAMES)
def rfft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tracer:
    """Return the transform of real elements along two axes, of the last the non-negative
    frequencies.
    """
    return transform("rfft", "rfft2", a, s, _check_two_axes("rfft2", axes), norm)


@public(static=AXES_STATIC_ARGNAMES)
def irfft2(
    a: ArrayLike, s: Lengths = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Tracer:
    """Return the inverse of `rfft2`."""
    return transform("irfft", "irfft2", a, s, _check_two_axes("irfft2", axes), norm)


def _check_two_axes(name: str, axes: Sequence[int]) -> Sequence[int]:
    if len(axes) != 2:
        raise ArgumentError(with_location(f"{name} takes two axes, got {tuple(axes)}"))
    return axes


@public(static=AXES_STATIC_ARGNAMES)
def fftn(a: ArrayLike, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Tracer:
    """Return the discrete Fourier transform along some axes, or all."""
    return transform("fft", "fftn", a, s, axes, norm)


@public(static=AXES_STATIC_ARGNAMES)
def ifftn(a: ArrayLike, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Tracer:
    """Return the inverse discrete Fourier transform along some axes, or all."""
    return transform("ifft", "ifftn", a, s, axes, norm)


@public(static=AXES_STATIC_ARGNAMES)
def rfftn(a: ArrayLike, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Tracer:
    """Return the transform of real elements along some axes, or all.

    Of the last axis, only the non-negative frequencies are returned.
    """
    return transform("rfft", "rfftn", a, s, axes, norm)


@public(static=AXES_STATIC_ARGNAMES)
def irfftn(a: ArrayLike, s: Lengths = None, axes: Axes = None, norm: str | None = None) -> Tracer:
    """Return the inverse of `rfftn`."""
    return transform("irfft", "irfftn", a, s, axes, norm)


@with_argument_errors
def fftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: ShardingRequest = None
) -> Tracer:
    """Return the frequencies of the elements of `fft` for n samples with distance `d`."""
    return _frequencies("fftfreq", n, d, dtype, device, False)


@with_argument_errors
def rfftfreq(
    n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: ShardingRequest = None
) -> Tracer:
    """Return the frequencies of the elements of `rfft` for n samples with distance `d`."""
    return _frequencies("rfftfreq", n, d, dtype, device, True)


def _frequencies(
    name: str, n: int, d: ArrayLike, dtype: DTypeLike | None, device: ShardingRequest, half: bool
) -> Tracer:
    count = check_integer(f"the number of elements of {name}", n, least=0)
    if count < 1:
        raise ArgumentError(with_location(f"n of {name} is {count}; it must be at least 1"))
    result = _emit_frequencies(count, d, float if dtype is None else dtype, half)
    return result if device is None else device_put(result, device)


@public(static=("count", "dtype", "half"), name="fftfreq")
def _emit_frequencies(count: int, d: ArrayLike, dtype: DTypeLike, half: bool) -> Tracer:
    name = promotion.dtype_of(dtype)
    if half:
        cycles = as_tracer(arange(count // 2 + 1))
    else:
        pieces = [arange((count + 1) // 2), arange(-(count // 2), 0)]
        cycles = concatenate_parts([as_tracer(piece) for piece in pieces], 0)
    distance = d if is_number(d) else convert(as_tracer(d), name)
    return convert(cycles, name) / (distance * count)


@public(static=("axes",))
def fftshift(x: ArrayLike, axes: object = None) -> Tracer:
    """Move the frequency 0 to the middle of each axis."""
    return _shift_frequencies(x, axes, 1)


@public(static=("axes",))
def ifftshift(x: ArrayLike, axes: object = None) -> Tracer:
    """Undo `fftshift`."""
    return _shift_frequencies(x, axes, -1)


def _shift_frequencies(x: ArrayLike, axes: object, sign: int) -> Tracer:
    v = as_tracer(x)
    if axes is None:
        axes = range(v.ndim)
    dims = [
        canonicalize_axis(axis, v.ndim) for axis in (axes if hasattr(axes, "__iter__") else (axes,))
    ]
    steps = tuple(v.shape[d] // 2 if sign > 0 else -(v.shape[d] // 2) for d in dims)
    return roll(v, steps, tuple(dims)) if dims else v
