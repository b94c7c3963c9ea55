"""Block grids: splits a loop nest into blocks and distributes the blocks to tasks.

The two innermost loops of a nest are split into blocks; blocks are numbered along all loops, and
each task gets a contiguous range of them. A kernel is generic in extents and strides: it reads both
from the record, computes the address of its blocks in every view, and calls a body for each.

Besides views of memory, a nest may have counters: indices that loops advance by their strides and
that give the position of a block along a dimension. A view may start at an offset that is known
only at run time, the sum of `DynamicStart`s.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import store_fence
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    SCRATCH_BYTES_PER_WORKER,
    TASKS_PER_WORKER,
    BufferView,
    Kernel,
    Phase,
    blocks_per_task,
)
from shardir.backends.cpu.kernels.data_movement.loop_nest import (
    LoopNest,
    StridedLoop,
    loop_nest_of,
)
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED


class GridBlock(NamedTuple):
    """The parameters of a body: addresses, rows and columns of a block, strides of both per
    view."""

    addresses: tuple[LLVMValue, ...]
    """Addresses of views, followed by the values of counters."""
    rows: LLVMValue
    columns: LLVMValue
    row_strides: tuple[LLVMValue, ...]
    column_strides: tuple[LLVMValue, ...]
    extra: Callable[[int], LLVMValue]
    """Returns the i-th of the words that the phase adds to its record."""
    task: LLVMValue
    scratch: LLVMValue
    """The address of the worker's scratch memory."""


BlockBody = Callable[[LLVMFunction, GridBlock], None]


class DynamicStart(NamedTuple):
    """An index in memory, clamped to [0, `limit`], that moves a view by `stride` bytes per unit."""

    view: BufferView
    limit: int
    stride: int


class KernelForm(NamedTuple):
    """The form of a kernel: the properties that its text depends on besides its body."""

    views: int
    counters: int = 0
    extras: int = 0
    moving: tuple[int, str] | None = None
    """The index of the view or counter that dynamic starts move, and their element type."""
    by_columns: bool = False
    """True if a task computes all blocks of its columns, in order, rather than a range of
    blocks."""


