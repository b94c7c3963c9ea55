"""Executables of the native backend: one native call for all work between two NumPy calls.

A program over unsharded arrays becomes a schedule, which is compiled. A run passes the addresses of
its arguments, allocates memory for its results and for one arena, and calls the native code.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, final

import numpy as np

from shardir.backends.base import Launch, UnshardedExecutable
from shardir.backends.cpu.codegen import kernel_table
from shardir.backends.cpu.dispatch import control_interpreter, launch as launching
from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.dispatch.program_table import RunProgram, load_program, program_address
from shardir.backends.cpu.schedule.arena import BufferKind, align_up, match_pairs
from shardir.backends.cpu.schedule.instructions import (
    InstructionWriter,
    has_only_native_items,
    moved_slots,
    native_segments,
)
from shardir.backends.cpu.schedule.items import ARENA_SLOT, Item, Schedule, Segment
from shardir.backends.cpu.schedule.python_steps import make_steps
from shardir.backends.cpu.schedule.schedule_text import describe_schedule
from shardir.backends.cpu.threads.memory import allocate, may_be_written
from shardir.backends.cpu.threads.workers import worker_pool
from shardir.backends.storage import Storage
from shardir.cost.memory import MemoryEstimate
from shardir.errors import ShardirError
from shardir.ir.module import Function, Op

if TYPE_CHECKING:
    from shardir.backends.cpu.schedule.python_steps import OutsideExecutor

Step = Callable[[list[int]], None]
"""Runs a part of a program, given the base addresses of its slots."""
FunctionSchedule = tuple[Function, Schedule]
"""A function, and its schedule with buffers and with the causes of phases."""

MAX_SHARED_BLOCK_BYTES = 4096
"""Results up to this size together share one block: many small allocations take longer."""


def _count_sole_references() -> tuple[int, int]:
    """Return the references to a storage and to its memory if only one array holds them.

    The counts include those of a call like in `NativeExecutable`, which depend on Python's version.
    """
    arguments = [Storage(0, object(), (), np.dtype(np.uint8))]
    arrays = [arguments[0]]
    storage = arrays[0]
    owner = storage.owner
    return getrefcount(storage), getrefcount(owner)


SOLE_STORAGE_REFERENCES, SOLE_OWNER_REFERENCES = _count_sole_references()


def _reject_outside_ops(op: Op) -> None:
    """Return `None`: no operation involves other processes."""


@final
class NativeExecutable(UnshardedExecutable):
    """A compiled schedule.

    `load_origin` returns the function and its full schedule on demand: a schedule from disk does
    not contain them. `outside` returns the implementation of operations that involve other
    processes.
    """

    def __init__(
        self,
        schedule: Schedule,
        load_origin: Callable[[], FunctionSchedule],
        outside: "OutsideExecutor | None" = None,
    ) -> None:
        self.schedule, self._origin, self._outside = (
            schedule,
            load_origin,
            outside or _reject_outside_ops,
        )
        self._segments = native_segments(schedule.items)
        # All kernels together, so that several cores compile those that are new.
        kernel_table.kernel_addresses(
            (phase.kernel for each in self._segments for phase in each.phases), schedule.machine
        )
        self._enter = (
            self._build_entry(schedule.items) if has_only_native_items(schedule.items) else None
        )
        self._steps = self._steps_of()
        self._prepare()

    def _steps_of(self) -> tuple[Step, ...]:
        enter = self._enter
        if enter is None:
            return make_steps(self.schedule.items, self._build_step, self._outside)

        def step(bases: list[int]) -> None:
            enter(*bases[1:])

        return (step,)

    def _build_entry(self, items: Sequence[Item], entry: str = "entry") -> RunProgram:
        """Return a native function of base addresses for items without a NumPy call."""
        if len(items) == 1 and isinstance(items[0], Segment):
            return self._load(items[0])
        loaded: list[RunProgram] = []

        def address(segment: Segment) -> int:
            loaded.append(self._load(segment))
            return program_address(loaded[-1])

        writer = InstructionWriter(address)
        writer.write(items)
        code, slots = worker_pool().code[entry], self.schedule.slots
        return control_interpreter.make_control_function(
            code, writer.written, writer.registers, slots, loaded
        )

    def _load(self, segment: Segment) -> RunProgram:
        index = next(i for i, each in enumerate(self._segments) if each is segment)
        causes = segment.causes or (lambda: self._causes(index))
        return load_program(
            segment.phases, self.schedule.slots, causes=causes, machine=self.schedule.machine
        )

    def _build_step(self, items: Sequence[Item]) -> Step:
        """Return a step for the items between NumPy calls; it updates addresses that the items
        change."""
        slots = moved_slots(items)
        if not slots:
            enter = self._build_entry(items)

            def step(bases: list[int]) -> None:
                enter(*bases[1:])

            return step
        run, count = self._build_entry(items, "loop"), self.schedule.slots

        def moving(bases: list[int]) -> None:
            table = (ctypes.c_int64 * count)(*bases)
            run(ctypes.addressof(table))
            for slot in slots:
                bases[slot] = table[slot]

        return moving

    def _causes(self, number: int) -> Sequence[object]:
        _, schedule = self._origin()
        return native_segments(schedule.items)[number].causes

    def _prepare(self) -> None:
        """Precompute what every run needs."""
        schedule = self.schedule
        self._constants = [Storage.of(array) for _, array in schedule.constants]
        self._template = [0] * schedule.slots
        for (slot, _), storage in zip(schedule.constants, self._constants, strict=True):
            self._template[slot] = storage.address
        result_numbers = sorted(
            {number for kind, number in schedule.sources if kind is BufferKind.RESULT}
        )
        types = schedule.types
        self._result_buffers = [
            (
                number,
                schedule.results[number],
                schedule.result_bytes[number],
                types[number].shape,
                types[number].numpy,
            )
            for number in result_numbers
        ]
        total = sum(align_up(nbytes) for _, _, nbytes, *_ in self._result_buffers)
        self._shared_block_bytes = (
            total if len(self._result_buffers) > 1 and total <= MAX_SHARED_BLOCK_BYTES else 0
        )
        self._sources = schedule.sources
        self._shapes = [(type.shape, type.numpy) for type in types]
        # Most programs return each of their result buffers, in order.
        self._returns_results_in_order = self._sources == tuple(
            (BufferKind.RESULT, i) for i in range(len(types))
        )

    def run(self, args: Sequence[Storage], donated: Sequence[int] = ()) -> list[Storage]:
        schedule = self.schedule
        given = self._donated_blocks(args, donated) if donated else {}
        bases = self._template.copy()
        for slot, arg in zip(schedule.arguments, args, strict=True):
            bases[slot] = arg.address
        if schedule.arena_bytes:
            arena = allocate(schedule.arena_bytes)
            start = bases[ARENA_SLOT] = arena.address
            for slot, offset in schedule.pinned:
                bases[slot] = start + offset
        result = []
        if self._shared_block_bytes:
            block = allocate(self._shared_block_bytes)
            place = block.address
            for _, slot, nbytes, shape, dtype in self._result_buffers:
                bases[slot] = place
                result.append(Storage(place, block, shape, dtype))
                place += align_up(nbytes)
        else:
            for number, slot, nbytes, shape, dtype in self._result_buffers:
                block = given.get(number) or allocate(nbytes)
                bases[slot] = block.address
                result.append(Storage(block.address, block, shape, dtype))
        try:
            for step in self._steps:
                step(bases)
        except ShardirError as error:
            error.has_started = True
            raise
        if self._returns_results_in_order:
            return result
        by_number = {
            number: each for (number, *_), each in zip(self._result_buffers, result, strict=True)
        }
        results = []
        for (kind, number), (shape, dtype) in zip(self._sources, self._shapes, strict=True):
            held = args[number] if kind is BufferKind.ARGUMENT else by_number[number]
            results.append(Storage(held.address, held.owner, shape, dtype))
        return results

    def launcher(
        self,
        kind: type,
        made: Sequence[tuple[object, object]],
        captured: Sequence[Storage],
        donated: Sequence[int] = (),
    ) -> Launch | None:
        """Return a native call path for arrays of the type `kind`; `None` if the program needs
        Python."""
        schedule = self.schedule
        # Without items, the results are arguments, and no code runs.
        program = self._enter if schedule.items else None
        argument_count = len(schedule.arguments) - len(captured)
        returned_arguments = {
            number for kind, number in self._sources if kind is BufferKind.ARGUMENT
        }
        if (program is None and schedule.items) or any(
            number >= argument_count for number in returned_arguments
        ):
            return None
        template = self._template.copy()
        for slot, storage in zip(schedule.arguments[argument_count:], captured, strict=True):
            template[slot] = storage.address
        sizes: list[int] = []
        places: list[tuple[int, int, int]] = []
        if schedule.arena_bytes:
            sizes.append(schedule.arena_bytes)
            places += [(ARENA_SLOT, 0, 0), *((slot, 0, offset) for slot, offset in schedule.pinned)]
        placements: dict[int, tuple[int, int]] = {}
        over = self._donation_targets(donated)
        given: dict[int, int] = {}
        used_bytes = MAX_SHARED_BLOCK_BYTES + 1  # The first result starts a new block.
        for number, slot, nbytes, *_ in self._result_buffers:
            size = align_up(nbytes)
            if used_bytes + size > MAX_SHARED_BLOCK_BYTES:
                sizes.append(0)
                used_bytes = 0
            if number in over:
                given[len(sizes) - 1] = over[number]
            placements[number] = len(sizes) - 1, used_bytes
            places.append((slot, *placements[number]))
            used_bytes += size
            sizes[-1] = used_bytes
        results, shapes = [], dict[int, tuple[int, ...]]()
        for (what, number), typed, each in zip(self._sources, self._shapes, made, strict=True):
            if what is BufferKind.ARGUMENT:
                shapes[number] = typed[0]
            home = (-1 - number, 0) if what is BufferKind.ARGUMENT else placements[number]
            results.append(launching.LaunchResult(*home, *typed, *each))
        arguments = [
            launching.LaunchArgument(slot, shapes.get(k), truth=k in schedule.bool_arguments)
            for k, slot in enumerate(schedule.arguments[:argument_count])
        ]
        launch = launching.make_launch(
            program, kind, template, arguments, places, sizes, results, (self, captured)
        )
        return launch and (_wrap_donation(launch, kind, sizes, given) if given else launch)

    def _donated_blocks(
        self, args: Sequence[Storage], donated: Sequence[int]
    ) -> dict[int, MemoryBlock]:
        """Return the memory of donated arguments that results may reuse, because it has no other
        owner."""
        given: dict[int, MemoryBlock] = {}
        reused: set[int] = set()
        for argument, result in self.schedule.donation_pairs:
            if argument in donated and argument not in reused and result not in given:
                storage = args[argument]
                owner = storage.owner
                is_sole_owner = (
                    getrefcount(storage) <= SOLE_STORAGE_REFERENCES
                    and getrefcount(owner) <= SOLE_OWNER_REFERENCES
                )
                if is_sole_owner and storage.has_no_numpy_array and may_be_written(owner):
                    given[result] = owner
                    reused.add(argument)
        return given

    def _donation_targets(self, donated: Sequence[int]) -> dict[int, int]:
        """Return for each result the donated argument whose memory it may overwrite."""
        sizes = self.schedule.result_bytes
        return match_pairs(
            (argument, result)
            for argument, result in self.schedule.donation_pairs
            if argument in donated and sizes[result] > MAX_SHARED_BLOCK_BYTES
        )

    def overwritten_results(self, donated: Sequence[int]) -> Mapping[int, int]:
        return {
            number: self.schedule.result_bytes[number] for number in self._donation_targets(donated)
        }

    def memory(self) -> MemoryEstimate:
        """Return the bytes that a run takes for all devices together."""
        arguments = self.schedule.argument_bytes
        results = sum(nbytes for _, _, nbytes, *_ in self._result_buffers)
        temporaries = self.schedule.arena_bytes
        return MemoryEstimate(arguments, results, temporaries, arguments + results + temporaries)

    def describe(self) -> str:
        """Return phases, buffers and bytes as text."""
        return describe_schedule(*self._origin())


def _wrap_donation(
    launch: Callable[..., Any], kind: type, sizes: Sequence[int], given: Mapping[int, int]
) -> Launch:
    """Wrap a launch to pass the memory of donated arguments as the blocks named in `given`."""

    def run(leaves: list[Any]) -> Any:
        blocks: list[MemoryBlock] = []
        # An argument that is passed twice is still read while it is overwritten.
        distinct = len({id(leaf) for leaf in leaves}) == len(leaves)
        for number, size in enumerate(sizes):
            block = (
                _exclusive_block(leaves[given[number]], kind)
                if distinct and number in given
                else None
            )
            blocks.append(allocate(size) if block is None else block)
        return launch(leaves, *blocks)

    return run


def _exclusive_block(leaf: object, kind: type) -> MemoryBlock | None:
    """Return the memory of an array if it has no other owner and the array begins at its start."""
    storage: Any = getattr(leaf, "buffers", None) if type(leaf) is kind else None
    if type(storage) is not Storage:
        return None
    owner = storage.owner
    # There is one reference less than in `run`, which has a list of storages.
    is_sole_owner = (
        getrefcount(storage) < SOLE_STORAGE_REFERENCES
        and getrefcount(owner) <= SOLE_OWNER_REFERENCES
    )
    begins_at_block = storage.address == getattr(owner, "address", None)
    return (
        owner
        if is_sole_owner
        and begins_at_block
        and storage.has_no_numpy_array
        and may_be_written(owner)
        else None
    )
