"""Piecewise functions of f32: each lane selects the polynomial of its argument's interval.

Few steps suffice if tables in registers are available (AVX-512).
"""

from shardir.backends.cpu.native.llvm.text import Value
from shardir.backends.cpu.native.vector.arithmetic import fma
from shardir.backends.cpu.native.vector.coefficients import POLYNOMIALS
from shardir.backends.cpu.native.vector.tables import by_registers, looked_up

PIECES = 16
FROM_3_4, NAN_OF_NEGATIVE = 3, 8
"""The controls of `getmant`: m from 3/4 to 3/2, NaN for negative numbers."""


def chosen(x: Value, index: Value, name: str) -> Value:
    """Evaluate the polynomial that the four lowest bits of each lane's index select."""
    each = [POLYNOMIALS[f"{name}_{place}.f32"] for place in range(PIECES)]
    total: Value | None = None
    for degree, column in reversed(list(enumerate(zip(*each, strict=True)))):
        coefficient = looked_up(index, f"shardir_{name}_{degree}", column)
        total = coefficient if total is None else fma(total, x, coefficient)
    assert total is not None
    return total


def split_at_once(x: Value) -> tuple[Value, Value]:
    """Return m and k of x = m 2^k with m from 3/4 to 3/2, by AVX-512 instructions.

    Subnormal numbers are supported; for 0 and infinity k is infinite, for negative numbers m is
    NaN.
    """
    m = by_registers(lambda part: _instruction("getmant", part, FROM_3_4 + NAN_OF_NEGATIVE), x)
    return m, by_registers(_exponent, x) - by_registers(_exponent, m)


def _exponent(x: Value) -> Value:
    return _instruction("getexp", x)


def _instruction(name: str, x: Value, *choice: int) -> Value:
    """Emit an instruction with the default rounding mode on all lanes of a register."""
    f, type = x.function, x.type
    full = f"llvm.x86.avx512.mask.{name}.ps.512"
    given = ["i32 immarg"] * len(choice)
    f.module.declare(full, type, [type, *given, type, "i16", "i32 immarg"])
    controls = "".join(f"i32 {number}, " for number in choice)
    return f.emit(f"call {type} @{full}({type} {x}, {controls}{type} poison, i16 -1, i32 4)", type)
