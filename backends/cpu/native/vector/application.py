"""One application of an elementwise operation to vectors, as the rules see it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardir.backends.cpu.native.llvm.text import Function, Value, vector
from shardir.backends.cpu.native.vector.registers import Held, count_of, parts, register, single
from shardir.opset import Attr
from shardir.types import COMPLEX, FLOATS, SIGNED

if TYPE_CHECKING:
    from shardir.backends.cpu.native.vector.division import Divisor


@dataclass(frozen=True, slots=True)
class Application:
    """`op` of `operands` whose element types are `dtypes`, giving elements of `result`."""

    function: Function
    op: str
    attrs: Mapping[str, Attr]
    operands: tuple[Held, ...]
    dtypes: tuple[str, ...]
    result: str
    divisor: "Divisor | None" = None
    """What is known of the second operand of an integer division."""

    @property
    def count(self) -> int:
        """Lanes of the operands."""
        return count_of(self.operands[-1])

    @property
    def dtype(self) -> str:
        """The element type of the operand that matters: the last one."""
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
    def values(self) -> tuple[Value, ...]:
        """The operands, of which none is complex."""
        return tuple(single(held) for held in self.operands)

    @property
    def pairs(self) -> tuple[tuple[Value, Value], ...]:
        """The operands, which are all complex."""
        return tuple(parts(held) for held in self.operands)

    @property
    def type(self) -> str:
        """The LLVM type of the result."""
        return register(self.result, self.count)

    def lanes_of(self, element: str) -> str:
        """The LLVM type of as many lanes of another element."""
        return vector(element, self.count)


Rule = Callable[[Application], Held | None]
"""How an operation becomes instructions; `None` where it does not."""


def each_part(rule: Callable[[Application], Held | None]) -> Rule:
    """A rule for real numbers, used on both parts of complex ones."""

    def apply(a: Application) -> Held | None:
        if not a.is_complex:
            return rule(a)
        part = {"c64": "f32", "c128": "f64"}[a.dtype]
        made = [
            rule(
                Application(
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
        if made[0] is None or made[1] is None:
            return None
        return single(made[0]), single(made[1])

    return apply
