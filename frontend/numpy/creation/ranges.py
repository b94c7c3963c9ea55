"""`arange`: vectors of evenly spaced numbers with a given step."""

import sys
from math import ceil
from typing import Any

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation.placement import choose_placement, put_on_device
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import convert, operand_dtype, splat
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, TensorType


@composed_function()
def arange(
    start: ArrayLike,
    stop: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return start, start + step, ... below stop; with one argument, 0, 1, ... below that.

    The result is a vector. `start`, `stop` and `step` must be concrete while tracing; the element
    type is their promoted type unless `dtype` is given. Raise `ArgumentError` for an argument that
    is not a number.
    """
    bounds = [start, stop, step]
    for bound in bounds:
        if isinstance(bound, Tracer):
            bound.__index__()  # raises an error that states why the bounds must be concrete
    bounds = [int(bound) if isinstance(bound, bool) else bound for bound in bounds]
    numbers: list[Any] = [
        None if b is None else b if is_number(b) else _concrete_scalar(b) for b in bounds
    ]
    if numbers[1] is None:
        numbers[:2] = [0, numbers[0]]
    if numbers[1] is None:
        raise ArgumentError(with_location("arange needs a number at which it stops, got None"))
    if numbers[2] is None:
        numbers[2] = 1
    if numbers[2] == 0:
        raise ArgumentError(
            with_location(
                "the step of arange is 0; pass another step, or use full for equal elements"
            )
        )
    if dtype is None:
        given = [b for b in bounds if b is not None]
        dtype = promotion.user_dtype(promotion.result_type(*map(operand_dtype, given))[0])
    first, last, gap = numbers
    return put_on_device(choose_placement(device, out_sharding), _arange(first, last, gap, dtype))


def _concrete_scalar(bound: ArrayLike) -> complex:
    try:
        number = np.asarray(bound).item()
    except ValueError:
        number = None
    if not is_number(number):
        raise ArgumentError(with_location(f"arange takes numbers, got {bound!r}"))
    return number


def arange_length(
    start: int | float | complex, stop: int | float | complex, step: int | float | complex
) -> int:
    """Return the number of elements of NumPy's arange without creating them."""
    try:
        if type(start) is int and type(stop) is int and type(step) is int:
            return len(range(start, stop, step))
        if isinstance(start, complex) or isinstance(stop, complex) or isinstance(step, complex):
            return len(np.arange(start, stop, step))  # type: ignore[arg-type]  # complex numbers
        count: int = max(0, ceil((stop - start) / step))
    except (ValueError, OverflowError):  # The length is infinite, not a number, or too large.
        count = sys.maxsize
    if count >= sys.maxsize:
        raise ArgumentError(
            with_location(f"arange from {start} to {stop} by {step} has no finite length")
        )
    return count


@public(static=("start", "stop", "step", "dtype"))
def _arange(start: complex, stop: complex, step: complex, dtype: DTypeLike) -> Tracer:
    """Emit an iota in a type that can represent all elements, then convert it."""
    name = dtype_of(dtype)
    count = arange_length(start, stop, step)
    is_integer = isinstance(start, int) and isinstance(step, int)
    if name in INTEGERS or name in ("f64", "c128"):
        iota_dtype = (
            name if is_integer or name not in INTEGERS else promotion.canonical_dtype("f64")
        )
    else:
        iota_dtype = "f32"
    numbers: Tracer = emit("iota", dim=0, result=TensorType((count,), iota_dtype))
    if step != 1:
        numbers = emit("mul", numbers, splat(step, numbers.value.type))
    if start != 0:
        numbers = emit("add", numbers, splat(start, numbers.value.type))
    return convert(numbers, name)
