"""What tiles ask for while they are made: the numbers that are packed, or read, next.

Whoever packs numbers that come from far waits for them; a tile has room for a question in each
step, and the memory has time to answer.
"""

from typing import final

from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.llvm.text import Function, Number, Value


@final
class Soon:
    """Lines of memory to ask for, by some tiles one after the other.

    The first tile asks for what begins at `start`: with each step for a line that is `pace` bytes
    further on, and it begins again with each share of steps, `each` bytes further on for a step.
    The next tile begins `jump` bytes further on.
    """

    def __init__(self, f: Function, start: Value) -> None:
        self._f = f
        self._start = f.variable("ptr", start)
        self._pace, self._each, self._jump = (f.variable("i64", 0) for _ in range(3))

    def packed(self, start: Value, steps: Value) -> None:
        """What lies packed: so many lines for each tile."""
        self._set(start, LINE, LINE, steps * LINE)

    def lying(self, start: Value, step: Value, line: Value, item: int, size: int) -> None:
        """Lines of an operand, of numbers of `item` bytes, from the address of the first one on.
        Steps are `step` bytes apart and lines `line` bytes; packed numbers have `size` bytes.

        If steps are neighbours, each share of them takes a line of memory of each of the operand's
        lines; if these are neighbours, each step takes one of all of them.
        """
        along, f = step.is_("eq", item), self._f
        pace = f.select(along, line, step)
        self._set(start, pace, step, f.select(along, line * (LINE // size), LINE))

    def _set(self, start: Value, pace: Number, each: Number, jump: Number) -> None:
        self._start.set(start)
        for place, value in ((self._pace, pace), (self._each, each), (self._jump, jump)):
            place.set(value)

    def of(self, number: Value) -> tuple[Value, Value, Value]:
        """Where a tile begins, its pace, and how far it is to the next step's share."""
        start = self._f.offset(self._start.get(), number * self._jump.get())
        return start, self._pace.get(), self._each.get()