class BlockGrid(NamedTuple):
    """A loop nest split into blocks of `rows` by `columns`."""

    slots: tuple[int, ...]
    """The slots of the views; further strides of the nest are those of counters."""
    nest: LoopNest
    outer: tuple[StridedLoop, ...]
    row: StridedLoop
    column: StridedLoop
    rows: int
    columns: int

    @property
    def column_blocks(self) -> int:
        """The number of blocks along columns."""
        return -(-self.column.extent // self.columns)

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        around = prod(loop.extent for loop in self.outer)
        return around * -(-self.row.extent // self.rows) * self.column_blocks

    def phase(
        self,
        kernel: Kernel,
        cost: float,
        workers: int,
        label: str,
        extra: Sequence[int] = (),
        starts: Sequence[DynamicStart] | None = None,
    ) -> Phase:
        """Return the phase of all blocks, split into as many tasks as pay off."""
        each = blocks_per_task(self.blocks, cost, workers)
        record = self._record(each, extra, starts)
        return Phase(kernel, record, -(-self.blocks // each), cost, label)

    def phase_by_columns(
        self, kernel: Kernel, cost: float, label: str, extra: Sequence[int] = (), times: int = 1
    ) -> Phase:
        """Return the phase with a task for all blocks of the same columns, or `times` tasks that
        share them."""
        return Phase(kernel, self._record(0, extra, None), self.column_blocks * times, cost, label)

    def _record(
        self, each: int, extra: Sequence[int], starts: Sequence[DynamicStart] | None
    ) -> tuple[int, ...]:
        record: list[int] = [self.blocks, each]
        for loop, block_extent in ((self.row, self.rows), (self.column, self.columns)):
            record += [loop.extent, block_extent, -(-loop.extent // block_extent), *loop.strides]
        for slot, offset in zip(self.slots, self.nest.offsets, strict=False):
            record += [slot, offset]
        record += [*self.nest.offsets[len(self.slots) :], *extra, len(self.outer)]
        for loop in reversed(self.outer):
            record += [loop.extent, *loop.strides]
        if starts is not None:
            record.append(len(starts))
            for view, limit, stride in starts:
                record += [view.slot, view.offset, limit, stride]
        return tuple(record)


def block_grid_of(
    views: Sequence[BufferView],
    nest: LoopNest,
    row: StridedLoop | None,
    column: StridedLoop | None,
    rows: int,
    columns: int,
) -> BlockGrid:
    """Return the grid of a nest whose loops `row` and `column` are split; each may be None (one
    step)."""
    outer = tuple(loop for loop in nest.loops if loop is not row and loop is not column)
    one = StridedLoop(1, (0,) * len(nest.offsets))
    slots = tuple(view.slot for view in views)
    return BlockGrid(slots, nest, outer, row or one, column or one, max(rows, 1), max(columns, 1))


def batch_grid(views: Sequence[BufferView], workers: int, counters: int = 0) -> BlockGrid:
    """Return the grid of independent steps, such as the matrices of a batch, whose longest loop is
    split between tasks; the last `counters` views are counters."""
    nest = loop_nest_of(views, counters=counters)
    longest = max(nest.loops, key=lambda loop: loop.extent, default=None)
    tasks = max(1, min(TASKS_PER_WORKER * workers, views[0].size))
    columns = -(-(longest.extent if longest else 1) // tasks)
    return block_grid_of(views[: len(views) - counters], nest, None, longest, 1, columns)


def grid_kernel(name: str, form: KernelForm, body: BlockBody) -> Kernel:
    """Return the kernel of a body; `name` must identify body and form."""
    symbol = f"moves_{name}"
    return Kernel(symbol, lambda machine: grid_text(machine, symbol, form, body))


def grid_text(machine: HostDescription, name: str, form: KernelForm, body: BlockBody) -> str:
    """Return the LLVM text of a kernel that calls `body` for each of its blocks."""
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ("ptr", "ptr", "i64", "i64"))
    bases, record, task, worker = f.params
    scratch = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER)
    views, walked = form.views, form.views + form.counters

    def word(index: int) -> LLVMValue:
        return f.load(f.offset(record, 8 * index), "i64")

    row, column = 2, 5 + walked
    places = column + 3 + walked
    more = places + 2 * views + form.counters
    blocks, each = word(0), word(1)
    rows, row_cut, row_count = (word(row + i) for i in range(3))
    row_strides = tuple(word(row + 3 + i) for i in range(walked))
    columns, column_cut, column_count = (word(column + i) for i in range(3))
    column_strides = tuple(word(column + 3 + i) for i in range(walked))
    depth = word(more + form.extras)
    loops = f.offset(record, 8 * (more + form.extras + 1))
    starts = []
    for i in range(views):
        base = f.load(f.offset(bases, word(places + 2 * i), "ptr"), "ptr")
        starts.append(f.offset(base, word(places + 2 * i + 1)))
    starts += [word(places + 2 * views + i) for i in range(form.counters)]
    if form.moving:
        index, dtype = form.moving
        moves = f.offset(loops, depth * (8 * (1 + walked)))
        starts[index] = _advance(f, starts[index], _dynamic_offset(f, bases, moves, dtype))

    if form.by_columns:
        first, last = f.value(0, "i64"), blocks // column_count
    else:
        first = task * each
        last = f.umin(first + each, blocks)
    with f.loop(first, last) as number:
        block = number * column_count + task % column_count if form.by_columns else number
        column_at = block % column_count * column_cut
        rest = block // column_count
        row_at = rest % row_count * row_cut
        left = f.variable("i64", rest // row_count)
        addresses = []
        for start, down, along in zip(starts, row_strides, column_strides, strict=True):
            moved = _advance(f, _advance(f, start, row_at * down), column_at * along)
            addresses.append(f.variable(start.type, moved))
        with f.loop(0, depth) as level:
            dim = f.offset(loops, level * (8 * (1 + walked)))
            extent = f.load(dim, "i64")
            now = left.get()
            index_at = now % extent
            left.set(now // extent)
            for i, address in enumerate(addresses):
                stride = f.load(f.offset(dim, 8 * (1 + i)), "i64")
                address.set(_advance(f, address.get(), index_at * stride))
        body(
            f,
            GridBlock(
                tuple(address.get() for address in addresses),
                f.umin(row_cut, rows - row_at),
                f.umin(column_cut, columns - column_at),
                row_strides,
                column_strides,
                lambda i: word(more + i),
                task,
                scratch,
            ),
        )
    store_fence(f)
    f.ret()
    return module.text()


def _advance(f: LLVMFunction, start: LLVMValue, by: LLVMValue) -> LLVMValue:
    return f.offset(start, by) if start.type == "ptr" else start + by


def _dynamic_offset(f: LLVMFunction, bases: LLVMValue, moves: LLVMValue, dtype: str) -> LLVMValue:
    """Return the offset by which all dynamic starts together move a view."""
    total_offset = f.variable("i64", 0)
    with f.loop(0, f.load(moves, "i64")) as i:
        move = f.offset(moves, i * 32 + 8)
        slot, offset, limit, stride = (f.load(f.offset(move, 8 * k), "i64") for k in range(4))
        base = f.load(f.offset(bases, slot, "ptr"), "ptr")
        start = load_index(f, f.offset(base, offset), dtype)
        total_offset.set(total_offset.get() + clamp_index(f, start, limit, dtype) * stride)
    return total_offset.get()


def load_index(f: LLVMFunction, address: LLVMValue, dtype: str) -> LLVMValue:
    """Load an integer of the IR type `dtype` and extend it to 64 bits."""
    width = DTYPE_INFO[dtype].bits
    value = f.load(address, f"i{width}", 1)
    return value if width == 64 else value.to("i64", "zext" if dtype in UNSIGNED else "sext")


def clamp_index(f: LLVMFunction, index: LLVMValue, limit: LLVMValue, dtype: str) -> LLVMValue:
    """Clamp an index to [0, `limit`]."""
    if dtype not in UNSIGNED:
        index = f.select(index.is_("sgt", 0), index, 0)
    return f.umin(index, limit)
