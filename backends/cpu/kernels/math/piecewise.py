"""Piecewise functions of f32: each lane selects the polynomial of its argument's interval.

Few steps suffice if tables in registers are available (AVX-512).
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMValue
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from shardir.backends.cpu.kernels.math.lookup_tables import apply_by_registers, lookup
from shardir.backends.cpu.kernels.math.vector_arithmetic import fma

PIECE_COUNT = 16
GETMANT_FROM_3_4, GETMANT_NAN_OF_NEGATIVE = 3, 8
"""The controls of `getmant`: m from 3/4 to 3/2, NaN for negative numbers."""


def piecewise_polynomial(x: LLVMValue, index: LLVMValue, name: str) -> LLVMValue:
    """Evaluate the polynomial that the four lowest bits of each lane's index select."""
    each = [POLYNOMIALS[f"{name}_{place}.f32"] for place in range(PIECE_COUNT)]
    total: LLVMValue | None = None
    for degree, column in reversed(list(enumerate(zip(*each, strict=True)))):
        coefficient = lookup(index, f"shardir_{name}_{degree}", column)
        total = coefficient if total is None else fma(total, x, coefficient)
    assert total is not None
    return total


def split_with_avx512(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return m and k of x = m 2^k with m from 3/4 to 3/2, by AVX-512 instructions.

    Subnormal numbers are supported; for 0 and infinity k is infinite, for negative numbers m is
    NaN.
    """
    m = apply_by_registers(
        lambda part: _instruction("getmant", part, GETMANT_FROM_3_4 + GETMANT_NAN_OF_NEGATIVE), x
    )
    return m, apply_by_registers(_get_exponent, x) - apply_by_registers(_get_exponent, m)


def _get_exponent(x: LLVMValue) -> LLVMValue:
    return _instruction("getexp", x)


def _instruction(name: str, x: LLVMValue, *choice: int) -> LLVMValue:
    """Emit an instruction with the default rounding mode on all lanes of a register."""
    f, type = x.function, x.type
    full = f"llvm.x86.avx512.mask.{name}.ps.512"
    given = ["i32 immarg"] * len(choice)
    f.module.declare(full, type, [type, *given, type, "i16", "i32 immarg"])
    controls = "".join(f"i32 {number}, " for number in choice)
    return f.emit(f"call {type} @{full}({type} {x}, {controls}{type} poison, i16 -1, i32 4)", type)
