"""Every elementwise operation in a kernel, on every element type, against the interpreter."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu.dtypes import TRITON_TYPES
from shardir.backends.gpu.kernels.arithmetic import REFUSAL_REASONS, RULES
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Module, Value
from shardir.ir.operation import OPS
from shardir.ir.types import FLOATS, TensorType
from shardir.ops.control_flow.fused import is_pointwise
from tests.backends.gpu.kernels.fused_groups import group, numbers, tried
from tests.backends.gpu.kernels.kernel_execution import Interpreter

Array = npt.NDArray[Any]
FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "logistic"),
    *("erf", "erfc", "erf_inv", "lgamma", "pow", "atan2"),
)
"""What is accurate, but not to the last bit."""
BOUNDS = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-6, "f64": 1e-13}


def compared(interpreter: Interpreter, module: Module, args: list[Array]) -> None:
    """The group's kernel gives the reference's bits, but for functions."""
    (op,) = module.main.body.ops
    (block,) = op.blocks
    names = {inner.result: inner.name for inner in block.ops}
    with np.errstate(all="ignore"):
        wanted = run(module, args)
        made = interpreter.run(module, args)
    for value, want, got in zip(block.returns, wanted, made, strict=True):
        dtype = value.type.dtype
        assert got.dtype == want.dtype
        told = f"{names[value]} to {value.type}"
        if dtype in FLOATS:
            bound = BOUNDS[dtype] if names[value] in FUNCTIONS else 0
            wide, close = want.astype(np.float64), got.astype(np.float64)
            np.testing.assert_allclose(close, wide, bound, bound, err_msg=told)
        else:
            np.testing.assert_array_equal(got, want, told)


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_operations_on_one_value(interpreter: Interpreter, dtype: str) -> None:
    x = numbers(dtype)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        made = [y for name in RULES for y in tried(b, OPS[name], params[0])]
        for to in TRITON_TYPES:
            made += tried(b, OPS["convert"], params[0], result=params[0].type.with_dtype(to))
        return made

    compared(interpreter, group([TensorType(x.shape, dtype)], rows), [x])


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_operations_on_two_values(interpreter: Interpreter, dtype: str) -> None:
    x = numbers(dtype)
    pairs = [np.repeat(x, x.size), np.tile(x, x.size)]

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        made = [y for name in RULES for y in tried(b, OPS[name], *params)]
        less = b.emit(OPS["ne"], *params)
        made.append(b.select(less, *params))
        made += tried(b, OPS["clamp"], b.full(1, params[0].type), *params)
        return made

    compared(interpreter, group([TensorType(y.shape, dtype) for y in pairs], rows), pairs)


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_operations_on_numbers(interpreter: Interpreter, dtype: str) -> None:
    """An operand that is a constant is written as a number, whatever meets it."""
    x = numbers(dtype)
    some = (0, 1) if dtype == "bool" else (0, 3, 7)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        made = []
        type = params[0].type
        for number in (b.full(n, type) for n in some):
            for name in RULES:
                made += tried(b, OPS[name], params[0], number)
                made += tried(b, OPS[name], number, params[0])
                made += tried(b, OPS[name], number, b.full(1, type))
                made += tried(b, OPS[name], number)
            made += [b.select(b.eq(params[0], number), number, b.full(1, type)), number]
        return made

    compared(interpreter, group([TensorType(x.shape, dtype)], rows), [x])


def test_every_elementwise_operation_has_a_rule_or_a_reason() -> None:
    known = {name for name, spec in OPS.items() if is_pointwise(spec)}
    assert known == {*RULES, *REFUSAL_REASONS}
    assert not {*RULES} & {*REFUSAL_REASONS}


def test_numbers_of_16_bits_are_rounded_after_every_operation(interpreter: Interpreter) -> None:
    """So that fusing changes no bits: (x + 1) - x is not 1 where the type has no x + 1."""
    for dtype in NARROW_FLOATS:
        x = np.linspace(1, 5000, 999).astype(numbers(dtype).dtype)

        def rows(b: Builder, params: list[Value]) -> list[Value]:
            one = b.full(1, params[0].type)
            return [b.sub(b.add(params[0], one), params[0]), b.mul(b.exp(b.neg(one)), params[0])]

        module = group([TensorType(x.shape, dtype)], rows)
        for want, got in zip(run(module, [x]), interpreter.run(module, [x]), strict=True):
            np.testing.assert_array_equal(got, want)
