"""Conversion of operands to tracers of one element type and one shape.

A Python number stays a number until the element type of the other operands is known. It then
becomes a constant of that type, so that `x + 1` needs neither a conversion nor a broadcast.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from shardir import ops
from shardir.caller_warnings import warn_caller
from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.arrays.jax_keys import jax_key_dtype, jax_key_storage
from shardir.frontend.arrays.numpy_conversion import (
    PYTHON_NUMBER_TYPES,
    abstract_of,
    is_number,
    to_numpy,
)
from shardir.frontend.errors import NotAnArrayError, NumberRangeError
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.frontend.tracing.trace import capture_array, emit, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import COMPLEX, DTYPE_INFO, KEY_WORDS, KEYS, SIGNED
from shardir.ir.operation import Dense
from shardir.ir.types import FLOATS, INTEGERS, NUMPY_DTYPES, TensorType, dtype_name

MAX_CONSTANT_BYTES = 256
"""NumPy arrays of at most this many bytes become constants of the program; larger ones become
parameters.
"""


def operand_dtype(x: object) -> tuple[str, bool]:
    """Return the element type of an operand and whether it is weak.

    Raises `NotAnArrayError` for an object that is not an array.
    """
    if isinstance(x, Tracer):
        return x.value.type.dtype, x.weak_type
    known = PYTHON_NUMBER_TYPES.get(type(x))
    if known is not None:
        return canonical_dtype(known[0]), known[1]
    abstract = abstract_of(x)
    return abstract.type.dtype, abstract.weak


def is_raw_buffer(x: Any) -> TypeGuard[memoryview]:
    """Return whether `x` supports the buffer protocol or `__array_interface__` but no array
    protocol.
    """
    if isinstance(x, (Tracer, np.ndarray, np.generic, list, tuple)) or is_number(x):
        return False
    if hasattr(x, "__array__") or hasattr(x, "__jax_array__"):
        return False
    if hasattr(x, "__array_interface__"):
        return True
    try:
        memoryview(x).release()
    except TypeError:
        return False
    return True


def as_tracer(x: Any) -> Tracer:
    """Return a tracer of the current trace for an object that can be converted to an array.

    A Python number becomes a weak constant. An `Array`, or a NumPy array of more than
    `MAX_CONSTANT_BYTES`, becomes a hidden parameter of the program, so that its sharding takes part
    in propagation. A nested list is stacked. Raises `NotAnArrayError` for any other object.
    """
    if isinstance(x, Tracer):
        trace = require_trace("a traced value is used")
        if x._trace is not trace:
            x.check(trace)
        return x
    if type(x) in PYTHON_NUMBER_TYPES:
        abstract = abstract_of(x)
        return splat(x, abstract.type, weak=abstract.weak)
    if isinstance(x, (list, tuple)):
        return _stack_items(x)
    if isinstance(x, Array):
        return capture_array(x)
    if hasattr(x, "__jax_array__"):
        return as_tracer(x.__jax_array__())
    if (keys := jax_key_storage(x)) is not None:
        return capture_array(from_numpy(keys, dtype=jax_key_dtype(x)))
    array = to_numpy(x)
    if (
        array.nbytes <= MAX_CONSTANT_BYTES
        and not require_trace("an array is used").program.is_temporary
    ):
        return constant(array)
    return capture_array(from_numpy(array))


def unequal_shapes_error(shapes: Iterable[tuple[int, ...]]) -> NotAnArrayError:
    """Return the error for a list of arrays of these shapes, which differ."""
    listed = " and ".join(map(str, shapes))
    return NotAnArrayError(with_location(f"a list of arrays of shapes {listed} is not an array"))


def _stack_items(items: Sequence[object]) -> Tracer:
    """Return a nested list as an array with one more dimension than its items."""
    if _is_concrete(items):
        try:
            array = np.asarray(items)
        except ValueError as error:
            raise NotAnArrayError(
                with_location(f"a nested list is not an array: {error}")
            ) from None
        if array.dtype.kind in "biufc":
            # NumPy gives Python numbers 64 bits; without enable_x64 programs use 32 bits.
            return as_tracer(array)
    rows = promote(*(item if is_number(item) else as_tracer(item) for item in items))
    kind = rows[0].value.type
    shapes = list(dict.fromkeys(row.shape for row in rows))
    if len(shapes) > 1:
        raise unequal_shapes_error(shapes)
    parts = [reshape(row, (1, *kind.shape)) for row in rows]
    stacked: Tracer = emit(ops.concatenate, *parts, dim=0)
    return stacked


def _is_concrete(items: object) -> bool:
    if isinstance(items, (list, tuple)):
        return all(map(_is_concrete, items))
    return isinstance(items, (bool, int, float, complex, np.generic))


def constant(array: npt.ArrayLike, weak: bool = False) -> Tracer:
    """Return a constant of the program with the elements of `array`, of a canonical element
    type."""
    array = np.asarray(array)
    type = TensorType(array.shape, dtype_name(array.dtype))
    if array.ndim == 0:
        return splat(array.item(), type, weak)
    result: Tracer = emit(ops.constant, value=Dense(array), result=type, weak=weak)
    return result


def splat(number: complex, type: TensorType, weak: bool = False) -> Tracer:
    """Return a constant of `type` with every element equal to `number`, converted as Python
    does. All words of a key are the number."""
    if type.dtype in KEYS:
        words = splat(number, TensorType((*type.shape, KEY_WORDS[type.dtype]), "u32"))
        keys: Tracer = emit("bitcast", words, result=type)
        return keys
    result: Tracer = emit(
        ops.constant, value=_convert_number(number, type.dtype), result=type, weak=weak
    )
    return result


def check_integer_range(number: object, dtype: str) -> None:
    """Raise `NumberRangeError` if `number` is a Python integer that the integer type `dtype` cannot
    represent.
    """
    if type(number) is not int or dtype not in INTEGERS:
        return
    info = DTYPE_INFO[dtype]
    if not info.min_integer <= number <= info.max_integer:
        raise NumberRangeError(
            with_location(
                f"the number {number} does not fit into {dtype}, which has the range "
                f"{info.min_integer} to {info.max_integer}; convert it with astype to wrap it "
                "around"
            )
        )


def _is_real(dtype: str) -> bool:
    return dtype in INTEGERS or dtype in FLOATS


def check_not_complex(number: object, dtype: str) -> None:
    """Raise `OperationTypeError` if `number` is a complex Python number and the type `dtype` is
    real, as `float` does."""
    if type(number) is complex and _is_real(dtype):
        raise OperationTypeError(
            with_location(f"{dtype} cannot represent the complex number {number}; pass its .real")
        )


def _convert_number(number: complex, dtype: str) -> complex | bool:
    """Return the number as an element of `dtype`.

    An integer that fits the default integer type wraps around in a narrower one. An integer that
    fits neither raises `NumberRangeError`. A complex Python number raises `OperationTypeError` if
    `dtype` is real.
    """
    check_not_complex(number, dtype)
    if dtype in INTEGERS:
        return _wrap_integer(int(number.real), dtype)
    if dtype == "bool":
        return bool(number)
    try:
        return float(number.real) if dtype in FLOATS else complex(number)
    except OverflowError:
        raise NumberRangeError(
            with_location(f"an integer of this size does not fit into {dtype}")
        ) from None


def _wrap_integer(whole: int, dtype: str) -> int:
    bits, is_signed = DTYPE_INFO[dtype].bits, dtype in SIGNED
    usual = DTYPE_INFO[canonical_dtype("i64")].bits
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    if lowest <= whole <= highest:
        return whole
    if not -(1 << usual - 1) <= whole < 1 << usual - 1:
        hint = "" if usual == 64 else "; shardir.enable_x64() allows 64-bit integers"
        user = NUMPY_DTYPES[dtype]
        raise NumberRangeError(with_location(f"the number {whole} does not fit into {user}{hint}"))
    whole &= (1 << bits) - 1
    return whole - (1 << bits) if is_signed and whole >> (bits - 1) else whole


def convert(x: Tracer, dtype: str, weak: bool = False) -> Tracer:
    """Return `x` with the element type `dtype`, or `x` itself if it has that type already.

    The conversion of complex numbers to a real type warns.
    """
    if x.value.type.dtype == dtype:
        return x if x.weak_type == weak else Tracer(x._trace, x.value, weak, x._site)
    if x.value.type.dtype in COMPLEX and _is_real(dtype):
        warn_caller(
            with_location(
                f"the conversion of {x.value.type} to {dtype} discards the imaginary part; take "
                ".real to state that"
            ),
            np.exceptions.ComplexWarning,
        )
    converted: Tracer = emit(ops.convert, x, result=x.value.type.with_dtype(dtype), weak=weak)
    return converted


def as_indices(x: Tracer) -> Tracer:
    """Return `x`, an array of indices or counts of any integer type, in the default integer
    type."""
    return convert(x, canonical_dtype("i64"))


def widen_indices(x: Tracer, size: int) -> Tracer:
    """Return integers in a type that represents `size`: their own, or the default integer type."""
    return x if size <= DTYPE_INFO[x.value.type.dtype].max_integer else as_indices(x)


def index_dtype(what: str, dtype: object, size: int) -> str:
    """Return the element type `dtype` that is requested for indices below `size`.

    Raise `OperationTypeError`, which mentions `what`, unless it has integers that represent them.
    """
    name = promotion.dtype_of(dtype)
    if name in INTEGERS and size - 1 <= DTYPE_INFO[name].max_integer:
        return name
    raise OperationTypeError(
        with_location(f"{what} returns indices below {size}, which dtype={name} cannot represent")
    )


def reshape(x: Tracer, shape: Sequence[int]) -> Tracer:
    """Return `x` with another shape of the same size, or `x` itself if it has that shape
    already."""
    if x.shape == tuple(shape):
        return x
    result = x.value.type.with_shape(shape)
    reshaped: Tracer = emit(ops.reshape, x, result=result, weak=x.weak_type)
    return reshaped


def broadcast(x: Tracer, shape: Sequence[int]) -> Tracer:
    """Return `x` broadcast to `shape` by NumPy's rules.

    Raises `OperationTypeError` if the shapes are incompatible.
    """
    shape = tuple(shape)
    if x.shape == shape:
        return x
    lead = len(shape) - x.ndim
    if lead < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True)):
        raise OperationTypeError(with_location(f"shape {x.shape} does not broadcast to {shape}"))
    result = x.value.type.with_shape(shape)
    dims = tuple(range(lead, len(shape)))
    repeated: Tracer = emit(ops.broadcast, x, dims=dims, result=result, weak=x.weak_type)
    return repeated


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape by NumPy's rules; raises `OperationTypeError` that names all
    shapes."""
    rank = max(map(len, shapes), default=0)
    common = []
    for dim in range(-rank, 0):
        sizes = {shape[dim] for shape in shapes if len(shape) >= -dim} - {1}
        if len(sizes) > 1:
            listed = " and ".join(map(str, shapes))
            raise OperationTypeError(
                with_location(f"shapes {listed} do not broadcast to one shape")
            )
        common.append(sizes.pop() if sizes else 1)
    return tuple(common)


