"""Window functions: bartlett, blackman, hamming, hanning and kaiser.

Outside of a trace they are computed in f64; in a trace they are constants. Results are vectors of
the default floating type.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from shardir.backends.storage import Storage
from shardir.errors import ShardirError
from shardir.frontend.amounts import whole
from shardir.frontend.array import Array, uncommitted
from shardir.frontend.config import config
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.numpy.pointwise import like, same
from shardir.frontend.operands import SMALL, as_tracer, broadcast, convert
from shardir.frontend.promotion import Abstract, canonical
from shardir.frontend.quoting import brief
from shardir.frontend.trace import current, emit
from shardir.frontend.tracer import Tracer
from shardir.types import TensorType


def bartlett(M: int) -> Any:
    """Return the Bartlett (triangular) window of `M` elements."""
    return _made(np.bartlett, _bartlett, M)


def blackman(M: int) -> Any:
    """Return the Blackman window of `M` elements: a constant and two cosines."""
    return _made(np.blackman, _blackman, M)


def hamming(M: int) -> Any:
    """Return the Hamming window of `M` elements: 0.54 - 0.46 cos."""
    return _made(np.hamming, _hamming, M)


def hanning(M: int) -> Any:
    """Return the Hann window of `M` elements: 0.5 - 0.5 cos."""
    return _made(np.hanning, _hanning, M)


def kaiser(M: int, beta: float) -> Any:
    """Return the Kaiser window of `M` elements with the shape parameter `beta`; both are
    concrete.
    """
    try:
        shape = float(beta)
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            point(f"kaiser takes a real number as beta, got {brief(beta)}")
        ) from None
    return _made(np.kaiser, _shaped, M, shape)


def _made(
    numpy_function: Callable[..., Any], computed: Callable[..., Any], M: Any, *rest: float
) -> Any:
    """Compute the window by NumPy if it is short or a constant, else by a compiled program.

    Raise `ArgumentError` if `M` is not an integer.
    """
    count = whole(M)
    if count is None:
        name = numpy_function.__name__
        raise ArgumentError(point(f"{name} of {brief(M)} numbers; M must be an integer"))
    if count * 8 <= SMALL or current() is not None:
        return asarray(_known(numpy_function, count, *rest))
    # One kernel serves all lengths: the length and the shape parameter of kaiser are arguments.
    return computed(count, _told(count - 1), *rest, dtype=canonical("f64"))


@lru_cache(1 << 8)
def _known(numpy_function: Callable[..., Any], count: int, *rest: float) -> Any:
    return numpy_function(count, *rest)


@lru_cache(1 << 10)
def _told(number: float) -> Array:
    """Return a number in f64, independent of the settings, as an argument of a program."""
    return uncommitted(Storage.of(np.asarray(float(number))), Abstract(TensorType((), "f64")))


def _all(number: Any, x: Tracer) -> Tracer:
    """Broadcast an argument of a program to the shape of `x`."""
    return broadcast(as_tracer(number), x.shape)


def _places(count: int, last: Any) -> Tracer:
    """Return symmetric positions in f64 from -1 to 1."""
    position: Tracer = emit("iota", dim=0, result=TensorType((count,), "f64"))
    wide = _all(last, position)
    return same("div", same("sub", same("add", position, position), wide), wide)


def _cosines(count: int, last: Any) -> Tracer:
    position = _places(count, last)
    return same("cos", same("mul", position, like(position, np.pi)))


def _sum(x: Tracer, factor: float, constant: float) -> Tracer:
    return same("add", same("mul", x, like(x, factor)), like(x, constant))


@public(static=("count", "dtype"))
def _bartlett(count: int, last: Any, dtype: str) -> Any:
    return convert(_sum(same("abs", _places(count, last)), -1.0, 1.0), dtype)


@public(static=("count", "dtype"))
def _blackman(count: int, last: Any, dtype: str) -> Any:
    """Emit the Blackman window with cos(2 a) = 2 cos(a)^2 - 1."""
    cosine = _cosines(count, last)
    twice = _sum(same("mul", cosine, cosine), 0.16, 0.42 - 0.08)
    return convert(same("add", same("mul", cosine, like(cosine, 0.5)), twice), dtype)


@public(static=("count", "dtype"))
def _hamming(count: int, last: Any, dtype: str) -> Any:
    return convert(_sum(_cosines(count, last), 0.46, 0.54), dtype)


@public(static=("count", "dtype"))
def _hanning(count: int, last: Any, dtype: str) -> Any:
    return convert(_sum(_cosines(count, last), 0.5, 0.5), dtype)


def _shaped(count: int, last: Array, beta: float, dtype: str) -> Any:
    return _kaiser(count, last, _told(abs(beta)), _scale(abs(beta)), dtype=dtype)


@lru_cache(1 << 8)
def _scale(beta: float) -> Array:
    # Imported here, because that namespace imports this one.
    from shardir.frontend.scipy.bessel import scaled

    return _told(1 / scaled(0, np.array([beta]))[0])


@public(static=("count", "dtype"))
def _kaiser(count: int, last: Any, beta: Any, scale: Any, dtype: str) -> Any:
    """Emit the quotient of Bessel functions, both scaled so that neither overflows."""
    from shardir.frontend.scipy.bessel import i0e

    position = _places(count, last)
    shape = _all(beta, position)
    inside = same("sub", like(position, 1.0), same("mul", position, position))
    x = same("mul", same("sqrt", inside), shape)
    falling = same("exp", same("sub", x, shape))
    with config(enable_x64=True):
        window = same("mul", falling, i0e(x))
    return convert(same("mul", window, _all(scale, window)), dtype)
