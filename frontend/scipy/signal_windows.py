"""Windows of spectral analysis, by the names of `scipy.signal.get_window`.

Windows are computed in f64 by NumPy. All are periodic: a window of n elements consists of the first
n of the n + 1 elements of the symmetric window. The formulas are those of F. J. Harris, "On the use
of windows for harmonic analysis with the discrete Fourier transform" (1978), and A. H. Nuttall,
"Some windows with very good sidelobe behavior" (1981), with the coefficients that SciPy documents.
"""

from collections.abc import Callable, Sequence
from inspect import signature

import numpy as np

from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import NumpyArray

Window = Callable[..., NumpyArray]


def _cosine_sum(size: int, coefficients: Sequence[float]) -> NumpyArray:
    angles = np.linspace(-np.pi, np.pi, size)
    terms = [factor * np.cos(k * angles) for k, factor in enumerate(coefficients)]
    return np.asarray(np.sum(terms, axis=0))


def _cosine_sum_window(*coefficients: float) -> Window:
    return lambda size: _cosine_sum(size, coefficients)


def _offsets(size: int) -> NumpyArray:
    """Return the distances of the elements from the center of the window."""
    return np.arange(size) - (size - 1) / 2


def _triangle(size: int) -> NumpyArray:
    half = (size + 1) / 2 if size % 2 else size / 2
    return 1 - np.abs(_offsets(size)) / half


def _parzen(size: int) -> NumpyArray:
    distance = np.abs(_offsets(size)) / (size / 2)
    inner = 1 - 6 * distance**2 * (1 - distance)
    return np.where(np.abs(_offsets(size)) <= (size - 1) / 4, inner, 2 * (1 - distance) ** 3)


def _bohman(size: int) -> NumpyArray:
    distance = np.abs(np.linspace(-1, 1, size))
    window = (1 - distance) * np.cos(np.pi * distance) + np.sin(np.pi * distance) / np.pi
    window[[0, -1]] = 0
    return window


def _bartlett_hann(size: int) -> NumpyArray:
    distance = np.abs(np.arange(size) / (size - 1) - 0.5)
    return 0.62 - 0.48 * distance + 0.38 * np.cos(2 * np.pi * distance)


def _tukey(size: int, alpha: float = 0.5) -> NumpyArray:
    if alpha <= 0:
        return np.ones(size)
    edge = min(alpha, 1.0) * (size - 1) / 2
    distance = np.minimum(np.arange(size), np.arange(size)[::-1])
    taper = 0.5 * (1 - np.cos(np.pi * distance / edge))
    return np.where(distance < edge, taper, 1.0)


def _exponential(size: int, center: float | None = None, tau: float = 1.0) -> NumpyArray:
    if center is not None:
        raise ValueError("the center of a periodic window is None")
    return np.exp(-np.abs(_offsets(size)) / tau)


def _gaussian(size: int, std: float) -> NumpyArray:
    return np.exp(-0.5 * (_offsets(size) / std) ** 2)


def _general_gaussian(size: int, p: float, sig: float) -> NumpyArray:
    return np.exp(-0.5 * np.abs(_offsets(size) / sig) ** (2 * p))


def _general_hamming(size: int, alpha: float) -> NumpyArray:
    return _cosine_sum(size, (alpha, 1 - alpha))


WINDOWS: dict[str, Window] = {
    "barthann": _bartlett_hann,
    "bartlett": np.bartlett,
    "blackman": _cosine_sum_window(0.42, 0.5, 0.08),
    "blackmanharris": _cosine_sum_window(0.35875, 0.48829, 0.14128, 0.01168),
    "bohman": _bohman,
    "boxcar": np.ones,
    "cosine": lambda size: np.sin(np.pi / size * (np.arange(size) + 0.5)),
    "exponential": _exponential,
    "flattop": _cosine_sum_window(
        0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368
    ),
    "gaussian": _gaussian,
    "general_cosine": _cosine_sum,
    "general_gaussian": _general_gaussian,
    "general_hamming": _general_hamming,
    "hamming": _cosine_sum_window(0.54, 0.46),
    "hann": _cosine_sum_window(0.5, 0.5),
    "kaiser": np.kaiser,
    "lanczos": lambda size: np.sinc(2 * np.arange(size) / (size - 1) - 1),
    "nuttall": _cosine_sum_window(0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "parzen": _parzen,
    "triang": _triangle,
    "tukey": _tukey,
}  # fmt: skip
"""The symmetric windows; parameters after the size are those of the tuple that names the window."""


def make_window(name: str, window: object, size: int) -> NumpyArray:
    """Return the periodic window of `size` elements that a name, or a tuple of a name and
    parameters, describes.

    `name` is the function in errors. Raise `ArgumentError` for an unknown window, and for
    parameters that do not fit it.
    """
    kind, *parameters = window if isinstance(window, tuple) and window else (window,)
    if not isinstance(kind, str) or kind not in WINDOWS:
        raise ArgumentError(
            with_location(
                f"{name} has no window {brief(window)}; it has {', '.join(map(repr, WINDOWS))}, "
                "and takes arrays of the elements of any other window"
            )
        )
    make = WINDOWS[kind]
    try:
        if size == 1:
            return np.ones(1)
        return np.asarray(make(size + 1, *parameters)[:-1], np.float64)
    except (TypeError, ValueError):
        needed = [
            each for each in signature(make).parameters.values() if each.default is each.empty
        ][1:]
        names = ", ".join((repr(kind), *(each.name for each in needed)))
        raise ArgumentError(
            with_location(
                f"the window {brief(window)} of {name} does not have the parameters of "
                f"{kind!r}; write ({names}) with real numbers"
                if needed
                else f"the window {brief(window)} of {name} has wrong parameters; write {kind!r}"
            )
        ) from None
