"""The application of an elementwise operation to vectors: the argument of vector rules."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.kernels.math.registers import (
    VectorValue,
    lane_count_of,
    parts,
    real_vector,
    register_type,
)
from shardir.ir.operation import Attr
from shardir.ir.types import COMPLEX, FLOATS, SIGNED


class Divisor(NamedTuple):
    """The properties of integer divisors that a division needs, which a loop precomputes if
    invariant.

    `safe` is the divisor, with 1 in place of 0 (`is_zero`), which has no quotient, and of -1
    (`is_minus_one`, if signed), since the least integer has no negative. `is_one` flags divisors of
    1; it is set if all lanes are equal and `inverse` holds multipliers; `shift` is then the shift
    of a word quotient.
    """

    is_zero: LLVMValue
    is_minus_one: LLVMValue | None
    safe: LLVMValue
    inverse: LLVMValue | None
    is_one: LLVMValue | None = None
    shift: LLVMValue | None = None


@dataclass(frozen=True, slots=True)
class OpApplication:
    """`op` applied to `operands` of the element types `dtypes`, with elements of `result`."""

    function: LLVMFunction
    op: str
    attrs: Mapping[str, Attr]
    operands: tuple[VectorValue, ...]
    dtypes: tuple[str, ...]
    result: str
    divisor: Divisor | None = None
    """Precomputed properties of the second operand of an integer division."""

    @property
    def count(self) -> int:
        """The number of lanes."""
        return lane_count_of(self.operands[-1])

    @property
    def dtype(self) -> str:
        """The element type of the last operand, which determines the rule."""
        return self.dtypes[-1]

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_complex(self) -> bool:
        return self.dtype in COMPLEX

    @property
    def is_signed(self) -> bool:
        return self.dtype in SIGNED

    @property
    def values(self) -> tuple[LLVMValue, ...]:
        """The operands, none of them complex."""
        return tuple(real_vector(held) for held in self.operands)

    @property
    def pairs(self) -> tuple[tuple[LLVMValue, LLVMValue], ...]:
        """The operands, all of them complex."""
        return tuple(parts(held) for held in self.operands)

    @property
    def type(self) -> str:
        """The LLVM type of the result."""
        return register_type(self.result, self.count)

    def vector_of(self, element: str) -> str:
        """Return the LLVM vector type of another element type."""
        return vector_type(element, self.count)


VectorRule = Callable[[OpApplication], VectorValue | None]
"""Emits the instructions of an operation; returns `None` if the operation is not supported."""


def apply_to_parts(rule: Callable[[OpApplication], VectorValue | None]) -> VectorRule:
    """Return a rule that applies a rule for real vectors to both parts of complex ones."""

    def apply(a: OpApplication) -> VectorValue | None:
        if not a.is_complex:
            return rule(a)
        part = {"c64": "f32", "c128": "f64"}[a.dtype]
        parts_made = [
            rule(
                OpApplication(
                    a.function,
                    a.op,
                    a.attrs,
                    tuple(pair[i] for pair in a.pairs),
                    (part,) * len(a.dtypes),
                    part,
                )
            )
            for i in (0, 1)
        ]
        if parts_made[0] is None or parts_made[1] is None:
            return None
        return real_vector(parts_made[0]), real_vector(parts_made[1])

    return apply
