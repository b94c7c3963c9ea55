"""Maximum and minimum of floats: NaN is propagated, and +0 is greater than -0."""

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    element_type,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import architecture, host_machine


def emit_minimum_maximum(
    f: LLVMFunction, op: str, a: LLVMValue, b: LLVMValue, no_nan: bool = False
) -> LLVMValue:
    """Return `max` or `min` of two vectors; `no_nan` means that no element is NaN.

    If the processor has no such instruction, two comparisons are used: of equal operands, and of a
    number and NaN, they return one operand in one order and the other in the opposite order.
    Combining the bits of both results gives NaN if either is NaN; for two zeros the sign bits are
    combined by `and` (for `max`) or by `or`, and for other operands both results are the same.
    """
    if architecture(host_machine().triple) != "x86_64":
        return f.intrinsic("maximum" if op == "max" else "minimum", a, b)
    further = "ogt" if op == "max" else "olt"
    one = f.select(a.is_(further, b), a, b)
    other = f.select(b.is_(further, a), b, a)
    width = 32 if element_type(a.type) == "float" else 64
    bits = vector_type(f"i{width}", lane_count(a.type))
    whole, rest = one.to(bits, "bitcast"), other.to(bits, "bitcast")
    if op == "min":
        return (whole | rest).to(a.type, "bitcast")
    both = whole & rest
    if not no_nan:
        both = both | ((whole | rest) & ((1 << width - 1) - 1))
    return both.to(a.type, "bitcast")
