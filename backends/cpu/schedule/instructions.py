"""Encode items that need no Python as instructions for the native interpreter of control flow.

See `dispatch.control_interpreter` for the semantics of the instructions.
"""

from collections.abc import Callable, Iterator, Sequence

from shardir.backends.cpu.dispatch.control_interpreter import (
    CLOCK_CHECK_INTERVAL_NANOSECONDS,
    MIN_ITERATION_NANOSECONDS,
    Instruction,
    Opcode,
)
from shardir.backends.cpu.schedule.items import (
    BranchItem,
    Item,
    NumPyCall,
    ScanItem,
    Segment,
    WhileItem,
)

ProgramAddress = Callable[[Segment], int]
"""Maps a segment to the address of the program that runs its phases."""


def has_only_native_items(items: Sequence[Item]) -> bool:
    """Return whether no item, at any depth, needs NumPy."""
    return not any(isinstance(item, NumPyCall) for item in walk_items(items))


def walk_items(items: Sequence[Item]) -> Iterator[Item]:
    """Yield all items in order, nested ones included."""
    for item in items:
        yield item
        for inner in _nested_items(item):
            yield from walk_items(inner)


def native_segments(items: Sequence[Item]) -> list[Segment]:
    """Return all native segments in order."""
    return [item for item in walk_items(items) if isinstance(item, Segment)]


def moved_slots(items: Sequence[Item]) -> tuple[int, ...]:
    """Return the slots whose addresses change while the items run."""
    found: dict[int, None] = {}
    for item in walk_items(items):
        if isinstance(item, ScanItem | WhileItem):
            found.update((slot, None) for pair in item.swaps for slot in pair)
        if isinstance(item, ScanItem):
            found.update((each.row, None) for each in item.rows)
    return tuple(found)


def _nested_items(item: Item) -> tuple[Sequence[Item], ...]:
    if isinstance(item, ScanItem):
        return (item.body,)
    if isinstance(item, WhileItem):
        return (item.condition, item.body)
    return item.branches if isinstance(item, BranchItem) else ()


def estimate_cost(items: Sequence[Item]) -> float:
    """Estimate the nanoseconds of one run; of one iteration for loops with an unknown trip
    count."""
    total = 0.0
    for item in items:
        if isinstance(item, Segment):
            total += sum(phase.cost for phase in item.phases)
        elif isinstance(item, BranchItem):
            total += min(map(estimate_cost, item.branches), default=0.0)
        else:
            rounds = item.length if isinstance(item, ScanItem) else 1
            total += rounds * sum(map(estimate_cost, _nested_items(item)))
    return total


class InstructionWriter:
    """Writes the instructions of items; `written` are the instructions, `registers` counts
    registers."""

    def __init__(self, programs: ProgramAddress) -> None:
        self.written: list[Instruction] = []
        self.registers = 0
        self._programs = programs

    def write(self, items: Sequence[Item]) -> None:
        """Append the instructions of items."""
        for item in items:
            if isinstance(item, Segment):
                self._add(Opcode.RUN, self._programs(item))
            elif isinstance(item, ScanItem):
                self._write_loop(item)
            elif isinstance(item, WhileItem):
                self._write_while(item)
            else:
                assert isinstance(item, BranchItem)
                self._write_branch(item)

    def _add(self, code: Opcode, first: int = 0, second: int = 0, third: int = 0) -> int:
        self.written.append((code, first, second, third))
        return len(self.written) - 1

    def _register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def _patch_jump(self, number: int, place: int = 1) -> None:
        """Set the target of a jump that is already written to the next instruction."""
        words = list(self.written[number])
        words[place] = len(self.written)
        code, first, second, third = words
        self.written[number] = code, first, second, third

    def _write_back_edge(self, to: int, items: Sequence[Item]) -> None:
        weight = max(
            MIN_ITERATION_NANOSECONDS,
            min(int(estimate_cost(items)), CLOCK_CHECK_INTERVAL_NANOSECONDS),
        )
        self._add(Opcode.LOOP, to, weight)

    def _swap(self, pairs: Sequence[tuple[int, int]]) -> None:
        for a, b in pairs:
            self._add(Opcode.SWAP, a, b)

    def _write_loop(self, item: ScanItem) -> None:
        rounds = self._register()
        self._add(Opcode.SET, rounds, item.length)
        shown = []
        for each in item.rows:
            register, step = self._register(), -each.step if item.backwards else each.step
            first = (item.length - 1) * each.step if item.backwards else 0
            self._add(Opcode.LOAD_ADDRESS, register, each.start.slot, each.start.offset + first)
            shown.append((each.row, register, step))
        head = self._add(Opcode.DECREMENT_OR_JUMP, rounds)
        for row in shown:
            self._add(Opcode.STORE_AND_ADVANCE, *row)
        self.write(item.body)
        self._swap(item.swaps)
        self._write_back_edge(head, item.body)
        self._patch_jump(head, 2)

    def _write_while(self, item: WhileItem) -> None:
        start = len(self.written)
        self.write(item.condition)
        leave = self._add(Opcode.JUMP_IF_ZERO, item.going.slot, item.going.offset)
        self.write(item.body)
        self._swap(item.swaps)
        self._write_back_edge(start, (*item.condition, *item.body))
        self._patch_jump(leave, 3)

    def _write_branch(self, item: BranchItem) -> None:
        slot, offset, last = item.index.slot, item.index.offset, len(item.branches) - 1
        if item.index.dtype == "bool":
            # The second of two branches is written first.
            starts = [self._add(Opcode.JUMP_IF_ZERO, slot, offset)]
            order = [1, 0]
        else:
            self._add(Opcode.JUMP_BY_INDEX, slot, offset, last)
            starts = [self._add(Opcode.JUMP) for _ in item.branches]
            order = list(range(last + 1))
        ends = []
        for number in order:
            if item.index.dtype != "bool":
                self._patch_jump(starts[number])
            elif number == 0:
                self._patch_jump(starts[0], 3)
            self.write(item.branches[number])
            ends.append(self._add(Opcode.JUMP))
        for end in ends:
            self._patch_jump(end)
