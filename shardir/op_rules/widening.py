"""Operations on small dtypes: which ones compute, and the wider dtypes in which they do.

An operation that only moves elements accepts small dtypes as bytes. Every other operation converts
its small operands to a wider dtype, runs on them, and converts its results back: floats to f32 with
one rounding, integers to i8 or u8 with wrapping. The interpreter follows this definition, and the
pass `widen-small-dtypes` writes it into the program for the backends.
"""

from shardir.ir.arithmetic import ORDINARY, Arithmetic, Extension
from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO, NARROW_FLOATS, SMALL_DTYPES, SMALL_FLOATS
from shardir.ir.operation import Op
from shardir.ir.types import TensorType

_SMALL_DTYPES = frozenset(SMALL_DTYPES)


def arithmetic_of(op: Op) -> Arithmetic | None:
    """Return the arithmetic of an operation; `None` if it only moves elements."""
    declared = op.spec.arithmetic
    if declared is None or isinstance(declared, Arithmetic):
        return declared
    return declared(**op.rule_arguments)


def computes_small(op: Op) -> bool:
    """Return whether an operation computes with elements of a small dtype, so that it must run on
    a wider one."""
    if op.blocks or not any(value.type.dtype in _SMALL_DTYPES for value in op.tensors):
        return False
    arithmetic = arithmetic_of(op)
    return arithmetic is not None and not arithmetic.has_fixed_dtypes


def has_fixed_dtypes(op: Op) -> bool:
    """Return whether an operation takes arrays of the stated dtypes, and no wider ones."""
    return _computation_of(op).has_fixed_dtypes


def _computation_of(op: Op) -> Arithmetic:
    return arithmetic_of(op) or ORDINARY


def widened_dtype(dtype: str, extension: Extension) -> str:
    """Return the dtype in which operations compute with elements of a small dtype."""
    if dtype not in _SMALL_DTYPES or dtype in SMALL_FLOATS or extension == "value":
        return COMPUTE_DTYPES[dtype] if dtype in _SMALL_DTYPES else dtype
    return "u8" if extension == "zero" else "i8"


def widened_result_type(op: Op, type: TensorType) -> TensorType:
    """Return the type of a result of an operation that runs on wider dtypes."""
    if _computation_of(op).sums_products:
        # Sums of small floats are f32, also if the result is a 16-bit float.
        operand = widened_type(op.operands[0].type)
        if operand.dtype == "f32" and type.dtype in NARROW_FLOATS:
            return type.with_dtype("f32")
    return widened_type(type, extension_of(op))


def widened_type(type: TensorType, extension: Extension = "value") -> TensorType:
    """Return the type in which operations compute with a tensor of a small dtype; other types do
    not change."""
    if type.dtype not in _SMALL_DTYPES:
        return type
    return type.with_dtype(widened_dtype(type.dtype, extension))


def extension_of(op: Op) -> Extension:
    """Return how the operands of an operation are widened."""
    return _computation_of(op).extension


def result_offset(op: Op) -> int:
    """Return the number that is subtracted from the results on the wider dtype."""
    if not _computation_of(op).counts_leading_zeros:
        return 0
    return 8 - DTYPE_INFO[op.result.type.dtype].bits


def saturates(op: Op) -> bool:
    """Return whether the results are extrema, so that the identity element of the wider dtype
    stands for the one of the small dtype."""
    return _computation_of(op).is_extremum


def finite_range(dtype: str) -> tuple[float, float] | None:
    """Return the limits of a small dtype to which extrema saturate; `None` if it has infinities."""
    info = DTYPE_INFO[dtype]
    if dtype not in SMALL_FLOATS:
        return info.min_integer, info.max_integer
    if info.has_infinity:
        return None
    return (info.min_finite, info.max_finite)