def promote(*xs: object) -> tuple[Tracer, ...]:
    """Return the operands as tracers of their common element type, with unchanged shapes."""
    return promote_to(promotion.result_type(*map(operand_dtype, xs)), *xs)


def promote_to_wider(stated: str, *xs: object) -> tuple[Tracer, ...]:
    """Return the operands as tracers of `stated`, the element type of sums of their products, if it
    contains more values than their common element type, and otherwise of that."""
    common = promotion.result_type(*map(operand_dtype, xs))
    return promote_to((stated, False) if promotion.is_wider(stated, common[0]) else common, *xs)


def promote_inexact(*xs: object) -> tuple[Tracer, ...]:
    """Return the operands as tracers of their common floating or complex element type."""
    name, weak = promotion.result_type(*map(operand_dtype, xs))
    return promote_to((promotion.inexact_dtype(name), weak), *xs)


def promote_to(kind: tuple[str, bool], *xs: PyTree) -> tuple[Tracer, ...]:
    """Return the operands as tracers of the element type `kind`, a pair (name, weak)."""
    name, weak = kind
    return tuple(
        splat(x, TensorType((), name), weak) if is_number(x) else convert(as_tracer(x), name, weak)
        for x in xs
    )


def align(*xs: PyTree, kind: tuple[str, bool] | None = None) -> tuple[Tracer, ...]:
    """Return the operands as tracers of one element type and one shape, by promotion and
    broadcasting.

    `kind` (name, weak) overrides the element type of promotion. Python numbers become constants of
    the common shape.
    """
    kind = kind or promotion.result_type(*map(operand_dtype, xs))
    name, weak = kind
    known = [None if is_number(x) else convert(as_tracer(x), name, weak) for x in xs]
    shape = broadcast_shapes(*(x.shape for x in known if x is not None))
    return tuple(
        splat(x, TensorType(shape, name), weak) if tracer is None else broadcast(tracer, shape)
        for x, tracer in zip(xs, known, strict=True)
    )
