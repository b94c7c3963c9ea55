"""Spectra of signals, and removal of trends: `detrend`, `stft`, `istft`, `csd` and `welch`.

A spectrum divides a signal into segments, which may overlap, multiplies each by a window, and
transforms it. Sources: P. D. Welch, "The use of the fast Fourier transform for the estimation of
power spectra" (1967); D. W. Griffin and J. S. Lim, "Signal estimation from modified short-time
Fourier transform" (1984) for the inverse.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from shardir.caller_warnings import warn_caller
from shardir.errors import count_noun
from shardir.frontend.argument_checks import check_integer, check_integers
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.elementwise import complex
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind, is_complex
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.scipy.signal_windows import make_window
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast_shapes, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import COMPLEX, REAL_OF

__all__ = ["csd", "detrend", "istft", "stft", "welch"]

Detrend: TypeAlias = str | bool | UserFunction
"""The trend that is removed from each segment: "constant", "linear", False, or a function."""

Window: TypeAlias = str | tuple[object, ...] | ArrayLike
"""A window: its name, a tuple of the name and parameters, or its elements."""

BOUNDARIES = ("even", "odd", "constant", "zeros", None)

SMALLEST_WINDOW_SUM = 1e-10
"""The smallest sum of squared windows by which `istft` divides."""


@public(static=("axis", "type", "bp", "overwrite_data"))
def detrend(
    data: ArrayLike,
    axis: int = -1,
    type: str = "linear",
    bp: int | Sequence[int] = 0,
    overwrite_data: None = None,
) -> Tracer:
    """Return `data` without its mean ("constant"), or without its least-squares line ("linear").

    `bp` are the first indices of pieces along `axis`, each of which has its own line. Raise
    `ArgumentError` for another `type`, for indices outside of the axis, and for `overwrite_data`.
    """
    if overwrite_data is not None:
        raise ArgumentError(
            with_location("detrend cannot overwrite its operand; leave out overwrite_data")
        )
    return _detrend("detrend", as_tracer(data), axis, type, bp)


def _detrend(
    name: str, data: Tracer, axis: int, kind: object, bp: int | Sequence[int] = 0
) -> Tracer:
    if not isinstance(kind, str) or kind not in ("constant", "linear"):
        raise ArgumentError(
            with_location(f"{name} removes 'constant' or 'linear' trends, not {brief(kind)}")
        )
    x = convert(data, *inexact_kind(data))
    dim = canonicalize_axis(axis, x.ndim)
    if kind == "constant":
        return as_tracer(x - snp.mean(x, dim, keepdims=True))
    size = x.shape[dim]
    breaks = sorted({0, size, *check_integers("bp of detrend", bp if np.ndim(bp) else (bp,))})
    if breaks[0] < 0 or breaks[-1] > size:
        raise ArgumentError(
            with_location(f"bp of detrend is {brief(bp)}; an axis of "
            f"{count_noun(size, 'element')} has indices "
                          f"from 0 to {size}")
        )  # fmt: skip
    rows = snp.moveaxis(x, dim, -1)
    pieces = [_subtract_line(rows[..., start:stop]) for start, stop in pairwise(breaks)]
    return snp.moveaxis(snp.concatenate(pieces, axis=-1), -1, dim) if pieces else x


def _subtract_line(rows: Tracer) -> Tracer:
    """Return rows without their least-squares lines.

    The mean and the centered positions are orthogonal, so that no system has to be solved.
    """
    size = rows.shape[-1]
    centered = rows - snp.mean(rows, -1, keepdims=True)
    if size == 1:
        return as_tracer(centered)
    positions = np.arange(size) - (size - 1) / 2
    direction = convert(as_tracer(positions / np.linalg.norm(positions)), rows.value.type.dtype)
    slope = snp.sum(centered * direction, -1, keepdims=True)
    return as_tracer(centered - slope * direction)


@with_argument_errors
def stft(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Window = "hann", nperseg: int = 256,
    noverlap: int | None = None, nfft: int | None = None, detrend: Detrend = False,
    return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True,
    axis: int = -1,
) -> tuple[Tracer, Tracer, Tracer]:  # fmt: skip
    """Return frequencies, times of the segments, and the short-time Fourier transform of `x`.

    The signal along `axis`, with the sampling frequency `fs`, is divided into segments of `nperseg`
    elements, which overlap by `noverlap`, by default one half. `nfft` is the length of the
    transforms, `detrend` the trend that is removed from each segment; a function for it receives
    segments whose elements are along `axis`. With `return_onesided`, the
    transform of a real signal has no negative frequencies. `boundary` extends the signal by half a
    segment at each end: by "zeros", by the "constant" last element, "even" or "odd" around it, or
    not (None). `padded` fills the last segment with zeros. The axis of the result in the position
    of `axis` is the frequency, the last one the time. Raise `ArgumentError` for lengths that do
    not fit each other, and for an unknown window, boundary or trend.
    """
    frequencies, times, result = _spectrum(
        "stft", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
        "spectrum", axis, boundary, padded,
    )  # fmt: skip
    return frequencies, times, result


@with_argument_errors
def csd(
    x: ArrayLike, y: ArrayLike | None, fs: ArrayLike = 1.0, window: Window = "hann",
    nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
    detrend: Detrend = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean",
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return frequencies and the cross power spectral density of two signals, by Welch's method.

    With `y=None` it is the real power spectral density of `x`. The result is the "mean" or the
    "median" of the segments, scaled as power per frequency ("density") or as power ("spectrum").
    The other arguments and errors are those of `stft`; segments have 256 elements by default.
    """
    return _average_spectrum("csd", x, y, fs, window, nperseg, noverlap, nfft, detrend,
                             return_onesided, scaling, axis, average)  # fmt: skip


