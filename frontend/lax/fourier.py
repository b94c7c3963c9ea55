"""Fourier transforms close to the IR."""

from enum import Enum
from operator import index
from typing import Any

from shardir.frontend.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer
from shardir.frontend.trace import emit
from shardir.opset import Symbol
from shardir.types import REAL_OF


class FftType(Enum):
    """What is transformed into what."""

    FFT = 0
    """Complex numbers to complex numbers."""
    IFFT = 1
    """The inverse of `FFT`."""
    RFFT = 2
    """Real numbers to half of their spectrum."""
    IRFFT = 3
    """The inverse of `RFFT`."""


@public(static=("fft_type", "fft_lengths"))
def fft(x: Any, fft_type: Any, fft_lengths: Any) -> Any:
    """The transform over the last one to three dimensions, which have `fft_lengths` elements.

    `fft_type` is a `FftType` or its name; lengths are those of the real signal where there is one.
    """
    v = as_tracer(x)
    lengths = tuple(map(index, fft_lengths))
    kind = _kind(fft_type).name.lower()
    if not lengths:
        return v
    shape = list(v.shape[v.ndim - len(lengths) :]) if len(lengths) <= v.ndim else []
    wanted = list(lengths)
    if kind == "irfft":
        wanted[-1] = wanted[-1] // 2 + 1
    if shape != wanted:
        raise ShapeError(
            point(f"fft of type {kind.upper()} and lengths {lengths} does not fit shape {v.shape}")
        )
    result = None
    if kind == "irfft" and v.value.type.dtype in REAL_OF:
        made = v.value.type.with_shape((*v.shape[:-1], lengths[-1]))
        result = made.with_dtype(REAL_OF[made.dtype])
    return emit("fft", v, kind=Symbol(kind), rank=len(lengths), result=result)


def _kind(given: Any) -> FftType:
    if isinstance(given, FftType):
        return given
    try:
        return FftType[str(given).rpartition(".")[2].upper()]
    except KeyError:
        told = ", ".join(each.name for each in FftType)
        raise ArgumentError(point(f"fft_type {given!r} is none of {told}")) from None
