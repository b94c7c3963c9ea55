"""Operations on arrays of small dtypes, run on arrays of wider ones; see
`shardir.op_rules.widening`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.ir.arithmetic import Extension
from shardir.ir.dtypes import (
    DTYPE_INFO,
    SIGNED_BY_BITS,
    SMALL_DTYPES,
    SMALL_FLOATS,
    UNSIGNED_BY_BITS,
)
from shardir.ir.operation import Op
from shardir.ir.types import NUMPY_DTYPES, NumpyArray, TensorType, dtype_name
from shardir.op_rules.widening import (
    computes_small,
    extension_of,
    finite_range,
    result_offset,
    saturates,
    widened_dtype,
    widened_result_type,
)
from shardir.ops.elementwise.numerics import convert

Array = NumpyArray
Types = TensorType | tuple[TensorType, ...]


def run_reference(op: Op, operands: Sequence[Array]) -> object:
    """Return the results of an operation that has reference semantics."""
    assert op.spec.reference is not None
    if not computes_small(op):
        types = tuple(value.type for value in op.results)
        result = types[0] if len(types) == 1 else types
        return op.spec.reference(*operands, **op.rule_arguments, result=result)
    wide = [widen_array(x, extension_of(op)) for x in operands]
    made = op.spec.reference(*wide, **op.rule_arguments, result=widened_result_types(op))
    return narrow_results(op, made)


def widen_array(x: Array, extension: Extension = "value") -> Array:
    """Return an operand in the dtype in which operations compute with it."""
    name = dtype_name(x.dtype)
    to = widened_dtype(name, extension)
    if to == name:
        return x
    if extension != "value" and name not in SMALL_FLOATS:
        same_bits = UNSIGNED_BY_BITS if extension == "zero" else SIGNED_BY_BITS
        x = x.view(NUMPY_DTYPES[same_bits[DTYPE_INFO[name].bits]])
    return x.astype(NUMPY_DTYPES[to])


def widened_result_types(op: Op) -> Types:
    """Return the types of the results of an operation that runs on wider dtypes."""
    types = tuple(widened_result_type(op, value.type) for value in op.results)
    return types[0] if len(types) == 1 else types


def narrow_results(op: Op, made: Any) -> Array | tuple[Array, ...]:
    """Return results that were computed on wider dtypes in the dtypes of the results."""
    values = (made,) if len(op.results) == 1 else tuple(made)
    narrow = []
    for value, array in zip(op.results, map(np.asarray, values), strict=True):
        if value.type.dtype in SMALL_DTYPES:
            array = array - array.dtype.type(result_offset(op))
            limits = finite_range(value.type.dtype) if saturates(op) else None
            if limits is not None:
                array = np.clip(array, *map(array.dtype.type, limits))
        narrow.append(convert(array, value.type))
    return narrow[0] if len(narrow) == 1 else tuple(narrow)
