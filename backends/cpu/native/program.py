"""Programs that run as machine code, one native call for everything between two calls of NumPy.

A program over whole arrays (what `merge-devices` and the passes after it make of a partitioned one)
becomes a schedule, and that is compiled. A run takes the addresses of its arguments, gets memory
for its results and for one arena, and calls.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, final

import numpy as np

from shardir.backends.base import Launch, WholeExecutable
from shardir.backends.cpu.native.runtime import kernels, launching, looping
from shardir.backends.cpu.native.runtime.calls import launches
from shardir.backends.cpu.native.runtime.memory import allocate, may_be_written
from shardir.backends.cpu.native.runtime.program import load
from shardir.backends.cpu.native.runtime.python_blocks import Block
from shardir.backends.cpu.native.runtime.workers import pool
from shardir.backends.cpu.native.schedule.instructions import (
    Writer,
    are_native,
    moved,
    segments,
)
from shardir.backends.cpu.native.schedule.items import Item, Segment
from shardir.backends.cpu.native.schedule.memory import Kind, aligned
from shardir.backends.cpu.native.schedule.schedule import ARENA, Schedule
from shardir.backends.storage import Storage
from shardir.errors import ShardirError
from shardir.ir import Function, Op
from shardir.memory import Memory

if TYPE_CHECKING:
    from shardir.backends.cpu.native.schedule.steps import Outside

Step = Callable[[list[int]], None]
"""Runs a part of a program, given the addresses of slots."""
Made = tuple[Function, Schedule]
"""A function, and its schedule with buffers and with causes of phases."""

SMALL_BYTES = 4096
"""Results that are not larger than this together share one block: asking for many takes longer."""


def _alone() -> tuple[int, int]:
    """References to a storage and to its memory, counted as `NativeProgram` does for arguments
    that only an array holds. Which of its own names and calls Python counts is up to its version.
    """
    arguments = [Storage(0, object(), (), np.dtype(np.uint8))]
    arrays = [arguments[0]]
    storage = arrays[0]
    owner = storage.owner
    return getrefcount(storage), getrefcount(owner)


STORAGE_ALONE, OWNER_ALONE = _alone()


def _inside(op: Op) -> None:
    """No operation goes beyond this process."""


@final
class NativeProgram(WholeExecutable):
    """A schedule as machine code.

    `made` tells those who ask what the schedule is of: one that was kept on disk does not know.
    `outside` has what does the operations that go beyond this process.
    """

    def __init__(
        self,
        schedule: Schedule,
        made: Callable[[], Made],
        outside: "Outside | None" = None,
    ) -> None:
        self.schedule, self._origin, self._outside = schedule, made, outside or _inside
        self._segments = segments(schedule.items)
        # All at once, so that cores share the work of compiling what is not known yet.
        kernels.addresses(phase.kernel for each in self._segments for phase in each.phases)
        self._enter = self._entered(schedule.items) if are_native(schedule.items) else None
        self._steps = self._steps_of()
        self._prepare()

    def _steps_of(self) -> tuple[Step, ...]:
        enter = self._enter
        if enter is None:
            from shardir.backends.cpu.native.schedule.steps import steps_of

            return steps_of(self.schedule.items, self._part, self._outside)

        def step(bases: list[int]) -> None:
            enter(*bases[1:])

        return (step,)

    def _entered(self, items: Sequence[Item], entry: str = "entry") -> Any:
        """Items without a call of NumPy as one function of addresses."""
        if len(items) == 1 and isinstance(items[0], Segment):
            return self._load(items[0])
        loaded: list[Any] = []

        def address(segment: Segment) -> int:
            loaded.append(self._load(segment))
            program: int = loaded[-1].__self__
            return program

        writer = Writer(address)
        writer.write(items)
        code, slots = pool().code[entry], self.schedule.slots
        return looping.driver(code, writer.written, writer.registers, slots, loaded)

    def _load(self, segment: Segment) -> Any:
        number = next(i for i, each in enumerate(self._segments) if each is segment)
        causes = segment.causes or (lambda: self._causes(number))
        return load(segment.phases, self.schedule.slots, causes=causes)

    def _part(self, items: Sequence[Item]) -> Step:
        """Items between calls of NumPy as a step, which leaves addresses where they have gone."""
        slots = moved(items)
        if not slots:
            enter = self._entered(items)

            def step(bases: list[int]) -> None:
                enter(*bases[1:])

            return step
        run, count = self._entered(items, "loop"), self.schedule.slots

        def moving(bases: list[int]) -> None:
            table = (ctypes.c_int64 * count)(*bases)
            run(ctypes.addressof(table))
            for slot in slots:
                bases[slot] = table[slot]

        return moving

    def _causes(self, number: int) -> Sequence[object]:
        _, schedule = self._origin()
        return segments(schedule.items)[number].causes

    def _prepare(self) -> None:
        """What every run needs."""
        schedule = self.schedule
        self._constants = [Storage.of(array) for _, array in schedule.constants]
        self._template = [0] * schedule.slots
        for (slot, _), storage in zip(schedule.constants, self._constants, strict=True):
            self._template[slot] = storage.address
        made = sorted({number for kind, number in schedule.sources if kind is Kind.RESULT})
        types = schedule.types
        self._made = [
            (
                number,
                schedule.results[number],
                schedule.result_bytes[number],
                types[number].shape,
                types[number].numpy,
            )
            for number in made
        ]
        total = sum(aligned(nbytes) for _, _, nbytes, *_ in self._made)
        self._together = total if len(self._made) > 1 and total <= SMALL_BYTES else 0
        self._sources = schedule.sources
        self._shapes = [(type.shape, type.numpy) for type in types]
        # Most programs make each of their results, in order.
        self._plain = self._sources == tuple((Kind.RESULT, i) for i in range(len(types)))

    def run(self, args: Sequence[Storage], donated: Sequence[int] = ()) -> list[Storage]:
        schedule = self.schedule
        given = self._given(args, donated) if donated else {}
        bases = self._template.copy()
        for slot, arg in zip(schedule.arguments, args, strict=True):
            bases[slot] = arg.address
        if schedule.arena_bytes:
            arena = allocate(schedule.arena_bytes)
            start = bases[ARENA] = arena.address
            for slot, offset in schedule.pinned:
                bases[slot] = start + offset
        made = []
        if self._together:
            block = allocate(self._together)
            place = block.address
            for _, slot, nbytes, shape, dtype in self._made:
                bases[slot] = place
                made.append(Storage(place, block, shape, dtype))
                place += aligned(nbytes)
        else:
            for number, slot, nbytes, shape, dtype in self._made:
                block = given.get(number) or allocate(nbytes)
                bases[slot] = block.address
                made.append(Storage(block.address, block, shape, dtype))
        try:
            for step in self._steps:
                step(bases)
        except ShardirError as error:
            error.begun = True
            raise
        if self._plain:
            return made
        by_number = {number: each for (number, *_), each in zip(self._made, made, strict=True)}
        results = []
        for (kind, number), (shape, dtype) in zip(self._sources, self._shapes, strict=True):
            held = args[number] if kind is Kind.ARGUMENT else by_number[number]
            results.append(Storage(held.address, held.owner, shape, dtype))
        return results

    def launcher(
        self,
        kind: type,
        made: Sequence[tuple[object, object]],
        captured: Sequence[Storage],
        donated: Sequence[int] = (),
    ) -> Launch | None:
        schedule = self.schedule
        enter = self._enter
        seen = len(schedule.arguments) - len(captured)
        whole = {number for kind, number in self._sources if kind is Kind.ARGUMENT}
        if enter is None or not schedule.items or any(number >= seen for number in whole):
            return None
        template = self._template.copy()
        for slot, storage in zip(schedule.arguments[seen:], captured, strict=True):
            template[slot] = storage.address
        sizes: list[int] = []
        places: list[tuple[int, int, int]] = []
        if schedule.arena_bytes:
            sizes.append(schedule.arena_bytes)
            places += [(ARENA, 0, 0), *((slot, 0, offset) for slot, offset in schedule.pinned)]
        homes: dict[int, tuple[int, int]] = {}
        over = self._over(donated)
        given: dict[int, int] = {}
        taken = SMALL_BYTES + 1  # so that the first result begins a block
        for number, slot, nbytes, *_ in self._made:
            size = aligned(nbytes)
            if taken + size > SMALL_BYTES:
                sizes.append(0)
                taken = 0
            if number in over:
                given[len(sizes) - 1] = over[number]
            homes[number] = len(sizes) - 1, taken
            places.append((slot, *homes[number]))
            taken += size
            sizes[-1] = taken
        results, shapes = [], dict[int, tuple[int, ...]]()
        for (what, number), typed, each in zip(self._sources, self._shapes, made, strict=True):
            if what is Kind.ARGUMENT:
                shapes[number] = typed[0]
            home = (-1 - number, 0) if what is Kind.ARGUMENT else homes[number]
            results.append(launching.Result(*home, *typed, *each))
        arguments = [
            launching.Argument(slot, shapes.get(k), truth=k in schedule.truths)
            for k, slot in enumerate(schedule.arguments[:seen])
        ]
        launch = launching.launcher(
            launches(), enter.__self__, kind, template, arguments, places, sizes, results,
            (self, captured),
        )  # fmt: skip
        return launch and (_donating(launch, kind, sizes, given) if given else launch)

    def _given(self, args: Sequence[Storage], donated: Sequence[int]) -> dict[int, Block]:
        """The memory of arguments that results may have, because nobody else holds it."""
        given = {}
        for argument, result in self.schedule.offered:
            if argument in donated:
                storage = args[argument]
                owner = storage.owner
                alone = getrefcount(storage) <= STORAGE_ALONE and getrefcount(owner) <= OWNER_ALONE
                if alone and storage.untouched and may_be_written(owner):
                    given[result] = owner
        return given

    def _over(self, donated: Sequence[int]) -> dict[int, int]:
        """The donated argument that each result may be written over."""
        sizes = self.schedule.result_bytes
        return {
            result: argument
            for argument, result in self.schedule.offered
            if argument in donated and sizes[result] > SMALL_BYTES
        }

    def written_over(self, donated: Sequence[int]) -> Mapping[int, int]:
        return {number: self.schedule.result_bytes[number] for number in self._over(donated)}

    def memory(self) -> Memory:
        """The bytes that a run holds for all devices together."""
        arguments = self.schedule.argument_bytes
        results = sum(nbytes for _, _, nbytes, *_ in self._made)
        temporaries = self.schedule.arena_bytes
        return Memory(arguments, results, temporaries, arguments + results + temporaries)

    def describe(self) -> str:
        """Phases, buffers and bytes as text."""
        from shardir.backends.cpu.native.schedule.describe import describe

        return describe(*self._origin())


def _donating(
    launch: Callable[..., Any], kind: type, sizes: Sequence[int], given: Mapping[int, int]
) -> Launch:
    """A launch whose blocks are those of arguments, for each block in `given` that it names."""

    def run(leaves: list[Any]) -> Any:
        blocks: list[Block] = []
        # What is given twice is read while it is written.
        apart = len({id(leaf) for leaf in leaves}) == len(leaves)
        for number, size in enumerate(sizes):
            block = _own(leaves[given[number]], kind) if apart and number in given else None
            blocks.append(allocate(size) if block is None else block)
        return launch(leaves, *blocks)

    return run


def _own(leaf: Any, kind: type) -> Block | None:
    """The memory of an array, if nobody else holds it and it begins there."""
    held: Any = getattr(leaf, "held", None) if type(leaf) is kind else None
    if type(held) is not Storage:
        return None
    owner = held.owner
    # One reference less than in a run, which has a list of storages.
    alone = getrefcount(held) < STORAGE_ALONE and getrefcount(owner) <= OWNER_ALONE
    begins = held.address == getattr(owner, "address", None)
    return owner if alone and begins and held.untouched and may_be_written(owner) else None
