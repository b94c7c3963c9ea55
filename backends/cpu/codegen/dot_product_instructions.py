"""The instructions that multiply groups of adjacent values of two operands, and add the products of
a group to one sum.

Those of x86 multiply vectors of groups (AVX512-BF16, AVX512-VNNI). Those of Arm (BFMMLA, I8MM)
multiply two groups of rows by two groups of columns, and add to a matrix of 2x2 sums.
`tile_instructions` describes those of AMX.
"""

from collections.abc import Collection
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription, architecture
from shardir.backends.cpu.codegen.tile_instructions import TILE_INSTRUCTIONS, TileInstruction

SIGN_BITS_OF_BYTES = 0x80808080
"""The sign bits of four values of 8 bits, or four unsigned values of 128. An i8 whose sign bit is
inverted is its value plus 128, as an unsigned number."""


SLOW_BF16_CPUS = frozenset({"sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"})
"""LLVM's names of processors with a slow AVX512-BF16: on an Emerald Rapids, products of bf16 take
1.7 times as long with it as those of widened values (filter gradients of ResNet-50 1.6 to 1.9
times). The others have the same kind of cores."""


class DotProductInstruction(NamedTuple):
    """An instruction for vectors of groups of values of type `dtype`: the processor feature, LLVM's
    name, the LLVM types of a sum and of a register of `elements_per_sum` elements for each sum, and
    the number of values of a group.

    `is_lhs_unsigned`: the values of the left operand are unsigned, those of the right one signed.
    Products of widened values are faster on the processors `slow_cpus`.
    """

    dtype: str
    feature: str
    intrinsic: str
    sum: str
    element: str
    elements_per_sum: int
    steps: int = 2
    is_lhs_unsigned: bool = False
    slow_cpus: Collection[str] = ()

    @property
    def name(self) -> str:
        """The part of a kernel's name that states the instruction."""
        return self.dtype

    def is_fast_on(self, machine: HostDescription) -> bool:
        """Return whether the machine has the instruction for its widest registers, and it is faster
        than products of widened values."""
        has_instruction = machine.vector_bytes == 64 and machine.has(self.feature)
        return has_instruction and machine.cpu not in self.slow_cpus

    def emit(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
        """Add the products of groups, whose bits `a` and `b` hold, to the vector `c`."""
        count = lane_count(c.type)
        type = vector_type(self.element, self.elements_per_sum * count)
        name = f"llvm.x86.{self.intrinsic}.{32 * count}"
        f.module.declare(name, c.type, [c.type, type, type])
        left, right = (f.emit(f"bitcast {x.type} {x} to {type}", type) for x in (a, b))
        return f.emit(f"call {c.type} @{name}({c.type} {c}, {type} {left}, {type} {right})", c.type)


class MatrixInstruction(NamedTuple):
    """An instruction for matrices of 2x2 sums: a register of an operand has two groups of 8 bytes
    of values of type `dtype`, those of two rows or of two columns.

    The register of sums has the sums of the first row, then those of the second row.
    """

    dtype: str
    feature: str
    intrinsic: str
    sum: str
    operand: str
    steps: int
    is_lhs_unsigned: bool = False

    @property
    def name(self) -> str:
        """The part of a kernel's name that states the instruction."""
        return f"{self.dtype}_2x2"

    def is_fast_on(self, machine: HostDescription) -> bool:
        """Return whether the machine has the instruction."""
        return architecture(machine.triple) == "aarch64" and machine.has(self.feature)

    def emit(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
        """Add the products of the groups of two rows, whose bits `a` holds, and of two columns,
        whose bits `b` holds, to the sums `c`."""
        name = f"llvm.aarch64.neon.{self.intrinsic}"
        f.module.declare(name, c.type, [c.type, self.operand, self.operand])
        left, right = (
            f.emit(f"bitcast {x.type} {x} to {self.operand}", self.operand) for x in (a, b)
        )
        operands = f"{c.type} {c}, {self.operand} {left}, {self.operand} {right}"
        return f.emit(f"call {c.type} @{name}({operands})", c.type)


GroupInstruction = DotProductInstruction | MatrixInstruction | TileInstruction


def group_dtype(instruction: GroupInstruction) -> str:
    """Return the type of elements of the size of a group, as which groups are copied."""
    if isinstance(instruction, MatrixInstruction):
        return "i64"
    return "f32" if instruction.sum == "float" else "i32"


BF16_PAIRS = DotProductInstruction(
    "bf16", "avx512bf16", "avx512bf16.dpbf16ps", "float", "bfloat", 2, slow_cpus=SLOW_BF16_CPUS
)
GROUP_INSTRUCTIONS: dict[str, tuple[GroupInstruction, ...]] = {
    "bf16": (
        TILE_INSTRUCTIONS["bf16"],
        BF16_PAIRS,
        MatrixInstruction("bf16", "bf16", "bfmmla", "float", "<8 x bfloat>", 4),
    ),
    "i16": (DotProductInstruction("i16", "avx512vnni", "avx512.vpdpwssd", "i32", "i32", 1),),
    "i8": (
        TILE_INSTRUCTIONS["i8"],
        DotProductInstruction("i8", "avx512vnni", "avx512.vpdpbusd", "i32", "i32", 1, 4, True),
        MatrixInstruction("i8", "i8mm", "smmla.v4i32.v16i8", "i32", "<16 x i8>", 8),
    ),
    "u8": (
        TILE_INSTRUCTIONS["u8"],
        MatrixInstruction("u8", "i8mm", "ummla.v4i32.v16i8", "i32", "<16 x i8>", 8),
    ),
}
"""The instructions for each type of the values of a group, the fastest first. All sums of integers
wrap around."""
