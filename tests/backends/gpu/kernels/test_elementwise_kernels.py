"""Every elementwise operation in a kernel, for every element type, against the interpreter."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shardir import ops as ops  # declares the operations
from shardir.backends.gpu import dtypes
from shardir.backends.gpu.kernels.arithmetic import REFUSAL_REASONS, RULES
from shardir.interpret.interpreter import run
from shardir.ir.builder import Builder
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Module, Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.ops.control_flow.loop_unification import (
    is_pointwise,
)
from tests.backends.gpu.kernels.fused_groups import (
    emit_if_valid,
    single_group_module,
    special_values,
)
from tests.backends.gpu.kernels.kernel_execution import Interpreter
from tests.dtype_groups import DTYPES, FLOATS

TRITON_TYPES = [dtype for dtype in DTYPES if dtype in dtypes.TRITON_TYPES]
Array = npt.NDArray[Any]
INEXACT_FUNCTIONS = (
    *("exp", "exp2", "expm1", "log", "log2", "log1p", "rsqrt", "cbrt", "sin", "cos", "tan"),
    *("asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "logistic"),
    *("erf", "erfc", "erf_inv", "lgamma", "pow", "atan2"),
)
"""Functions with a small error bound; the results of all other operations are exact."""
RELATIVE_BOUNDS = {"f16": 2e-3, "bf16": 2e-2, "f32": 2e-6, "f64": 1e-13}


def check_group(interpreter: Interpreter, module: Module, args: list[Array]) -> None:
    """Compare the kernel of a group with the reference: bit-exact, except for functions."""
    (op,) = module.main.body.ops
    (block,) = op.blocks
    names = {inner.result: inner.name for inner in block.ops}
    with np.errstate(all="ignore"):
        wanted = run(module, args)
        results = interpreter.run(module, args)
    for value, want, got in zip(block.returns, wanted, results, strict=True):
        dtype = value.type.dtype
        assert got.dtype == want.dtype
        message = f"{names[value]} to {value.type}"
        if dtype in FLOATS:
            bound = RELATIVE_BOUNDS[dtype] if names[value] in INEXACT_FUNCTIONS else 0
            expected, actual = want.astype(np.float64), got.astype(np.float64)
            np.testing.assert_allclose(actual, expected, bound, bound, err_msg=message)
        else:
            np.testing.assert_array_equal(got, want, message)


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_unary_operations_and_conversions_match_the_reference(
    interpreter: Interpreter, dtype: str
) -> None:
    x = special_values(dtype)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        results = [y for name in RULES for y in emit_if_valid(b, OPS[name], params[0])]
        for to in TRITON_TYPES:
            results += emit_if_valid(
                b, OPS["convert"], params[0], result=params[0].type.with_dtype(to)
            )
        return results

    check_group(interpreter, single_group_module([TensorType(x.shape, dtype)], rows), [x])


@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_binary_operations_match_the_reference(interpreter: Interpreter, dtype: str) -> None:
    x = special_values(dtype)
    pairs = [np.repeat(x, x.size), np.tile(x, x.size)]

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        results = [y for name in RULES for y in emit_if_valid(b, OPS[name], *params)]
        less = b.emit(OPS["ne"], *params)
        results.append(b.select(less, *params))
        results += emit_if_valid(b, OPS["clamp"], b.full(1, params[0].type), *params)
        return results

    check_group(
        interpreter, single_group_module([TensorType(y.shape, dtype) for y in pairs], rows), pairs
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", TRITON_TYPES)
def test_operations_on_constants_match_the_reference(interpreter: Interpreter, dtype: str) -> None:
    """A constant operand is written as a literal; both operands may be constants."""
    x = special_values(dtype)
    some = (0, 1) if dtype == "bool" else (0, 3, 7)

    def rows(b: Builder, params: list[Value]) -> list[Value]:
        results = []
        type = params[0].type
        for number in (b.full(n, type) for n in some):
            for name in RULES:
                results += emit_if_valid(b, OPS[name], params[0], number)
                results += emit_if_valid(b, OPS[name], number, params[0])
                results += emit_if_valid(b, OPS[name], number, b.full(1, type))
                results += emit_if_valid(b, OPS[name], number)
            results += [b.select(b.eq(params[0], number), number, b.full(1, type)), number]
        return results

    check_group(interpreter, single_group_module([TensorType(x.shape, dtype)], rows), [x])


def test_every_elementwise_operation_has_a_rule_or_a_rejection_reason() -> None:
    known = {name for name, spec in OPS.items() if is_pointwise(spec)}
    assert known == {*RULES, *REFUSAL_REASONS}
    assert not {*RULES} & {*REFUSAL_REASONS}


def test_16_bit_floats_are_rounded_after_every_operation(interpreter: Interpreter) -> None:
    """Fusion does not change bits: (x + 1) - x is not 1 if the type cannot represent x + 1."""
    for dtype in NARROW_FLOATS:
        x = np.linspace(1, 5000, 999).astype(special_values(dtype).dtype)

        def rows(b: Builder, params: list[Value]) -> list[Value]:
            one = b.full(1, params[0].type)
            return [b.sub(b.add(params[0], one), params[0]), b.mul(b.exp(b.neg(one)), params[0])]

        module = single_group_module([TensorType(x.shape, dtype)], rows)
        for want, got in zip(run(module, [x]), interpreter.run(module, [x]), strict=True):
            np.testing.assert_array_equal(got, want)
