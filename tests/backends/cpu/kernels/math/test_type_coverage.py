"""Every elementwise operation of the IR has instructions for every element type it takes."""

from typing import Any

import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.kernels.math.inline import emit_elementwise
from shardir.backends.cpu.kernels.math.registers import load_elements
from shardir.ir.operation import OPS, OpSpec
from shardir.ir.types import DTYPES, TensorType

ATTRS: dict[str, dict[str, Any]] = {
    "propagation_barrier": {"direction": "forward"},
    "checkpoint-name": {"label": "x"},
    "vary": {"axes": ()},
}
"""What operations have to be told besides."""


def result_of(spec: OpSpec, operands: list[TensorType]) -> TensorType | None:
    """The type of the result, or `None` where the operation takes no such operands."""
    for stated in (None, operands[-1]):
        try:
            made = spec.type(*operands, result=stated, **ATTRS.get(spec.name, {}))
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
def test_every_type_has_instructions(name: str) -> None:
    spec, tried = OPS[name], 0
    for dtype in DTYPES:
        for operands in operands_of(spec, dtype):
            result = result_of(spec, operands)
            assert result is not None
            f = LLVMFunction(LLVMModule(), "apply", ["ptr"])
            dtypes = [each.dtype for each in operands]
            held = [load_elements(f, f.params[0], each, 8) for each in dtypes]
            made = emit_elementwise(f, name, ATTRS.get(name, {}), held, dtypes, result.dtype)
            assert made is not None, f"{name} of {dtypes}"
            tried += 1
    assert tried
