"""Every elementwise operation has instructions for every element type that it accepts."""

from typing import Any

import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.kernels.math.inline import emit_elementwise
from shardir.backends.cpu.kernels.math.registers import load_elements
from shardir.ir.operation import OPS, OpSpec
from shardir.ir.types import TensorType
from tests.dtype_groups import DTYPES

ATTRS: dict[str, dict[str, Any]] = {
    "propagation_barrier": {"direction": "forward"},
    "checkpoint-name": {"label": "x"},
    "pipeline-stage": {"stage": 0},
    "vary": {"axes": ()},
}
"""Required attributes of operations."""


def result_of(spec: OpSpec, operands: list[TensorType]) -> TensorType | None:
    """Return the type of the result, or `None` if the operand types are invalid."""
    for stated in (None, operands[-1]):
        try:
            made = spec.type(
                *operands, result=stated, **spec.rule_arguments(ATTRS.get(spec.name, {}))
            )
        except (TypeError, ValueError):
            continue
        return made if isinstance(made, TensorType) else None
    return None


def operands_of(spec: OpSpec, dtype: str) -> list[list[TensorType]]:
    x, word = TensorType((), dtype), TensorType((), "u32")
    choices = [[x] * count for count in (1, 2, 3)]
    choices += [[TensorType((), "bool"), x, x], [x, word], [x, word, word]]
    return [choice for choice in choices if result_of(spec, choice) is not None]


ELEMENTWISE = sorted(name for name, spec in OPS.items() if spec.elementwise)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_operation_has_instructions_for_its_types(name: str) -> None:
    spec, case_count = OPS[name], 0
    for dtype in DTYPES:
        for operands in operands_of(spec, dtype):
            result = result_of(spec, operands)
            assert result is not None
            f = LLVMFunction(LLVMModule(host_machine()), "apply", ["ptr"])
            dtypes = [each.dtype for each in operands]
            operand_vectors = [load_elements(f, f.params[0], each, 8) for each in dtypes]
            made = emit_elementwise(
                f, name, ATTRS.get(name, {}), operand_vectors, dtypes, result.dtype
            )
            assert made is not None, f"{name} of {dtypes}"
            case_count += 1
    assert case_count
