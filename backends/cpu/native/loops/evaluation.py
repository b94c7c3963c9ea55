"""Steps of a body as instructions, each once, as far out as its operands allow."""

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
"""Where array `number` is now."""


@dataclass
class Values:
    """What is known of the steps of a body at some point of a kernel."""

    function: Function
    body: Body
    count: int
    held: dict[int, Held] = field(default_factory=dict)
    divisors: dict[int, Divisor] = field(default_factory=dict)

    def inner(self) -> "Values":
        """What is known here, to which an inner loop adds."""
        return Values(self.function, self.body, self.count, dict(self.held), dict(self.divisors))

    def keep_divisors(self) -> None:
        """Work out what inner loops ask of the integers known here that they divide by."""
        for step in self.body.steps:
            if step.op in ("div", "rem") and step.dtype in INTEGERS:
                by = step.operands[1]
                if by in self.held and by not in self.divisors:
                    self.divisors[by] = kept_divisor_of(registers.single(self.held[by]), step.dtype)

    def evaluate(
        self, steps: Sequence[int], vectors: Vectors, array: Find, index: Callable[[int], Held]
    ) -> None:
        """Make the values of these steps, in order; what is known stays as it is."""
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
    """The counted numbers of a vector whose first is `first`."""
    whole = splat(f, first, count)
    assert isinstance(whole, Value)
    if place.lying == SPLAT:
        return whole
    type = vector("i64", count)
    lanes = Value(f"<{', '.join(f'i64 {i}' for i in range(count))}>", type, f)
    if place.stride is None:
        return whole + lanes
    step = splat(f, place.stride, count)
    assert isinstance(step, Value)
    return whole + lanes * step


def same_along(body: Body, kinds: Sequence[tuple[str, str]], counted: int) -> list[int]:
    """The steps whose value is the same in all columns; reductions aside."""
    indices_from = len(kinds) - counted
    same: set[int] = set()
    for i, step in enumerate(body.steps):
        if step.kind == ARRAY:
            still = kinds[step.number][1] == SPLAT
        elif step.kind == IOTA:
            still = kinds[indices_from + step.number][1] == SPLAT
        else:
            still = step.kind != REDUCE and all(k in same for k in step.operands)
        if still:
            same.add(i)
    return sorted(same)
