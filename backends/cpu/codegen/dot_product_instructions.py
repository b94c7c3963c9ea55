"""The instructions of x86 that multiply pairs of elements and add both products to a sum."""

from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription


class DotProductInstruction(NamedTuple):
    """An instruction: the processor feature, LLVM's name, and the LLVM types of a sum and of a
    register of `pairs` elements for each sum."""

    feature: str
    intrinsic: str
    sum: str
    element: str
    elements_per_sum: int

    def is_supported_by(self, machine: HostDescription) -> bool:
        """Return whether the machine has the instruction for its widest registers."""
        return machine.vector_bytes == 64 and machine.has(self.feature)

    def emit(self, f: LLVMFunction, a: LLVMValue, b: LLVMValue, c: LLVMValue) -> LLVMValue:
        """Add the products of pairs, whose bits `a` and `b` hold, to the vector `c`."""
        count = lane_count(c.type)
        type = vector_type(self.element, self.elements_per_sum * count)
        name = f"llvm.x86.{self.intrinsic}.{32 * count}"
        f.module.declare(name, c.type, [c.type, type, type])
        left, right = (f.emit(f"bitcast {x.type} {x} to {type}", type) for x in (a, b))
        return f.emit(f"call {c.type} @{name}({c.type} {c}, {type} {left}, {type} {right})", c.type)


DOT_PRODUCT_INSTRUCTIONS = {
    "bf16": DotProductInstruction("avx512bf16", "avx512bf16.dpbf16ps", "float", "bfloat", 2),
    "i16": DotProductInstruction("avx512vnni", "avx512.vpdpwssd", "i32", "i32", 1),
}
"""The instruction for each type of the elements of a pair."""
