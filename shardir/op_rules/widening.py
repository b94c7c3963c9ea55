"""Operations on small dtypes: which ones compute, and the wider dtypes in which they do.

An operation that only moves elements accepts small dtypes as bytes. Every other operation converts
its small operands to a wider dtype, runs on them, and converts its results back: floats to f32 with
one rounding, integers to i8 or u8 with wrapping. The interpreter follows this definition, and the
pass `widen-small-dtypes` writes it into the program for the backends.
"""

from typing import Literal

from shardir.ir.dtypes import COMPUTE_DTYPES, DTYPE_INFO, NARROW_FLOATS, SMALL_DTYPES, SMALL_FLOATS
from shardir.ir.operation import Op
from shardir.ir.types import TensorType

MOVING_OPERATIONS = frozenset(
    {
        "all-gather",
        "all-gather-start",
        "all-slice",
        "all-to-all",
        "all-to-all-start",
        "bitcast",
        "broadcast",
        "checkpoint-name",
        "collective-permute",
        "collective-permute-start",
        "concatenate",
        "constant",
        "convert",
        "data_flow_edge",
        "done",
        "dynamic_slice",
        "dynamic_update_slice",
        "gather",
        "inspect-sharding",
        "optimization_barrier",
        "pad",
        "propagation_barrier",
        "reshape",
        "reshard",
        "reverse",
        "roll",
        "select",
        "sharding_constraint",
        "sharding_group",
        "slice",
        "stop_gradient",
        "transpose",
        "vary",
    }
)
"""Operations that only move elements or, as `convert`, are defined for each dtype."""
OPAQUE_OPERATIONS = frozenset({"callback", "custom-partitioning", "pure-callback", "opaque"})
"""Operations that take arrays of the stated dtypes and cannot run on wider ones."""
ASYNCHRONOUS_REDUCTIONS = frozenset({"all-reduce-start", "reduce-scatter-start"})
"""Operations that compute, but whose results another operation completes."""

Extension = Literal["value", "zero", "sign"]
"""How an operand is widened: to its number, or as an integer whose additional bits are 0 or the
highest bit."""

_EXTENSIONS: dict[str, Extension] = {
    "clz": "zero",
    "popcnt": "zero",
    "shift_right_logical": "zero",
    "shift_right_arithmetic": "sign",
}
_EXTREMA = frozenset({"max", "min", "cummax", "cummin"})
_SMALL_DTYPES = frozenset(SMALL_DTYPES)


def computes_small(op: Op) -> bool:
    """Return whether an operation computes with elements of a small dtype, so that it must run on
    a wider one."""
    if op.name in MOVING_OPERATIONS or op.blocks or op.name in OPAQUE_OPERATIONS:
        return False
    if op.name == "scatter" and op.attrs["op"] == "set":
        return False
    return any(value.type.dtype in _SMALL_DTYPES for value in op.tensors)


def widened_dtype(dtype: str, extension: Extension) -> str:
    """Return the dtype in which operations compute with elements of a small dtype."""
    if dtype not in _SMALL_DTYPES or dtype in SMALL_FLOATS or extension == "value":
        return COMPUTE_DTYPES[dtype] if dtype in _SMALL_DTYPES else dtype
    return "u8" if extension == "zero" else "i8"


def widened_result_type(op: Op, type: TensorType) -> TensorType:
    """Return the type of a result of an operation that runs on wider dtypes."""
    if op.name in ("dot", "convolution"):
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
    return _EXTENSIONS.get(op.name, "value")


def result_offset(op: Op) -> int:
    """Return the number that is subtracted from the results on the wider dtype."""
    return 8 - DTYPE_INFO[op.result.type.dtype].bits if op.name == "clz" else 0


def saturates(op: Op) -> bool:
    """Return whether the results are extrema, so that the identity element of the wider dtype
    stands for the one of the small dtype."""
    return op.name in _EXTREMA or op.attrs.get("op") in ("max", "min")


def finite_range(dtype: str) -> tuple[float, float] | None:
    """Return the limits of a small dtype to which extrema saturate; `None` if it has infinities."""
    info = DTYPE_INFO[dtype]
    if dtype not in SMALL_FLOATS:
        return info.min_integer, info.max_integer
    if info.has_infinity:
        return None
    return (info.min_finite, info.max_finite)
