"""Fourier transforms with the names of `jax.lax`."""

from collections.abc import Sequence
from enum import Enum
from operator import index

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.operation import Symbol
from shardir.ir.types import REAL_OF


class FftType(Enum):
    """The kind of a transform."""

    FFT = 0
    """Complex input, complex output."""
    IFFT = 1
    """The inverse of `FFT`."""
    RFFT = 2
    """Real input, non-negative frequencies as output."""
    IRFFT = 3
    """The inverse of `RFFT`."""


@public(static=("fft_type", "fft_lengths"))
def fft(x: ArrayLike, fft_type: object, fft_lengths: Sequence[int]) -> Tracer:
    """Transform the last one to three dimensions, which have `fft_lengths` elements.

    `fft_type` is an `FftType` or its name. The lengths are those of the real signal for RFFT and
    IRFFT. Raise `ShapeError` if the shape does not match.
    """
    v = as_tracer(x)
    lengths = tuple(map(index, fft_lengths))
    kind = _parse_fft_type(fft_type).name.lower()
    if not lengths:
        return v
    shape = list(v.shape[v.ndim - len(lengths) :]) if len(lengths) <= v.ndim else []
    expected = list(lengths)
    if kind == "irfft":
        expected[-1] = expected[-1] // 2 + 1
    if shape != expected:
        raise ShapeError(
            with_location(
                f"fft of type {kind.upper()} and lengths {lengths} does not fit shape {v.shape}"
            )
        )
    result = None
    if kind == "irfft" and v.value.type.dtype in REAL_OF:
        kind_of_result = v.value.type.with_shape((*v.shape[:-1], lengths[-1]))
        result = kind_of_result.with_dtype(REAL_OF[kind_of_result.dtype])
    return emit("fft", v, kind=Symbol(kind), rank=len(lengths), result=result, weak=False)


def _parse_fft_type(given: object) -> FftType:
    if isinstance(given, FftType):
        return given
    try:
        return FftType[str(given).rpartition(".")[2].upper()]
    except KeyError:
        names = ", ".join(each.name for each in FftType)
        raise ArgumentError(with_location(f"fft_type {given!r} is none of {names}")) from None
