"""Tasks over the blocks of a nest of loops.

The two innermost loops of a nest are cut into blocks; the blocks, numbered along all loops, are
dealt to tasks in runs. A kernel is generic in extents and strides: it reads both from the record,
finds where its blocks lie in every view, and leaves the block itself to its body.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import Kernel, Phase, View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.moves.loops import Loop, Nest

TASK_NANOSECONDS = 20_000.0
"""What a task should take at least, so that handing it out is nothing beside it."""


class Block(NamedTuple):
    """What a body knows of its block: addresses, rows and columns, strides of both per view."""

    addresses: tuple[Value, ...]
    rows: Value
    columns: Value
    row_strides: tuple[Value, ...]
    column_strides: tuple[Value, ...]
    extra: Callable[[int], Value]
    """The i-th of the words that the phase adds to its record."""


Body = Callable[[Function, Block], None]


@dataclass(frozen=True, slots=True)
class Grid:
    """A nest of loops cut into blocks of `rows` by `columns`."""

    slots: tuple[int, ...]
    nest: Nest
    outer: tuple[Loop, ...]
    row: Loop
    column: Loop
    rows: int
    columns: int

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        around = prod(loop.extent for loop in self.outer)
        return around * -(-self.row.extent // self.rows) * -(-self.column.extent // self.columns)

    def phase(
        self,
        kernel: Kernel,
        cost: float,
        workers: int,
        label: str,
        extra: Sequence[int] = (),
    ) -> Phase:
        """All blocks, dealt to as many tasks as are worth it."""
        tasks = max(1, min(self.blocks, 4 * workers, int(cost / TASK_NANOSECONDS)))
        each = -(-self.blocks // tasks)
        record: list[int] = [self.blocks, each]
        for loop, cut in ((self.row, self.rows), (self.column, self.columns)):
            record += [loop.extent, cut, -(-loop.extent // cut), *loop.strides]
        for slot, offset in zip(self.slots, self.nest.offsets, strict=True):
            record += [slot, offset]
        record += extra
        record += [len(self.outer)]
        for loop in reversed(self.outer):
            record += [loop.extent, *loop.strides]
        return Phase(kernel, tuple(record), -(-self.blocks // each), cost, label)


def grid_of(
    views: Sequence[View],
    nest: Nest,
    row: Loop | None,
    column: Loop | None,
    rows: int,
    columns: int,
) -> Grid:
    """The nest with `row` and `column` cut into blocks; either may be missing (one step)."""
    outer = tuple(loop for loop in nest.loops if loop is not row and loop is not column)
    one = Loop(1, (0,) * len(views))
    slots = tuple(view.slot for view in views)
    return Grid(slots, nest, outer, row or one, column or one, max(rows, 1), max(columns, 1))


def grid_text(name: str, views: int, extras: int, body: Body) -> str:
    """The module of a kernel that finds its blocks and leaves them to `body`."""
    module = Module()
    f = Function(module, name, ("ptr", "ptr", "i64", "i64"))
    bases, record, task, _ = f.params

    def word(index: int) -> Value:
        return f.load(f.offset(record, 8 * index), "i64")

    row, column = 2, 5 + views
    places = column + 3 + views
    more = places + 2 * views
    blocks, each = word(0), word(1)
    rows, row_cut, row_count = (word(row + i) for i in range(3))
    row_strides = tuple(word(row + 3 + i) for i in range(views))
    columns, column_cut, column_count = (word(column + i) for i in range(3))
    column_strides = tuple(word(column + 3 + i) for i in range(views))
    starts = []
    for i in range(views):
        base = f.load(f.offset(bases, word(places + 2 * i), "ptr"), "ptr")
        starts.append(f.offset(base, word(places + 2 * i + 1)))
    depth = word(more + extras)
    first = task * each
    last = f.least(first + each, blocks)
    with f.loop(first, last) as block:
        column_at = block % column_count * column_cut
        rest = block // column_count
        row_at = rest % row_count * row_cut
        left = f.variable("i64", rest // row_count)
        addresses = [
            f.variable("ptr", f.offset(f.offset(start, row_at * down), column_at * along))
            for start, down, along in zip(starts, row_strides, column_strides, strict=True)
        ]
        with f.loop(0, depth) as level:
            dim = f.offset(record, level * (8 * (1 + views)) + 8 * (more + extras + 1))
            extent = f.load(dim, "i64")
            now = left.get()
            index = now % extent
            left.set(now // extent)
            for i, address in enumerate(addresses):
                stride = f.load(f.offset(dim, 8 * (1 + i)), "i64")
                address.set(f.offset(address.get(), index * stride))
        body(
            f,
            Block(
                tuple(address.get() for address in addresses),
                f.least(row_cut, rows - row_at),
                f.least(column_cut, columns - column_at),
                row_strides,
                column_strides,
                lambda i: word(more + i),
            ),
        )
    fence(f)
    f.leave()
    return module.text()


def fence(f: Function) -> None:
    """Let what went past the caches be seen by whoever is told that this task is done."""
    if host().triple.startswith("x86_64"):
        f.module.declare("llvm.x86.sse.sfence", "void", ())
        f.call("llvm.x86.sse.sfence", ())
