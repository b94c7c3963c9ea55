"""Windows of signals: bartlett, blackman, hamming, hanning and kaiser.

They are computed in f64 where the call stands alone, and are constants of a program that is traced.
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
    """The bartlett window of `M` numbers: a triangle."""
    return _made(np.bartlett, _bartlett, M)


def blackman(M: int) -> Any:
    """The blackman window of `M` numbers: the sum of a constant and two cosines."""
    return _made(np.blackman, _blackman, M)


def hamming(M: int) -> Any:
    """The hamming window of `M` numbers: a cosine above 0.08."""
    return _made(np.hamming, _hamming, M)


def hanning(M: int) -> Any:
    """The hanning window of `M` numbers: a cosine above 0."""
    return _made(np.hanning, _hanning, M)


def kaiser(M: int, beta: float) -> Any:
    """The kaiser window of `M` numbers of the shape `beta`, both known while tracing."""
    try:
        shape = float(beta)
    except ShardirError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            point(f"kaiser takes a real number as beta, got {brief(beta)}")
        ) from None
    return _made(np.kaiser, _shaped, M, shape)


def _made(known: Callable[..., Any], computed: Callable[..., Any], M: Any, *rest: float) -> Any:
    """The window by NumPy where it is short or a constant, else by a program of ours.

    Raises `ArgumentError` where `M` is no integer.
    """
    count = whole(M)
    if count is None:
        name = known.__name__
        raise ArgumentError(point(f"{name} of {brief(M)} numbers; M must be an integer"))
    if count * 8 <= SMALL or current() is not None:
        return asarray(_known(known, count, *rest))
    # One kernel for all lengths: it is told what the length is, and kaiser's shape.
    return computed(count, _told(count - 1), *rest, dtype=canonical("f64"))


@lru_cache(1 << 8)
def _known(known: Callable[..., Any], count: int, *rest: float) -> Any:
    return known(count, *rest)


@lru_cache(1 << 10)
def _told(number: float) -> Array:
    """A number in f64, whatever the settings are, as an argument of a program."""
    return uncommitted(Storage.of(np.asarray(float(number))), Abstract(TensorType((), "f64")))


def _all(number: Any, x: Tracer) -> Tracer:
    """A number that a program is told, in the places of all elements of `x`."""
    return broadcast(as_tracer(number), x.shape)


def _places(count: int, last: Any) -> Tracer:
    """Numbers in f64 from -1 to 1, of which each is the negative of one."""
    place: Tracer = emit("iota", dim=0, result=TensorType((count,), "f64"))
    wide = _all(last, place)
    return same("div", same("sub", same("add", place, place), wide), wide)


def _cosines(count: int, last: Any) -> Tracer:
    place = _places(count, last)
    return same("cos", same("mul", place, like(place, np.pi)))


def _sum(x: Tracer, factor: float, constant: float) -> Tracer:
    return same("add", same("mul", x, like(x, factor)), like(x, constant))


@public(static=("count", "dtype"))
def _bartlett(count: int, last: Any, dtype: str) -> Any:
    return convert(_sum(same("abs", _places(count, last)), -1.0, 1.0), dtype)


@public(static=("count", "dtype"))
def _blackman(count: int, last: Any, dtype: str) -> Any:
    """The cosine of twice the angle is 2 c^2 - 1."""
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
    from shardir.frontend.scipy.bessel import scaled  # that namespace is made of this one

    return _told(1 / scaled(0, np.array([beta]))[0])


@public(static=("count", "dtype"))
def _kaiser(count: int, last: Any, beta: Any, scale: Any, dtype: str) -> Any:
    """The quotient of Bessel functions, both scaled so that none overflows."""
    from shardir.frontend.scipy.bessel import i0e

    place = _places(count, last)
    shape = _all(beta, place)
    inside = same("sub", like(place, 1.0), same("mul", place, place))
    x = same("mul", same("sqrt", inside), shape)
    falling = same("exp", same("sub", x, shape))
    with config(enable_x64=True):
        made = same("mul", falling, i0e(x))
    return convert(same("mul", made, _all(scale, made)), dtype)
