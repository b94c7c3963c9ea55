"""The instructions of x86 that multiply two or four pairs of values and add them to a sum."""

from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription

GROUP_BYTES = 4
"""Bytes of the values that an instruction multiplies for one sum."""
SIGN_BITS_OF_BYTES = 0x80808080
"""The sign bits of four values of 8 bits, or four unsigned values of 128. An i8 whose sign bit is
inverted is its value plus 128, as an unsigned number."""


class DotProductInstruction(NamedTuple):
    """An instruction: the processor feature, LLVM's name, the LLVM types of a sum and of a register
    of `elements_per_sum` elements for each sum, and the number of values whose products are added.

    `is_lhs_unsigned`: the values of the left operand are unsigned, those of the right one signed.
    """

    feature: str
    intrinsic: str
    sum: str
    element: str
    elements_per_sum: int
    steps: int = 2
    is_lhs_unsigned: bool = False

    def is_supported_by(self, machine: HostDescription) -> bool:
        """Return whether the machine has the instruction for its widest registers."""
        return machine.vector_bytes == 64 and machine.has(self.feature)

    def emit(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
        """Add the products of groups, whose bits `a` and `b` hold, to the vector `c`."""
        count = lane_count(c.type)
        type = vector_type(self.element, self.elements_per_sum * count)
        name = f"llvm.x86.{self.intrinsic}.{32 * count}"
        f.module.declare(name, c.type, [c.type, type, type])
        left, right = (f.emit(f"bitcast {x.type} {x} to {type}", type) for x in (a, b))
        return f.emit(f"call {c.type} @{name}({c.type} {c}, {type} {left}, {type} {right})", c.type)


DOT_PRODUCT_INSTRUCTIONS = {
    "bf16": DotProductInstruction("avx512bf16", "avx512bf16.dpbf16ps", "float", "bfloat", 2),
    "i16": DotProductInstruction("avx512vnni", "avx512.vpdpwssd", "i32", "i32", 1),
    "i8": DotProductInstruction("avx512vnni", "avx512.vpdpbusd", "i32", "i32", 1, 4, True),
}
"""The instruction for each type of the values of a group. All sums of integers wrap around."""
