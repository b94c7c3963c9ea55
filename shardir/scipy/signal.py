"""Convolutions, correlations and spectra of signals."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE: dict[str, tuple[str, ...]] = {
    "shardir.frontend.scipy.signal_convolution": (
        "convolve",
        "convolve2d",
        "correlate",
        "correlate2d",
        "fftconvolve",
    ),
    "shardir.frontend.scipy.spectral_analysis": ("csd", "detrend", "istft", "stft", "welch"),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.scipy.signal_convolution import (
        convolve as convolve,
        convolve2d as convolve2d,
        correlate as correlate,
        correlate2d as correlate2d,
        fftconvolve as fftconvolve,
    )
    from shardir.frontend.scipy.spectral_analysis import (
        csd as csd,
        detrend as detrend,
        istft as istft,
        stft as stft,
        welch as welch,
    )
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
