"""Build a schedule: assign slots and addresses, and lower every operation by its rule.

The slots of a program are scratch memory, the arena, its arguments, results and constants, then the
buffers whose address changes while the program runs, and temporaries of single operations.

`compile_schedule` compiles a program over unsharded arrays with the rules of all operations. This
module is not imported for programs whose schedules are on disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod

from shardir.backends.cpu.codegen.cache_keys import load_extension_rules
from shardir.backends.cpu.codegen.kernel_table import start_compiling
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, Phase, Rules
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.gather import lookup_phases
from shardir.backends.cpu.kernels.elementwise.rules import lower_loop_nest
from shardir.backends.cpu.kernels.rules import LAYOUT_RULES, RULES
from shardir.backends.cpu.schedule.arena import (
    BufferKind,
    PlannedBuffer,
    align_up,
    assign_offsets,
    match_pairs,
    reuse_operands,
)
from shardir.backends.cpu.schedule.bool_arguments import find_bool_arguments
from shardir.backends.cpu.schedule.function_lowering import Lowered, lower_function
from shardir.backends.cpu.schedule.gather_fusion import fuse_gathers
from shardir.backends.cpu.schedule.items import (
    ARENA_SLOT,
    BranchItem,
    CopyItem,
    GatherElements,
    Item,
    NumPyCall,
    RowPointer,
    ScanItem,
    Schedule,
    Segment,
    WhileItem,
    WorkItem,
)
from shardir.backends.cpu.threads.workers import worker_count
from shardir.display.byte_sizes import show_bytes
from shardir.errors import OutOfMemoryError
from shardir.ir.module import Function
from shardir.ops.control_flow.loop_unification import is_pointwise

FIRST_ARGUMENT_SLOT = 2
MAX_ADDRESSABLE_BYTES = 1 << 56
"""Bytes of the address space of a process on the largest 64-bit machines. The program of a schedule
computes with offsets and sizes of 64 bits."""
MAX_LOOP_ITERATIONS = (1 << 63) - 1
"""Iterations that a loop counts in 64 bits. A value in memory has fewer elements, but a value that
is computed in the loop that uses it has no buffer."""


def _check_addressable(arena_bytes: int, buffers: Sequence[PlannedBuffer]) -> None:
    """Raise `OutOfMemoryError` for buffers that no address space can hold."""
    others = sum(buffer.nbytes for buffer in buffers if buffer.kind is not BufferKind.ARENA)
    if (needed := arena_bytes + others) > MAX_ADDRESSABLE_BYTES:
        raise OutOfMemoryError(
            f"no memory for {show_bytes(needed)}: a process can address at most "
            f"{show_bytes(MAX_ADDRESSABLE_BYTES)}; compute on smaller arrays"
        )


def _check_countable(function: Function) -> None:
    """Raise `OutOfMemoryError` for values with more elements than a loop can count."""
    for op in function.body.walk():
        for value in op.results:
            if value.type.size > MAX_LOOP_ITERATIONS:
                raise OutOfMemoryError(
                    f"a loop cannot compute {value.type}: it has more than "
                    f"{MAX_LOOP_ITERATIONS} elements; compute on smaller arrays"
                )


class ScheduleBuilder:
    """The lowering context of rules, and the slots of all buffers.

    `begin` is called with each kernel when it is first needed.
    """

    def __init__(
        self, lowered: Lowered, rules: Rules, workers: int, machine: HostDescription,
        begin: Callable[[Kernel, HostDescription], None],
    ) -> None:  # fmt: skip
        self._lowered, self._rules, self._begin = lowered, rules, begin
        self.workers, self.machine = workers, machine
        self._temporaries: list[int] = []
        """The largest size of each temporary among the operations that were built."""
        self._requested: list[int] = []
        """The sizes of the temporaries of the operation that is being built."""
        self._slots: list[int] = []
        self._overwritable_arguments = reuse_operands(lowered.pairs)
        arena = [b for b in lowered.buffers if b.kind is BufferKind.ARENA]
        self._arena_bytes = assign_offsets(arena)
        _check_addressable(self._arena_bytes, lowered.buffers)
        next_slot = FIRST_ARGUMENT_SLOT
        for buffer in lowered.buffers:
            if buffer.kind is BufferKind.ARENA and not buffer.pinned:
                self._slots.append(ARENA_SLOT)
            else:
                self._slots.append(next_slot)
                next_slot += 1
        self._first_temporary = next_slot

    def temporary(self, nbytes: int) -> int:
        """Return the slot of a buffer that only the phases of this operation use."""
        self._requested.append(nbytes)
        return self._first_temporary + len(self._requested) - 1

    def build(self) -> Schedule:
        """Return the schedule of the program."""
        items = self._build_items(self._lowered.items)
        pinned = [
            (slot, buffer.offset)
            for slot, buffer in zip(self._slots, self._lowered.buffers, strict=True)
            if buffer.kind is BufferKind.ARENA and buffer.pinned
        ]
        total = self._arena_bytes
        for i, nbytes in enumerate(self._temporaries):
            pinned.append((self._first_temporary + i, total))
            total += align_up(nbytes)
        of = {
            kind: self._slots_of_kind(kind)
            for kind in (BufferKind.ARGUMENT, BufferKind.RESULT, BufferKind.CONSTANT)
        }
        return Schedule(
            tuple(items),
            self._first_temporary + len(self._temporaries),
            self._lowered.types,
            sum(buffer.nbytes for _, buffer in of[BufferKind.ARGUMENT]),
            tuple(slot for slot, _ in of[BufferKind.ARGUMENT]),
            tuple(slot for slot, _ in of[BufferKind.RESULT]),
            tuple(buffer.nbytes for _, buffer in of[BufferKind.RESULT]),
            self._lowered.sources,
            tuple(
                (slot, self._lowered.constants[buffer.number])
                for slot, buffer in of[BufferKind.CONSTANT]
            ),
            tuple(pinned),
            total,
            self._lowered.buffers,
            self._donation_pairs(),
            find_bool_arguments(items, self._lowered.buffers),
            self.machine,
        )

    def _donation_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return (argument, result) pairs of which the result may reuse the argument's memory.

        The result either overwrites the argument element by element, or is first written after the
        last read of the argument. The arguments that a caller donates are unknown here, so an
        argument or a result may occur in several pairs; `match_pairs` selects.
        """
        kept = {number for kind, number in self._lowered.sources if kind is BufferKind.ARGUMENT}
        made = {number for kind, number in self._lowered.sources if kind is BufferKind.RESULT}
        pairs = [(a, r) for a, r in self._overwritable_arguments if a not in kept and r in made]
        arguments = [b for b in self._lowered.buffers if b.kind is BufferKind.ARGUMENT]
        results = [b for b in self._lowered.buffers if b.kind is BufferKind.RESULT]
        matched = match_pairs(pairs)
        taken = {*matched.values(), *kept}
        served = set(matched)
        for result in results:
            for argument in arguments:
                fits = argument.nbytes == result.nbytes and argument.last < result.first
                if fits and argument.number not in taken and result.number in made - served:
                    pairs.append((argument.number, result.number))
                    taken.add(argument.number)
                    served.add(result.number)
        return tuple(pairs)

    def _slots_of_kind(self, kind: BufferKind) -> list[tuple[int, PlannedBuffer]]:
        pairs = zip(self._slots, self._lowered.buffers, strict=True)
        return [(slot, buffer) for slot, buffer in pairs if buffer.kind is kind]

    def _to_slots(self, view: BufferView) -> BufferView:
        """Return the view with slots instead of buffer indices."""
        buffer = self._lowered.buffers[view.slot]
        slot = self._slots[view.slot]
        return view._replace(slot=slot, offset=view.offset + buffer.offset * (slot == ARENA_SLOT))

    def _to_slots_all(self, views: Sequence[BufferView]) -> tuple[BufferView, ...]:
        return tuple(map(self._to_slots, views))

    def _build_items(self, items: Sequence[Item]) -> tuple[Item, ...]:
        built: list[Item] = []
        for item in items:
            self._requested.clear()
            if isinstance(item, WorkItem):
                self._build_work(item, built)
            elif isinstance(item, GatherElements):
                views = self._to_slots_all(item.operands), self._to_slots_all(item.results)
                self._append(built, lookup_phases(item.op, *views, item.fill, self), item)
            elif isinstance(item, CopyItem):
                source, target = self._to_slots(item.source), self._to_slots(item.target)
                self._append(built, copy_phases(source, target, self), item)
            else:
                built.append(self._build_control_flow(item))
        return tuple(built)

    def _build_work(self, item: WorkItem, built: list[Item]) -> None:
        operands, results = self._to_slots_all(item.operands), self._to_slots_all(item.results)
        if results and all(prod(view.shape) == 0 for view in results):
            return
        rule = self._rules.get(item.op.name)
        if rule is None and is_pointwise(item.op.spec):  # An operation of another package.
            rule = lower_loop_nest
        phases = rule(item.op, operands, results, self) if rule is not None else None
        if phases is None:
            built.append(NumPyCall(item.op, operands, results))
        else:
            self._append(built, phases, item)

    def _append(
        self,
        built: list[Item],
        phases: Sequence[Phase],
        cause: WorkItem | GatherElements | CopyItem,
    ) -> None:
        if not built or not isinstance(built[-1], Segment):
            built.append(Segment())
        segment = built[-1]
        assert isinstance(segment, Segment)
        # A rule that returns no phases may have requested temporaries before; they take no memory.
        pairs = zip_longest(self._temporaries, self._requested, fillvalue=0)
        self._temporaries = [max(pair) for pair in pairs]
        segment.phases.extend(phases)
        segment.causes.extend([cause] * len(phases))
        for phase in phases:
            self._begin(phase.kernel, self.machine)

    def _build_control_flow(self, item: Item) -> Item:
        if isinstance(item, ScanItem):
            rows = tuple(
                RowPointer(self._slots[r.row], self._to_slots(r.start), r.step) for r in item.rows
            )
            return item._replace(
                rows=rows, swaps=self._slot_pairs(item.swaps), body=self._build_items(item.body)
            )
        if isinstance(item, WhileItem):
            return item._replace(
                condition=self._build_items(item.condition),
                going=self._to_slots(item.going),
                swaps=self._slot_pairs(item.swaps),
                body=self._build_items(item.body),
            )
        assert isinstance(item, BranchItem)
        branches = tuple(self._build_items(branch) for branch in item.branches)
        return replace(item, index=self._to_slots(item.index), branches=branches)

    def _slot_pairs(self, pairs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((self._slots[a], self._slots[b]) for a, b in pairs)


def compile_schedule(function: Function, machine: HostDescription) -> Schedule:
    """Return the schedule of a function for one device; its kernels are selected for a machine."""
    load_extension_rules()
    lowered = fuse_gathers(lower_function(function, LAYOUT_RULES))
    builder = ScheduleBuilder(lowered, RULES, worker_count(), machine, start_compiling)
    _check_countable(function)
    return builder.build()
