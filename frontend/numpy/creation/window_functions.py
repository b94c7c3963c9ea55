"""Window functions: bartlett, blackman, hamming, hanning and kaiser.

They are computed in f64; windows of a trace that are not long are constants. Results are vectors of
the default floating type.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from shardir.backends.storage import Storage
from shardir.errors import ShardirError
from shardir.frontend.argument_checks import as_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array, make_uncommitted_array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.config import config
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    constant_like,
    emit_elementwise,
)
from shardir.frontend.quoting import brief
from shardir.frontend.scipy.special_functions.bessel import i0e, scaled_bessel_reference
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import MAX_CONSTANT_BYTES, as_tracer, broadcast, convert
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import NumpyArray, TensorType

MAX_TRACED_WINDOW_BYTES = 1 << 20
"""Size of the longest window that is a constant of a traced program; programs compute others."""


@with_argument_errors
def bartlett(M: int) -> Tracer:
    """Return the Bartlett (triangular) window of `M` elements."""
    return _make_window(np.bartlett, _bartlett, M)


@with_argument_errors
def blackman(M: int) -> Tracer:
    """Return the Blackman window of `M` elements: a constant and two cosines."""
    return _make_window(np.blackman, _blackman, M)


@with_argument_errors
def hamming(M: int) -> Tracer:
    """Return the Hamming window of `M` elements: 0.54 - 0.46 cos."""
    return _make_window(np.hamming, _hamming, M)


@with_argument_errors
def hanning(M: int) -> Tracer:
    """Return the Hann window of `M` elements: 0.5 - 0.5 cos."""
    return _make_window(np.hanning, _hanning, M)


@with_argument_errors
def kaiser(M: int, beta: float) -> Tracer:
    """Return the Kaiser window of `M` elements with the shape parameter `beta`; both are
    concrete.
    """
    try:
        shape = float(beta)
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            with_location(f"kaiser takes a real number as beta, got {brief(beta)}")
        ) from None
    return _make_window(np.kaiser, _kaiser_of_shape, M, shape)


def _make_window(
    numpy_function: Callable[..., NumpyArray],
    computed: Callable[..., Tracer],
    M: object,
    *rest: float,
) -> Tracer:
    """Compute the window by NumPy if it is short or a constant, else by a compiled program.

    Raise `ArgumentError` if `M` is not an integer.
    """
    count = as_integer(M)
    if count is None:
        name = numpy_function.__name__
        raise ArgumentError(with_location(f"M of {name} is {brief(M)}; it must be an integer"))
    longest = MAX_CONSTANT_BYTES if current_trace() is None else MAX_TRACED_WINDOW_BYTES
    if count * 8 <= longest:
        return asarray(_cached_window(numpy_function, count, *rest))
    # One kernel serves all lengths: the length and the shape parameter of kaiser are arguments.
    return computed(count, _as_f64_argument(count - 1), *rest, dtype=canonical_dtype("f64"))


@lru_cache(1 << 8)
def _cached_window(
    numpy_function: Callable[..., NumpyArray], count: int, *rest: float
) -> NumpyArray:
    return numpy_function(count, *rest)


@lru_cache(1 << 10)
def _as_f64_argument(number: float) -> Array:
    """Return a number in f64, independent of the settings, as an argument of a program."""
    return make_uncommitted_array(
        Storage.of(np.asarray(float(number))), AbstractValue(TensorType((), "f64"))
    )


def _broadcast_argument(number: ArrayLike, x: Tracer) -> Tracer:
    """Broadcast an argument of a program to the shape of `x`."""
    return broadcast(as_tracer(number), x.shape)


def _symmetric_positions(count: int, last: ArrayLike) -> Tracer:
    """Return symmetric positions in f64 from -1 to 1."""
    position: Tracer = emit("iota", dim=0, result=TensorType((count,), "f64"))
    wide = _broadcast_argument(last, position)
    return emit_elementwise(
        "div", emit_elementwise("sub", emit_elementwise("add", position, position), wide), wide
    )


def _cosines(count: int, last: ArrayLike) -> Tracer:
    position = _symmetric_positions(count, last)
    return emit_elementwise(
        "cos", emit_elementwise("mul", position, constant_like(position, np.pi))
    )


def _scale_and_shift(x: Tracer, factor: float, constant: float) -> Tracer:
    return emit_elementwise(
        "add", emit_elementwise("mul", x, constant_like(x, factor)), constant_like(x, constant)
    )


@public(static=("count", "dtype"))
def _bartlett(count: int, last: Tracer, dtype: str) -> Tracer:
    return convert(
        _scale_and_shift(emit_elementwise("abs", _symmetric_positions(count, last)), -1.0, 1.0),
        dtype,
    )


@public(static=("count", "dtype"))
def _blackman(count: int, last: Tracer, dtype: str) -> Tracer:
    """Emit the Blackman window with cos(2 a) = 2 cos(a)^2 - 1."""
    cosine = _cosines(count, last)
    twice = _scale_and_shift(emit_elementwise("mul", cosine, cosine), 0.16, 0.42 - 0.08)
    return convert(
        emit_elementwise("add", emit_elementwise("mul", cosine, constant_like(cosine, 0.5)), twice),
        dtype,
    )


@public(static=("count", "dtype"))
def _hamming(count: int, last: ArrayLike, dtype: str) -> Tracer:
    return convert(_scale_and_shift(_cosines(count, last), 0.46, 0.54), dtype)


@public(static=("count", "dtype"))
def _hanning(count: int, last: Tracer, dtype: str) -> Tracer:
    return convert(_scale_and_shift(_cosines(count, last), 0.5, 0.5), dtype)


def _kaiser_of_shape(count: int, last: Array, beta: float, dtype: str) -> Tracer:
    return _kaiser(
        count, last, _as_f64_argument(abs(beta)), _inverse_bessel(abs(beta)), dtype=dtype
    )


@lru_cache(1 << 8)
def _inverse_bessel(beta: float) -> Array:
    return _as_f64_argument(1 / scaled_bessel_reference(0, np.array([beta]))[0])


@public(static=("count", "dtype"))
def _kaiser(count: int, last: ArrayLike, beta: ArrayLike, scale: ArrayLike, dtype: str) -> Tracer:
    """Emit the quotient of Bessel functions, both scaled so that neither overflows."""
    position = _symmetric_positions(count, last)
    shape = _broadcast_argument(beta, position)
    inside = emit_elementwise(
        "sub", constant_like(position, 1.0), emit_elementwise("mul", position, position)
    )
    x = emit_elementwise("mul", emit_elementwise("sqrt", inside), shape)
    falling = emit_elementwise("exp", emit_elementwise("sub", x, shape))
    with config(enable_x64=True):
        window = emit_elementwise("mul", falling, i0e(x))
    return convert(emit_elementwise("mul", window, _broadcast_argument(scale, window)), dtype)