@with_argument_errors
def welch(
    x: ArrayLike, fs: ArrayLike = 1.0, window: Window = "hann", nperseg: int | None = None,
    noverlap: int | None = None, nfft: int | None = None, detrend: Detrend = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, average: str = "mean",
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return frequencies and the power spectral density of a signal; see `csd`."""
    return _average_spectrum("welch", x, None, fs, window, nperseg, noverlap, nfft, detrend,
                             return_onesided, scaling, axis, average)  # fmt: skip


def _average_spectrum(
    name: str, x: ArrayLike, y: ArrayLike | None, fs: ArrayLike, window: Window,
    nperseg: int | None, noverlap: int | None, nfft: int | None, detrend: Detrend,
    return_onesided: bool, scaling: str, axis: int, average: str,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    if not isinstance(average, str) or average not in ("mean", "median"):
        raise ArgumentError(
            with_location(f"the average of {name} is {brief(average)}; it is 'mean' or 'median'")
        )
    frequencies, _, result = _spectrum(
        name, x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
        None, False, average,
    )  # fmt: skip
    return frequencies, result


def _spectrum(
    name: str, x: ArrayLike, y: ArrayLike | None, fs: ArrayLike, window: Window,
    nperseg: int | None, noverlap: int | None, nfft: int | None, detrend: Detrend,
    return_onesided: bool, scaling: str, axis: int, boundary: str | None, padded: bool,
    average: str | None = None,
) -> tuple[Tracer, Tracer, Tracer]:  # fmt: skip
    """Check the lengths of the segments, and return frequencies, times and the spectrum."""
    if boundary not in BOUNDARIES:
        known = ", ".join(map(repr, BOUNDARIES))
        raise ArgumentError(
            with_location(f"the boundary of {name} is {brief(boundary)}; it is one of {known}")
        )
    if not isinstance(scaling, str) or scaling not in ("density", "spectrum"):
        raise ArgumentError(
            with_location(f"the scaling of {name} is {brief(scaling)}; it is 'density' or "
                          "'spectrum'")
        )  # fmt: skip
    shapes = [_shape_of(f"a signal of {name}", each) for each in (x, y) if each is not None]
    length = max(shape[canonicalize_axis(axis, len(shape))] for shape in shapes)
    if not length:
        raise ShapeError(
            with_location(f"{name} takes signals with elements along axis {axis}, got shape "
                          f"{shapes[0]}")
        )  # fmt: skip
    weights, count = _window_of_segments(name, window, nperseg, length)
    overlap = count // 2 if noverlap is None else check_integer(f"noverlap of {name}", noverlap, 0)
    transformed = count if nfft is None else check_integer(f"nfft of {name}", nfft)
    if overlap >= count:
        raise ArgumentError(
            with_location(f"noverlap of {name} is {overlap}; it is smaller than the {count} "
                          "elements of a segment")
        )  # fmt: skip
    if transformed < count:
        raise ArgumentError(
            with_location(f"nfft of {name} is {transformed}; it is at least the "
            f"{count_noun(count, 'element')} "
                          "of a segment")
        )  # fmt: skip
    emit = _emit_spectrum_of_function if callable(detrend) else _emit_spectrum
    return emit(
        x, y, fs, weights, name, (count, overlap, transformed), detrend, bool(return_onesided),
        scaling, axis, boundary, bool(padded), average,
    )  # fmt: skip


def _shape_of(what: str, x: ArrayLike) -> tuple[int, ...]:
    return abstract_of(x, what).type.shape


def _check_real_window(name: str, window: ArrayLike) -> None:
    if abstract_of(window, f"the window of {name}").type.dtype in COMPLEX:
        raise ArgumentError(with_location(f"the window of {name} is complex; it has real elements"))


def _window_of_segments(
    name: str, window: Window, nperseg: int | None, length: int
) -> tuple[ArrayLike, int]:
    """Return the elements of the window, and the number of elements of a segment."""
    count = None if nperseg is None else check_integer(f"nperseg of {name}", nperseg, 1)
    if isinstance(window, (str, tuple)):
        count = 256 if count is None else count
        if count > length:
            warn_caller(
                f"nperseg of {name} is {count}, and the signal has "
                f"{count_noun(length, 'element')}; segments have {count_noun(length, 'element')}",
                UserWarning,
            )
            count = length
        return make_window(name, window, count), count
    _check_real_window(name, window)
    shape = _shape_of(f"the window of {name}", window)
    if len(shape) != 1:
        raise ShapeError(with_location(f"the window of {name} is a vector, got shape {shape}"))
    if shape[0] > length:
        raise ShapeError(
            with_location(f"the window of {name} has {count_noun(shape[0], 'element')}, and the "
            "signal has "
                          f"{length}")
        )  # fmt: skip
    if count is not None and count != shape[0]:
        raise ArgumentError(
            with_location(
                f"nperseg of {name} is {count}, and the window has "
                f"{count_noun(shape[0], 'element')}"
            )
        )
    return window, shape[0]


_SPECTRUM_STATIC = (
    "name", "lengths", "detrend", "onesided", "scaling", "axis", "boundary", "padded", "average",
)  # fmt: skip


def _trace_spectrum(
    x: ArrayLike, y: ArrayLike | None, fs: ArrayLike, window: ArrayLike, name: str,
    lengths: tuple[int, int, int], detrend: Detrend, onesided: bool, scaling: str, axis: int,
    boundary: str | None, padded: bool, average: str | None,
) -> tuple[Tracer, Tracer, Tracer]:  # fmt: skip
    count, overlap, transformed = lengths
    kind = inexact_kind(*(each for each in (x, y) if each is not None))
    signals = [convert(as_tracer(each), *kind) for each in (x, y) if each is not None]
    real = REAL_OF.get(kind[0], kind[0])
    weights = convert(as_tracer(window), real)
    rate = convert(as_tracer(fs), real)
    dim = canonicalize_axis(axis, signals[0].ndim)
    rows = _extend_signals(name, signals, axis, count, overlap, boundary, padded)
    frames = [_split_into_segments(each, count, count - overlap) for each in rows]
    onesided = onesided and not is_complex(signals[0])
    spectra = [
        _transform_segments(name, each, weights, detrend, axis, transformed, onesided)
        for each in frames
    ]
    scale = 1 / (rate * snp.sum(weights**2)) if scaling == "density" else 1 / snp.sum(weights) ** 2
    if average is None:
        result = spectra[0] * snp.sqrt(scale)
    else:
        result = (
            snp.real(spectra[0]) ** 2 + snp.imag(spectra[0]) ** 2
            if y is None
            else snp.conj(spectra[0]) * spectra[1]
        ) * scale
        if onesided:
            # Each negative frequency has the power of the positive one; 0 and n/2 have none.
            last = transformed // 2 + transformed % 2
            doubled = np.where(np.arange(transformed // 2 + 1) % last == 0, 1.0, 2.0)
            if transformed == 1:
                doubled[:] = 1.0
            result = result * convert(as_tracer(doubled), real)
    frequencies = (snp.fft.rfftfreq if onesided else snp.fft.fftfreq)(transformed, 1 / rate)
    times = (snp.arange(frames[0].shape[-2]) * (count - overlap) + count / 2) / rate
    if boundary is not None:
        times = times - count / 2 / rate
    if average is not None:
        return frequencies, times, snp.moveaxis(_average(result, average), -1, dim)
    return frequencies, times, snp.moveaxis(snp.swapaxes(result, -1, -2), -2, dim)


_emit_spectrum = public(static=_SPECTRUM_STATIC, name="stft")(_trace_spectrum)
_emit_spectrum_of_function = public(static=_SPECTRUM_STATIC, cached=False, name="stft")(
    _trace_spectrum
)


def _extend_signals(
    name: str, signals: Sequence[Tracer], axis: int, count: int, overlap: int,
    boundary: str | None, padded: bool,
) -> list[Tracer]:  # fmt: skip
    """Return the signals along the last axis, extended at both ends to equal lengths."""
    rows = [snp.moveaxis(each, axis, -1) for each in signals]
    shape = broadcast_shapes(*(each.shape[:-1] for each in rows))
    length = max(each.shape[-1] for each in rows)
    rows = [
        snp.broadcast_to(_pad_end(each, length - each.shape[-1]), (*shape, length)) for each in rows
    ]
    edge = count // 2
    if boundary is not None:
        if boundary in ("even", "odd") and edge >= length:
            raise ShapeError(
                with_location(f"{name} extends a signal of {length} elements by {edge} at each "
                              f"end, for which the boundary {boundary!r} needs {edge + 1} elements")
            )  # fmt: skip
        rows = [_extend(each, edge, boundary) for each in rows]
    if padded:
        step = count - overlap
        rows = [_pad_end(each, -(each.shape[-1] - count) % step % count) for each in rows]
    return rows


def _pad_end(rows: Tracer, count: int) -> Tracer:
    return snp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, count)]) if count else rows


def _extend(rows: Tracer, count: int, boundary: str) -> Tracer:
    options: dict[str, str] = {
        "zeros": {"mode": "constant"},
        "constant": {"mode": "edge"},
        "even": {"mode": "reflect"},
        "odd": {"mode": "reflect", "reflect_type": "odd"},
    }[boundary]
    return snp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(count, count)], **options)


def _split_into_segments(rows: Tracer, count: int, step: int) -> Tracer:
    """Return the segments of rows: (..., segments, elements of a segment)."""
    segments = max((rows.shape[-1] - count) // step + 1, 0)
    positions = np.arange(segments)[:, None] * step + np.arange(count)[None]
    return as_tracer(rows[..., positions])


def _transform_segments(
    name: str, frames: Tracer, weights: Tracer, kind: Detrend, axis: int, size: int, onesided: bool
) -> Tracer:
    if callable(kind):
        moved = frames if axis == -1 else snp.moveaxis(frames, -1, axis)
        found = call_user_function(kind, f"detrend of {name}", (moved,))
        frames = found if axis == -1 else snp.moveaxis(found, axis, -1)
    elif kind:
        frames = _detrend(name, frames, -1, kind)
    transform: Callable[..., Tracer] = snp.fft.rfft if onesided else snp.fft.fft
    return transform(frames * weights, size)


def _average(spectra: Tracer, average: str) -> Tracer:
    """Return the mean or the unbiased median of spectra (..., segments, frequencies)."""
    count = spectra.shape[-2]
    if average == "mean" or count < 2:
        return snp.mean(spectra, -2) if count else snp.sum(spectra, -2)
    # The median of n exponential variables exceeds their mean by this factor (B. Allen et al.,
    # "FINDCHIRP", 2012, appendix B).
    even = 2.0 * np.arange(1, (count - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (even + 1) - 1 / even)
    if not is_complex(spectra):
        return snp.median(spectra, -2) / bias
    real, imaginary = snp.median(snp.real(spectra), -2), snp.median(snp.imag(spectra), -2)
    return as_tracer(complex(real, imaginary) / bias)


@with_argument_errors
def istft(
    Zxx: ArrayLike, fs: ArrayLike = 1.0, window: Window = "hann", nperseg: int | None = None,
    noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
    boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    """Return times and the signal of a short-time Fourier transform: the inverse of `stft`.

    The arguments are those with which `stft` computed the transform; `boundary` states whether the
    signal was extended at its ends. Each element of the signal is the least-squares estimate from
    the segments that contain it. Warn with `UserWarning` if a part of the signal is in no segment
    with a nonzero window. Raise `ShapeError` for fewer than two dimensions, and `ArgumentError`
    for lengths that do not fit each other.
    """
    shape = _shape_of("the operand of istft", Zxx)
    if len(shape) < 2:
        raise ShapeError(with_location(f"istft takes at least two dimensions, got shape {shape}"))
    frequency, time = (canonicalize_axis(axis, len(shape)) for axis in (freq_axis, time_axis))
    if frequency == time:
        raise ArgumentError(with_location("freq_axis and time_axis of istft are equal"))
    default = 2 * (shape[frequency] - 1) if input_onesided else shape[frequency]
    count = default if nperseg is None else check_integer("nperseg of istft", nperseg, 1)
    if nfft is None:
        transformed = count if input_onesided and count == default + 1 else default
    else:
        transformed = check_integer("nfft of istft", nfft)
    overlap = count // 2 if noverlap is None else check_integer("noverlap of istft", noverlap, 0)
    if transformed < count or overlap >= count:
        raise ArgumentError(
            with_location(f"nperseg of istft is {count}; it is at most nfft, {transformed}, and "
                          f"larger than noverlap, {overlap}")
        )  # fmt: skip
    if isinstance(window, (str, tuple)):
        weights: ArrayLike = make_window("istft", window, count)
        _warn_of_gaps(weights, count - overlap, shape[time], bool(boundary))
    else:
        weights = window
        _check_real_window("istft", window)
        found = _shape_of("the window of istft", window)
        if found != (count,):
            raise ShapeError(
                with_location(f"the window of istft has shape {found}, and segments "
                              f"have {count_noun(count, 'element')}")
            )  # fmt: skip
    return _emit_inverse(Zxx, fs, weights, (count, overlap, transformed), bool(input_onesided),
                         bool(boundary), time, frequency)  # fmt: skip


def _warn_of_gaps(weights: ArrayLike, step: int, segments: int, boundary: bool) -> None:
    window = np.asarray(weights)
    total = np.zeros(len(window) + (segments - 1) * step)
    for i in range(segments):
        total[i * step : i * step + len(window)] += window**2
    edge = len(window) // 2 if boundary else 0
    if (total[edge : len(total) - edge] <= SMALLEST_WINDOW_SUM).any():
        warn_caller(
            "istft cannot recover the whole signal, because the windows do not overlap enough",
            UserWarning,
        )


@public(static=("lengths", "onesided", "boundary", "time", "frequency"), name="istft")
def _emit_inverse(
    spectrum: ArrayLike, fs: ArrayLike, window: ArrayLike, lengths: tuple[int, int, int],
    onesided: bool, boundary: bool, time: int, frequency: int,
) -> tuple[Tracer, Tracer]:  # fmt: skip
    count, overlap, transformed = lengths
    step = count - overlap
    x = snp.moveaxis(as_tracer(spectrum), (time, frequency), (-2, -1))
    inverse = snp.fft.irfft if onesided else snp.fft.ifft
    pieces = inverse(x, transformed)[..., :count]
    real = REAL_OF.get(pieces.value.type.dtype, pieces.value.type.dtype)
    weights = convert(as_tracer(window), real)
    segments, length = pieces.shape[-2], count + (pieces.shape[-2] - 1) * step
    positions = np.arange(segments)[:, None] * step + np.arange(count)[None]
    empty = snp.zeros((*pieces.shape[:-2], length), pieces.dtype)
    signal = empty.at[..., positions].add(pieces * (weights * snp.sum(weights)))
    total = (
        snp.zeros(length, weights.dtype)
        .at[positions]
        .add(snp.broadcast_to(weights**2, (segments, count)))
    )
    if boundary:
        inner = slice(count // 2, length - count // 2)
        signal, total = signal[..., inner], total[inner]
    signal = signal / snp.where(total > SMALLEST_WINDOW_SUM, total, 1)
    if pieces.ndim > 2:
        signal = snp.moveaxis(signal, -1, time - (frequency < time))
    times = snp.arange(signal.shape[0]) / convert(as_tracer(fs), real)
    return times, signal
