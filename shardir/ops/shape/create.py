"""Operations without operands: constants and iota."""

from typing import Any

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, RBG_KEYS
from shardir.ir.operation import Dense, Partitioning, Value, define_op
from shardir.ir.sharding import count_positions
from shardir.ir.types import COMPLEX, FLOATS, NumpyArray, TensorType
from shardir.op_rules.partitioning import LocalOp
from shardir.ops.elementwise.numerics import round_to
from shardir.ops.type_checks import ARITHMETIC, REAL, check_dim, require_result_type


def _constant_type(*, value: object, result: TensorType | None) -> TensorType:
    to = require_result_type(result)
    if to.dtype in RBG_KEYS:
        raise TypeError(f"{to} has no constants; bitcast words, u32[..., 4], to keys")
    if isinstance(value, Dense):
        if value.array.shape != to.shape or value.array.dtype != to.numpy:
            raise TypeError(
                f"its value is {value.array.dtype}{list(value.array.shape)}, stated as {to}"
            )
        return to
    ARITHMETIC.check(to)
    if not isinstance(value, bool | int | float | complex | np.generic):
        raise TypeError(f"takes a number or a Dense array, got {value!r}")
    _check_number(value, to)
    return to


def _check_number(value: Any, to: TensorType) -> None:
    """Check that a splat is a value of the element type, except for the rounding of floats."""
    if isinstance(value, complex | np.complexfloating) and to.dtype not in COMPLEX:
        raise TypeError(f"{value!r} is not a value of {to}; convert it")
    if to.dtype in COMPLEX or to.dtype in FLOATS:
        if isinstance(value, int) and value.bit_length() > 1023:
            raise TypeError(f"an integer of {value.bit_length()} bits is not a value of {to}")
        return
    if value != value or value in (float("inf"), float("-inf")) or value != int(value):
        raise TypeError(f"{value!r} is not a value of {to}; round it or state a float type")
    if to.dtype == "bool":
        low, high = 0, 1
    else:
        info = DTYPE_INFO[to.dtype]
        low, high = info.min_integer, info.max_integer
    if not low <= value <= high:
        raise TypeError(f"{value!r} is not a value of {to}; its values are {low} to {high}")


def _constant_reference(*, value: Any, result: TensorType) -> NumpyArray:
    if isinstance(value, Dense):
        return value.array
    with np.errstate(all="ignore"):
        if result.dtype in FLOATS:
            value = round_to(np.asarray(float(value)), result.numpy)
        return np.full(result.shape, value, result.numpy)


def _constant_lower(b: Builder, local: LocalOp, *, value: Value) -> Value:
    """Create a local splat, or slice the device's shard of an array."""
    if not isinstance(value, Dense):
        return b.constant(value=value, result=local.result)
    global_result = local.op.result
    pieces = [
        count_positions(local.sharding_axes(global_result, d))
        for d in range(global_result.type.rank)
    ]
    shape = [n * count for n, count in zip(local.result.shape, pieces, strict=True)]
    if tuple(shape) != global_result.type.shape:
        ends = zip(shape, global_result.type.shape, strict=True)
        value = Dense(np.pad(value.array, [(0, end - size) for end, size in ends]))
    type = global_result.type.with_shape(shape)
    piece = b.constant(value=value, result=type, name=f"{global_result.name}.unsharded")
    for dim in range(global_result.type.rank):
        if axes := local.sharding_axes(global_result, dim):
            piece = b.all_slice(piece, dim=dim, axes=axes)
    return piece


constant = define_op(
    "constant",
    type=_constant_type,
    reference=_constant_reference,
    partition=Partitioning(_constant_lower),
    vjp=lambda b, g, y, *, value: (),
    arithmetic=None,
)
"""A constant `value`: a number for all elements, or an array of the stated type."""


def _iota_type(*, dim: int, result: TensorType | None) -> TensorType:
    to = require_result_type(result)
    check_dim(to, dim)
    if to.dtype not in (*REAL.dtypes, *COMPLEX):
        raise TypeError(f"counts in integer, floating-point or complex numbers, not in {to}")
    return to


def _iota_reference(*, dim: int, result: TensorType) -> NumpyArray:
    shape = [n if d == dim else 1 for d, n in enumerate(result.shape)]
    counted = round_to(np.arange(result.shape[dim]), result.numpy).reshape(shape)
    return np.broadcast_to(counted, result.shape)


def _iota_lower(b: Builder, local: LocalOp, *, dim: int) -> Value:
    """Count in integers from the start of the shard, so that large floats stay exact."""
    start = local.shard_start(b, local.op.result, dim)
    if start is None:
        return b.iota(dim=dim, result=local.result)
    counted = b.iota(dim=dim, result=local.result.with_dtype("i32"))
    counted = b.add(counted, b.broadcast(start, dims=(), result=counted.type))
    return counted if counted.type == local.result else b.convert(counted, result=local.result)


iota = define_op(
    "iota",
    type=_iota_type,
    reference=_iota_reference,
    partition=Partitioning(_iota_lower),
    vjp=lambda b, g, y, *, dim: (),
)
"""Each element is its own index along `dim`."""
