"""Windows of signals: bartlett, blackman, hamming, hanning and kaiser.

They are computed in f64 where the call stands alone, and are constants of a program that is traced.
"""

from collections.abc import Callable
from operator import index
from typing import Any

import numpy as np

from shardir.errors import ShardirError
from shardir.frontend.config import config
from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.creation import asarray
from shardir.frontend.numpy.pointwise import like, same
from shardir.frontend.operands import SMALL, convert
from shardir.frontend.promotion import canonical
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
    except (TypeError, ValueError):
        raise ArgumentError(point(f"kaiser takes a real number as beta, got {beta!r}")) from None
    return _made(np.kaiser, _kaiser, M, shape)


def _made(known: Callable[..., Any], computed: Callable[..., Any], M: Any, *rest: float) -> Any:
    """The window by NumPy where it is short or a constant, else by a program of ours.

    Raises `ArgumentError` where `M` is no integer.
    """
    if not hasattr(M, "__index__"):
        name = known.__name__
        raise ArgumentError(point(f"{name} of {M!r} numbers; M must be an integer"))
    count = index(M)
    if count * 8 <= SMALL or current() is not None:
        return asarray(known(count, *rest))
    return computed(count, *rest)


def _places(count: int) -> Tracer:
    """Numbers in f64 from -1 to 1, of which each is the negative of one."""
    place: Tracer = emit("iota", dim=0, result=TensorType((count,), "f64"))
    twice = same("sub", same("add", place, place), like(place, count - 1))
    return same("div", twice, like(place, count - 1))


def _cosines(count: int) -> Tracer:
    place = _places(count)
    return same("cos", same("mul", place, like(place, np.pi)))


def _sum(x: Tracer, factor: float, constant: float) -> Tracer:
    return same("add", same("mul", x, like(x, factor)), like(x, constant))


@public(static=("count",))
def _bartlett(count: int) -> Any:
    return _rounded(_sum(same("abs", _places(count)), -1.0, 1.0))


@public(static=("count",))
def _blackman(count: int) -> Any:
    """The cosine of twice the angle is 2 c^2 - 1."""
    cosine = _cosines(count)
    twice = _sum(same("mul", cosine, cosine), 0.16, 0.42 - 0.08)
    return _rounded(same("add", same("mul", cosine, like(cosine, 0.5)), twice))


@public(static=("count",))
def _hamming(count: int) -> Any:
    return _rounded(_sum(_cosines(count), 0.46, 0.54))


@public(static=("count",))
def _hanning(count: int) -> Any:
    return _rounded(_sum(_cosines(count), 0.5, 0.5))


@public(static=("count", "beta"))
def _kaiser(count: int, beta: float) -> Any:
    """The quotient of Bessel functions, both scaled so that none overflows."""
    from shardir.frontend.scipy.bessel import i0e, scaled  # that namespace is made of this one

    place = _places(count)
    inside = same("sub", like(place, 1.0), same("mul", place, place))
    x = same("mul", same("sqrt", inside), like(place, abs(beta)))
    falling = same("exp", same("sub", x, like(x, abs(beta))))
    with config(enable_x64=True):
        made = same("mul", falling, i0e(x))
    return _rounded(same("mul", made, like(made, float(1 / scaled(0, np.array([abs(beta)]))[0]))))


def _rounded(made: Tracer) -> Tracer:
    return convert(made, canonical("f64"))
