"""Fourier transforms by NumPy, one part of the batch at a time; threads share the parts.

Transforms are computed in f64 and c128 and rounded once. All of a batch would take four times the
memory of the operand; so each part is rounded before the next one begins.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from shardir.backends.numpy.kernel_table import Kernel, kernels
from shardir.backends.numpy.threads import run_on_threads, split_range
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import NumpyArray, TensorType
from shardir.ops.linalg.fft import TRANSFORMS

Array = NumpyArray

MAX_CHUNK_ELEMENTS = 1 << 16
"""Elements that are transformed at a time, unless one transform has more."""
MIN_CHUNK_ELEMENTS, MIN_CHUNK_COUNT = 1 << 13, 8
"""A small batch has chunks of `MIN_CHUNK_ELEMENTS`, a larger one `MIN_CHUNK_COUNT` chunks or more.
The chunks do not depend on the number of threads, and so results do not either."""
MIN_PARALLEL_ELEMENTS = 1 << 17
"""Elements from which on threads share the parts."""


def fft(x: Array, *, kind: str, rank: int, result: TensorType) -> Array:
    """Return the result of the operation `fft` on an array; see `shardir.ops.linalg.fft`."""
    batch = x.shape[: x.ndim - rank]
    if not x.size or not result.size:
        return np.zeros(result.shape, result.numpy)
    out = np.empty(result.shape, result.numpy)
    if max(batch, default=1) > 1:
        _transform_in_parts(partial(_transform_all_dims, kind, rank), x, out, int(np.argmax(batch)))
        return out
    # Without a batch, transform one dimension at a time, in parts along another one.
    plain = "ifft" if kind[0] == "i" else "fft"
    dims = range(x.ndim - rank, x.ndim)
    steps = [(kind, dims[-1]), *((plain, d) for d in reversed(dims[:-1]))]
    if kind == "irfft":
        steps.reverse()
    for number, (name, dim) in enumerate(steps):
        shape = (*x.shape[:dim], result.shape[dim], *x.shape[dim + 1 :])
        made = out if number == rank - 1 else np.empty(shape, np.complex128)
        others = [0 if d == dim else n for d, n in enumerate(x.shape)]
        if max(others):
            _transform_in_parts(partial(_transform_dim, name, dim), x, made, int(np.argmax(others)))
        else:
            _transform_dim(name, dim, x, made)
        x = made
    return out


def _to_double(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64, copy=False)


def _transform_in_parts(
    transform: Callable[[Array, Array], None], x: Array, out: Array, dim: int
) -> None:
    """Transform slices of `dim`, on several threads if the array is large."""
    most = max(
        min(MAX_CHUNK_ELEMENTS, MIN_CHUNK_ELEMENTS),
        min(MAX_CHUNK_ELEMENTS, x.size // MIN_CHUNK_COUNT),
    )

    def run(piece: slice) -> None:
        part = (*(slice(None),) * dim, piece)
        transform(x[part], out[part])

    pieces = list(split_range(x.shape[dim], most * x.shape[dim] // x.size))
    if x.size >= MIN_PARALLEL_ELEMENTS:
        run_on_threads(run, pieces)
        return
    with np.errstate(all="ignore"):
        for piece in pieces:
            run(piece)


def _transform_all_dims(kind: str, rank: int, x: Array, out: Array) -> None:
    """Transform the last `rank` dimensions as the reference does."""
    if rank == 1:
        _transform_dim(kind, x.ndim - 1, x, out)
        return
    sizes = (out if kind == "irfft" else x).shape[-rank:]
    out[...] = TRANSFORMS[kind](_to_double(x), sizes, tuple(range(x.ndim - rank, x.ndim)))


def _transform_dim(kind: str, dim: int, x: Array, out: Array) -> None:
    """Transform one dimension."""
    length = out.shape[dim] if kind == "irfft" else x.shape[dim]
    if kind != "fft" or x.imag.any():
        out[...] = _TRANSFORMS_1D[kind](_to_double(x), length, dim)
        return
    # The input is real: the second half of the spectrum mirrors the first.
    half = np.moveaxis(np.fft.rfft(_to_double(x.real), length, dim), dim, -1)
    target, known = np.moveaxis(out, dim, -1), half.shape[-1]
    target[..., :known] = half
    mirrored = half[..., length - known : 0 : -1]
    np.conjugate(mirrored, out=target[..., known:], casting="same_kind")


_TRANSFORMS_1D: dict[str, Callable[..., Array]] = {
    "fft": np.fft.fft,
    "ifft": np.fft.ifft,
    "rfft": np.fft.rfft,
    "irfft": np.fft.irfft,
}


@kernels.rule(OPS["fft"])
def _fft(op: Op) -> Kernel:
    return partial(fft, result=op.results[0].type, **op.attrs)
