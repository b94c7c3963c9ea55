"""Fused groups built by the tests: many operations on the same operands."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.errors import OperationTypeError
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops.control_flow.fused import fused
from tests.dtype_groups import FLOATS

Array = npt.NDArray[Any]


def module_of_group(block: Block) -> Module:
    """Return a program of one group."""
    params = tuple(Value(value.type, f"p{i}") for i, value in enumerate(block.params))
    results = tuple(Value(value.type, f"r{i}") for i, value in enumerate(block.returns))
    op = Op(fused, params, results, {}, (block,))
    body = Block(params, (op,), results)
    return Module((), (Function("f", body, (None,) * len(results)),))


def single_group_module(
    types: Sequence[TensorType], rows: Callable[[Builder, list[Value]], list[Value]]
) -> Module:
    """Return a program of one group, which yields the results of `rows` for its parameters."""
    b = Builder()
    params = [b.param(type) for type in types]
    returns = rows(b, params)
    return module_of_group(b.block(params, returns))


def emit_if_valid(b: Builder, spec: Any, *args: Value, **attrs: Any) -> list[Value]:
    """Return the result of an operation, or no result if its operand types are invalid."""
    try:
        return [b.emit(spec, *args, **attrs)]
    except OperationTypeError:
        return []


def special_values(dtype: str) -> Array:
    """Return the special values of an element type and some others."""
    rng = np.random.default_rng(7)
    numpy = NUMPY_DTYPES[dtype]
    if dtype == "bool":
        return np.array([False, True] * 10)
    if dtype not in FLOATS:
        limits = np.iinfo(numpy)
        integers = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 3]
        integers += [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100]
        integers += [-1, -2, -3, -8, -100] if limits.min else [200, 9, 10, 11, 12]
        return np.array(integers, numpy)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -2.5, 3.0, 1e-3]
    special += [127.0, 128.5, -129.0, 300.0, 33000.0, -70000.0, 3e9, -3e9, 2e19, -0.3]
    with np.errstate(all="ignore"):
        return np.array([*special, *rng.normal(size=9)]).astype(numpy)
