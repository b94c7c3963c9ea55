"""Bitcasts of traced values, also those that change the width of elements of 4 or 2 bits."""

from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType
from shardir.ops.elementwise.packed_bitcast import (
    bitcast_shape,
    emit_packed_bitcast,
    is_packed_bitcast,
)


def emit_bitcast(x: Tracer, dtype: str) -> Tracer:
    """Return the bits of `x` as elements of another type.

    A narrower type adds a last dimension of parts, a wider one removes the last dimension. Raises
    `OperationTypeError` if that dimension has other parts than an element.
    """
    have = x.value.type
    if have.dtype == dtype:
        return x
    shape = bitcast_shape(have.shape, have.dtype, dtype)
    if shape is None:  # The operation refuses it.
        shape = have.shape[:-1]
    elif is_packed_bitcast(have.dtype, dtype):
        return emit_packed_bitcast(emit, x, have, TensorType(shape, dtype))
    return emit("bitcast", x, result=TensorType(shape, dtype), weak=False)
