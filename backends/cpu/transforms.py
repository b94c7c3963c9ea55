"""Fourier transforms by NumPy, a part of the batch at a time.

They are computed in f64 and c128 and rounded once. All at once that would take four times the
memory of the operand; a part of the batch is rounded before the next one begins.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.kernels import Kernel, kernels
from shardir.ir import Op
from shardir.opset import OPS
from shardir.types import TensorType

Array = npt.NDArray[Any]

CHUNK = 1 << 16
"""How many elements are transformed at a time, if one transform has not more."""


def fft(x: Array, *, kind: str, rank: int, result: TensorType) -> Array:
    """The operation `fft` on an array; see `shardir.ops.fft`."""
    reference = OPS["fft"].reference
    assert reference is not None
    batch = x.shape[: x.ndim - rank]
    if not x.size or x.size <= CHUNK or max(batch, default=1) == 1:
        found: Array = reference(x, kind=kind, rank=rank, result=result)
        return found
    dim = int(np.argmax(batch))
    out = np.empty(result.shape, result.numpy)
    step = max(1, CHUNK * batch[dim] // x.size)
    for first in range(0, batch[dim], step):
        part = (*(slice(None),) * dim, slice(first, first + step))
        shape = out[part].shape
        out[part] = reference(x[part], kind=kind, rank=rank, result=result.with_shape(shape))
    return out


@kernels.rule(OPS["fft"])
def _fft(op: Op) -> Kernel:
    return partial(fft, result=op.results[0].type, **op.attrs)
