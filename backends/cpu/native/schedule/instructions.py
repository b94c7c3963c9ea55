"""Encode items that need no Python as instructions for the native interpreter of control flow.

See `dispatch.control_interpreter` for the semantics of the instructions.
"""

from collections.abc import Callable, Iterator, Sequence

from shardir.backends.cpu.native.runtime.looping import LEAST_WEIGHT, LOOK, Do, Instruction
from shardir.backends.cpu.native.schedule.items import Branch, Host, Item, Loop, Segment, While

Programs = Callable[[Segment], int]
"""Maps a segment to the address of the program that runs its phases."""


def are_native(items: Sequence[Item]) -> bool:
    """Return whether no item, at any depth, needs NumPy."""
    return not any(isinstance(item, Host) for item in every(items))


def every(items: Sequence[Item]) -> Iterator[Item]:
    """Yield all items in order, nested ones included."""
    for item in items:
        yield item
        for inner in _inside(item):
            yield from every(inner)


def segments(items: Sequence[Item]) -> list[Segment]:
    """Return all native segments in order."""
    return [item for item in every(items) if isinstance(item, Segment)]


def moved(items: Sequence[Item]) -> tuple[int, ...]:
    """Return the slots whose addresses change while the items run."""
    found: dict[int, None] = {}
    for item in every(items):
        if isinstance(item, Loop | While):
            found.update((slot, None) for pair in item.swaps for slot in pair)
        if isinstance(item, Loop):
            found.update((each.row, None) for each in item.rows)
    return tuple(found)


def _inside(item: Item) -> tuple[Sequence[Item], ...]:
    if isinstance(item, Loop):
        return (item.body,)
    if isinstance(item, While):
        return (item.condition, item.body)
    return item.branches if isinstance(item, Branch) else ()


def cost_of(items: Sequence[Item]) -> float:
    """Estimate the nanoseconds of one run; of one iteration for loops with an unknown trip
    count."""
    total = 0.0
    for item in items:
        if isinstance(item, Segment):
            total += sum(phase.cost for phase in item.phases)
        elif isinstance(item, Branch):
            total += min(map(cost_of, item.branches), default=0.0)
        else:
            rounds = item.length if isinstance(item, Loop) else 1
            total += rounds * sum(map(cost_of, _inside(item)))
    return total


class Writer:
    """Writes the instructions of items; `written` are the instructions, `registers` counts
    registers."""

    def __init__(self, programs: Programs) -> None:
        self.written: list[Instruction] = []
        self.registers = 0
        self._programs = programs

    def write(self, items: Sequence[Item]) -> None:
        """Append the instructions of items."""
        for item in items:
            if isinstance(item, Segment):
                self._add(Do.RUN, self._programs(item))
            elif isinstance(item, Loop):
                self._loop(item)
            elif isinstance(item, While):
                self._while(item)
            else:
                assert isinstance(item, Branch)
                self._branch(item)

    def _add(self, code: Do, first: int = 0, second: int = 0, third: int = 0) -> int:
        self.written.append((code, first, second, third))
        return len(self.written) - 1

    def _register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def _here(self, number: int, place: int = 1) -> None:
        """Set the target of a jump that is already written to the next instruction."""
        words = list(self.written[number])
        words[place] = len(self.written)
        code, first, second, third = words
        self.written[number] = code, first, second, third

    def _again(self, to: int, items: Sequence[Item]) -> None:
        weight = max(LEAST_WEIGHT, min(int(cost_of(items)), LOOK))
        self._add(Do.AGAIN, to, weight)

    def _swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        for a, b in pairs:
            self._add(Do.SWAP, a, b)

    def _loop(self, item: Loop) -> None:
        rounds = self._register()
        self._add(Do.SET, rounds, item.length)
        shown = []
        for each in item.rows:
            register, step = self._register(), -each.step if item.backwards else each.step
            first = (item.length - 1) * each.step if item.backwards else 0
            self._add(Do.START, register, each.start.slot, each.start.offset + first)
            shown.append((each.row, register, step))
        head = self._add(Do.COUNT, rounds)
        for row in shown:
            self._add(Do.SHOW, *row)
        self.write(item.body)
        self._swap(item.swaps)
        self._again(head, item.body)
        self._here(head, 2)

    def _while(self, item: While) -> None:
        start = len(self.written)
        self.write(item.condition)
        leave = self._add(Do.UNLESS, item.going.slot, item.going.offset)
        self.write(item.body)
        self._swap(item.swaps)
        self._again(start, (*item.condition, *item.body))
        self._here(leave, 3)

    def _branch(self, item: Branch) -> None:
        slot, offset, last = item.index.slot, item.index.offset, len(item.branches) - 1
        if item.index.dtype == "bool":
            # The second of two branches is written first.
            starts = [self._add(Do.UNLESS, slot, offset)]
            order = [1, 0]
        else:
            self._add(Do.CHOOSE, slot, offset, last)
            starts = [self._add(Do.JUMP) for _ in item.branches]
            order = list(range(last + 1))
        ends = []
        for number in order:
            if item.index.dtype != "bool":
                self._here(starts[number])
            elif number == 0:
                self._here(starts[0], 3)
            self.write(item.branches[number])
            ends.append(self._add(Do.JUMP))
        for end in ends:
            self._here(end)
