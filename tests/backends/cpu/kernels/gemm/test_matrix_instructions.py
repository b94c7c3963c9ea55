"""Products with the matrix instructions of Arm: BFMMLA, SMMLA and UMMLA.

The code of a kernel is compiled for Arm. For its numbers, the host runs the same code with a
function in place of each instruction.
"""

from collections import Counter
from dataclasses import replace

import llvmlite.binding as binding
import numpy as np
import pytest

from shardir.backends.cpu.codegen.dot_product_instructions import MatrixInstruction
from shardir.backends.cpu.codegen.emission import make_target_machine
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import convolution, dot
from tests.backends.cpu.kernels.conv.test_convolution import attributes
from tests.backends.cpu.kernels.gemm.test_dot import assert_product, random_elements
from tests.backends.cpu.machine_descriptions import NEOVERSE, NEOVERSE_V1
from tests.backends.cpu.phase_runner import (
    lower_and_run,
    make_op,
    selected_kernel_names,
    selected_kernels,
)

DTYPES = [("bf16", "bf16"), ("bf16", "f32"), ("i8", "i32"), ("u8", "i32"), ("u8", "u32")]
"""The types of operands and of results."""


def product_kernels(
    machine: HostDescription, dims: str, dtype: str, result: str, sizes: dict[str, int]
) -> list[str]:
    """Return the names of the kernels of a product of dense matrices."""
    left, right, output = (
        tuple(sizes[c] for c in term) for term in dims.replace("->", ",").split(",")
    )
    op = make_op(
        dot, TensorType(left, dtype), TensorType(right, dtype), dims=dims,
        result=TensorType(output, result),
    )  # fmt: skip
    return selected_kernel_names(RULES["dot"], op, machine)


@pytest.mark.parametrize(("dtype", "result"), DTYPES)
@pytest.mark.parametrize(("dims", "copies"), [("ak,bk->ab", 0), ("ak,kb->ab", 1), ("ka,kb->ab", 2)])
def test_products_of_matrices_have_groups_of_eight_bytes(
    dtype: str, result: str, dims: str, copies: int
) -> None:
    """Operands whose K steps are not contiguous are copied."""
    found = product_kernels(NEOVERSE_V1, dims, dtype, result, {"a": 40, "b": 70, "k": 64})
    assert [f"_groups_{dtype}_2x2_" in name for name in found] == [False] * copies + [True]
    without = product_kernels(NEOVERSE, dims, dtype, result, {"a": 40, "b": 70, "k": 64})
    assert not any("_groups_" in name for name in without)


@pytest.mark.parametrize(
    ("dtype", "steps"), [("bf16", 66), ("i8", 68), ("u8", 68), ("i16", 64), ("f16", 64)]
)
def test_incomplete_groups_and_other_types_have_no_groups(dtype: str, steps: int) -> None:
    result = "i32" if dtype in ("i8", "u8", "i16") else dtype
    sizes = {"a": 40, "b": 70, "k": steps}
    found = product_kernels(NEOVERSE_V1, "ak,bk->ab", dtype, result, sizes)
    assert not any("_groups_" in name for name in found)


def test_convolutions_have_no_groups() -> None:
    """Their tiles read patches in place, which no 2x2 sums do."""
    attrs = attributes(2, "b01f,01io->b01f", padding=((1, 1), (1, 1)))
    image, filter = TensorType((2, 9, 9, 32), "bf16"), TensorType((3, 3, 32, 40), "bf16")
    op = make_op(convolution, image, filter, **attrs)
    for machine in (NEOVERSE, NEOVERSE_V1):
        found = selected_kernel_names(RULES["convolution"], op, machine)
        assert not any("_groups_" in name or "interleave" in name for name in found)


@pytest.mark.parametrize(
    ("dtype", "result", "instruction"),
    [("bf16", "f32", "bfmmla"), ("i8", "i32", "smmla"), ("u8", "i32", "ummla")],
)
def test_tiles_use_one_instruction_for_each_two_rows_and_two_columns(
    dtype: str, result: str, instruction: str
) -> None:
    """The smaller tiles of remainders follow the tile of 8 rows and 12 columns."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    types = [TensorType((64, 64), dtype)] * 2
    op = make_op(dot, *types, dims="ak,bk->ab", result=TensorType((64, 64), result))
    (kernel,) = selected_kernels(RULES["dot"], op, NEOVERSE_V1)
    parsed = binding.parse_assembly(kernel.text(NEOVERSE_V1))
    parsed.triple = NEOVERSE_V1.triple
    counts, name = Counter[str](), ""
    for line in make_target_machine(NEOVERSE_V1).emit_assembly(parsed).splitlines():
        words = line.split()
        if line.startswith(("tile", '"tile')):
            name = line.partition(":")[0].strip('"')
        elif words and words[0] == instruction:
            counts[name] += 1
    assert counts == {"tile8x12": 24, "tile8x4": 8, "tile4x12": 12, "tile2x12": 6}


def emulate(
    self: MatrixInstruction, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue
) -> LLVMValue:
    """Compute the 2x2 sums of the products of each two groups with vectors of four elements."""
    steps, value = self.steps, vector_type(self.operand.split(" x ")[1][:-1], 2 * self.steps)
    wide, convert = vector_type(self.sum, 4), {"bf16": "fpext", "i8": "sext", "u8": "zext"}
    left, right = (f.emit(f"bitcast {x.type} {x} to {value}", value) for x in (a, b))
    for step in range(steps):
        rows = f.shuffle(left, left, [step, step, steps + step, steps + step])
        columns = f.shuffle(right, right, [step, steps + step] * 2)
        x, y = (each.to(wide, convert[self.dtype]) for each in (rows, columns))
        c = c + x * y
    return c


@pytest.mark.parametrize(("dtype", "result"), DTYPES)
@pytest.mark.parametrize(
    ("dims", "sizes"),
    [
        ("ak,bk->ab", {"a": 40, "b": 70, "k": 64}),
        ("ak,kb->ab", {"a": 33, "b": 100, "k": 72}),
        ("ka,bk->ba", {"a": 50, "b": 47, "k": 8}),
        ("zak,kzb->zab", {"a": 65, "b": 32, "k": 1200, "z": 2}),
    ],
)
def test_numbers_of_matrix_instructions(
    monkeypatch: pytest.MonkeyPatch, dtype: str, result: str, dims: str, sizes: dict[str, int]
) -> None:
    monkeypatch.setattr(MatrixInstruction, "emit", emulate)
    # The name of a kernel determines its code in other tests.
    machine = replace(NEOVERSE_V1, version="emulated", fma=False)
    rng = np.random.default_rng(0)
    left, right, output = dims.replace("->", ",").split(",")
    x, y = (random_elements(rng, tuple(sizes[c] for c in term), dtype) for term in (left, right))
    if dtype != "bf16":
        x[..., :2], y[...] = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    type = TensorType(tuple(sizes[c] for c in output), result)
    op = make_op(
        dot, TensorType(x.shape, dtype), TensorType(y.shape, dtype), dims=dims, result=type
    )
    out = np.zeros(type.shape, NUMPY_DTYPES[result])
    phases = lower_and_run(RULES["dot"], op, [x, y], [out], machine=machine)
    assert phases is not None
    assert any(f"_groups_{dtype}_2x2_" in phase.kernel.name for phase in phases)
    assert_product(out, x, y, dims, type)
