"""Emit the steps of a body, each once, in the outermost loop that its operands allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from shardir.backends.cpu.native.llvm.text import Function, Value, vector
from shardir.backends.cpu.native.loops.access import Place, Vectors, splat
from shardir.backends.cpu.native.loops.axes import SPLAT
from shardir.backends.cpu.native.loops.body import APPLY, ARRAY, CONSTANT, IOTA, REDUCE, Body
from shardir.backends.cpu.native.vector import inline, registers
from shardir.backends.cpu.native.vector.division import Divisor, kept_divisor_of
from shardir.backends.cpu.native.vector.registers import Held
from shardir.types import INTEGERS

Find = Callable[[int], Place]
"""Returns the current place of array `number`."""


@dataclass
class Values:
    """The values of steps that are computed at some point of a kernel."""

    function: Function
    body: Body
    count: int
    held: dict[int, Held] = field(default_factory=dict)
    divisors: dict[int, Divisor] = field(default_factory=dict)

    def inner(self) -> "Values":
        """Return a copy to which an inner loop adds values."""
        return Values(self.function, self.body, self.count, dict(self.held), dict(self.divisors))

    def keep_divisors(self) -> None:
        """Precompute the reciprocals of integers that inner loops divide by."""
        for step in self.body.steps:
            if step.op in ("div", "rem") and step.dtype in INTEGERS:
                by = step.operands[1]
                if by in self.held and by not in self.divisors:
                    self.divisors[by] = kept_divisor_of(registers.single(self.held[by]), step.dtype)

    def evaluate(
        self, steps: Sequence[int], vectors: Vectors, array: Find, index: Callable[[int], Held]
    ) -> None:
        """Emit these steps in order, unless they are already computed."""
        for i in steps:
            if i in self.held:
                continue
            step = self.body.steps[i]
            if step.kind == ARRAY:
                self.held[i] = vectors.load(array(step.number))
            elif step.kind == CONSTANT:
                number = dict(step.attrs)["value"]
                self.held[i] = registers.constant(self.function, number, step.dtype, self.count)
            elif step.kind == IOTA:
                self.held[i] = self._apply("convert", {}, [index(step.number)], ["i64"], step.dtype)
            elif step.kind == APPLY:
                operands = [self.held[k] for k in step.operands]
                dtypes = [self.body.steps[k].dtype for k in step.operands]
                by = self.divisors.get(step.operands[-1]) if len(operands) == 2 else None
                self.held[i] = self._apply(
                    step.op, dict(step.attrs), operands, dtypes, step.dtype, by
                )

    def _apply(
        self,
        op: str,
        attrs: dict[str, object],
        operands: Sequence[Held],
        dtypes: Sequence[str],
        result: str,
        divisor: Divisor | None = None,
    ) -> Held:
        made = inline.emit(self.function, op, attrs, operands, dtypes, result, divisor)
        if made is None:
            raise NotImplementedError(f"no instructions for {op} of {', '.join(dtypes)}")
        return made


def indices(f: Function, place: Place, first: Value, count: int) -> Held:
    """Return a vector of iota indices that starts with `first`."""
    splat_first = splat(f, first, count)
    assert isinstance(splat_first, Value)
    if place.lying == SPLAT:
        return splat_first
    type = vector("i64", count)
    lanes = Value(f"<{', '.join(f'i64 {i}' for i in range(count))}>", type, f)
    if place.stride is None:
        return splat_first + lanes
    step = splat(f, place.stride, count)
    assert isinstance(step, Value)
    return splat_first + lanes * step


def same_along(body: Body, kinds: Sequence[tuple[str, str]], counted: int) -> list[int]:
    """Return the steps whose value is the same in all columns, reductions excluded."""
    indices_from = len(kinds) - counted
    same: set[int] = set()
    for i, step in enumerate(body.steps):
        if step.kind == ARRAY:
            is_invariant = kinds[step.number][1] == SPLAT
        elif step.kind == IOTA:
            is_invariant = kinds[indices_from + step.number][1] == SPLAT
        else:
            is_invariant = step.kind != REDUCE and all(k in same for k in step.operands)
        if is_invariant:
            same.add(i)
    return sorted(same)
