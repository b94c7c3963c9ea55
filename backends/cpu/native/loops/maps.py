"""Walks without reductions: every element of the results is computed once, from what it needs.

The nest is cut into blocks of rows and columns: vectors go along the columns. An array that lies
anyhow along the columns is read in blocks small enough that the lines of memory it touches are
still there for the next row.
"""

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.native.data import Context, Kernel, Phase
from shardir.backends.cpu.native.llvm.hints import fence
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.loops.access import Place, Vectors
from shardir.backends.cpu.native.loops.axes import (
    GENERAL,
    SPLAT,
    UNIT,
    Array,
    Axis,
    lying,
    ordered,
    price,
)
from shardir.backends.cpu.native.loops.body import Body
from shardir.backends.cpu.native.loops.evaluation import Values, indices, same_along
from shardir.backends.cpu.native.loops.inlining import abreast, is_inlined
from shardir.backends.cpu.native.loops.prices import nanoseconds
from shardir.backends.cpu.native.loops.record import (
    ATTRIBUTES,
    PARAMS,
    Reader,
    Record,
    further,
    located,
    moved,
)
from shardir.backends.cpu.native.loops.streaming import are_aligned, streams
from shardir.backends.cpu.native.loops.writing import written
from shardir.backends.cpu.native.vector.registers import MEMORY, SIZES, Held, itemsize
from shardir.types import REAL_OF

BLOCK = 1 << 15
"""Elements of a block: enough to hide what a block costs, few enough to share."""
TILE_ROWS, TILE_COLUMNS = 32, 128
TASK_NANOSECONDS = 20_000.0


class Shape(NamedTuple):
    """What the text of a map's kernel depends on.

    `kinds` has for each array its element type and how it lies along the columns; counted indices
    come last. `whole`: columns are full vectors; `streaming`: results go past the caches.
    """

    body: Body
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    whole: bool
    streaming: bool


def lanes_of(body: Body) -> int:
    """Elements of a vector: a register of the shortest type, four at most of the longest."""
    sizes = [
        SIZES[MEMORY[step.dtype]] * (2 if step.dtype in REAL_OF else 1)
        if step.dtype not in ("f16", "bf16")
        else 4
        for step in body.steps
        if step.dtype != "bool"
    ] or [1]
    width = host().vector_bytes
    fullest = max(width // min(sizes), 16 if min(sizes) == 4 else 1)
    return max(2, min(fullest, 4 * width // max(sizes)))


def phases_of_map(
    axes: Sequence[Axis],
    body: Body,
    arrays: Sequence[Array],
    counted: int,
    context: Context,
    label: str,
) -> list[Phase]:
    """The one phase of a walk without reductions; `arrays` end with `counted` indices."""
    lanes = lanes_of(body)
    lanes *= abreast(body, lanes)
    axes = ordered(axes, arrays)
    column = min(axes, key=lambda axis: price(arrays, axis, lanes), default=None)
    outer = [axis for axis in axes if axis is not column]
    none = Axis(1, (0,) * len(arrays))
    column = column or none
    row, rows, columns = _cut(arrays, outer, column, lanes)
    outer = [axis for axis in outer if axis is not row]
    row = row or none
    kinds = tuple(
        (a.dtype, lying(a, stride)) for a, stride in zip(arrays, column.strides, strict=True)
    )
    results = len(arrays) - counted - len(body.results)
    written = range(results, len(arrays) - counted)
    streaming = streams(arrays, written, axes, column, lanes)
    shape = Shape(body, kinds, counted, lanes, column.extent % lanes == 0, streaming)
    size = prod(axis.extent for axis in axes)
    cost = nanoseconds(body, size, arrays, column.strides)
    row_blocks, column_blocks = -(-row.extent // rows), -(-column.extent // columns)
    blocks = row_blocks * column_blocks * prod(axis.extent for axis in outer)
    tasks = max(1, min(blocks, 4 * context.workers, int(cost / TASK_NANOSECONDS)))
    each = -(-blocks // tasks)
    record = Record()
    record.add(blocks, each)
    record.add(row.extent, rows, row_blocks, *row.strides)
    record.add(column.extent, columns, column_blocks, *column.strides)
    record.arrays(arrays)
    record.table(outer)
    return [Phase(kernel_of(shape), tuple(record.words), -(-blocks // each), cost, label)]


def _cut(
    arrays: Sequence[Array], outer: Sequence[Axis], column: Axis, lanes: int
) -> tuple[Axis | None, int, int]:
    """The axis of rows, and how many rows and columns a block has."""
    across = [
        i
        for i, (a, stride) in enumerate(zip(arrays, column.strides, strict=True))
        if a.view is not None and lying(a, stride) == GENERAL
    ]
    for axis in reversed(outer):
        if any(lying(arrays[i], axis.strides[i]) == UNIT for i in across):
            return axis, TILE_ROWS, TILE_COLUMNS
    columns = min(column.extent, BLOCK)
    columns = -(-columns // lanes) * lanes
    return (outer[-1] if outer else None), max(1, BLOCK // columns), columns


@cache
def kernel_of(shape: Shape) -> Kernel:
    """The kernel of a map; equal shapes give one kernel."""
    return written("map", shape, _module)


def _module(shape: Shape, name: str) -> Module:
    module = Module(inlined=is_inlined(shape.body))
    f = Function(module, name, PARAMS, attributes=ATTRIBUTES)
    bases, words, task, _ = f.params
    count = len(shape.kinds)
    reader = Reader(f, bases, words)
    blocks, each = reader.words(2)
    rows, row_cut, row_count, *row_strides = reader.words(3 + count)
    columns, column_cut, column_count, *column_strides = reader.words(3 + count)
    starts = reader.arrays(count - shape.counted, shape.counted)
    table = reader.table()
    first = task * each
    with f.loop(first, f.least(first + each, blocks)) as block:
        around = block // column_count
        column_at = (block - around * column_count) * column_cut
        rest = around // row_count
        row_at = (around - rest * row_count) * row_cut
        begins, _ = located(f, table, rest, starts)
        at = [
            moved(f, further(f, further(f, begin, row_at * down), column_at * along))
            for begin, down, along in zip(begins, row_strides, column_strides, strict=True)
        ]
        width = f.least(columns - column_at, column_cut)
        with f.loop(0, f.least(rows - row_at, row_cut)):
            here = [each.get() for each in at]

            def row(shape: Shape, here: Sequence[Value] = here, width: Value = width) -> None:
                _row(shape, f, here, column_strides, width)

            def plain(row: Callable[[Shape], None] = row) -> None:
                # It is seldom: its functions are called.
                module.inlined = False
                row(shape._replace(streaming=False))
                module.inlined = is_inlined(shape.body)

            if shape.streaming:
                results = _results(shape, here)
                aligned = are_aligned(f, results, shape.lanes)
                f.choose(aligned, lambda: row(shape), plain)
            else:
                row(shape)
            for place, down in zip(at, row_strides, strict=True):
                place.set(further(f, place.get(), down))
    if shape.streaming:
        fence(f)
    f.leave()
    return module


def _results(shape: Shape, at: Sequence[Value]) -> list[Place]:
    """Where the results of a row begin."""
    end = len(at) - shape.counted
    first = end - len(shape.body.results)
    return [Place(at[k], *shape.kinds[k]) for k in range(first, end)]


def _row(
    shape: Shape, f: Function, at: Sequence[Value], strides: Sequence[Value], width: Value
) -> None:
    """One row: what is the same along it, then its vectors."""
    body, lanes = shape.body, shape.lanes
    known = Values(f, body, lanes)
    same = same_along(body, shape.kinds, shape.counted)
    still = Vectors(f, lanes)

    def place(number: int, i: Value | None) -> Place:
        dtype, kind = shape.kinds[number]
        address = at[number]
        if i is not None and kind != SPLAT and address.type == "ptr":
            distance = i * strides[number] if kind == GENERAL else i * itemsize(dtype)
            address = f.offset(address, distance)
        return Place(address, dtype, kind, strides[number] if kind == GENERAL else None)

    def index(number: int, i: Value | None) -> Held:
        where = len(shape.kinds) - shape.counted + number
        start, kind = at[where], shape.kinds[where][1]
        if i is not None and kind != SPLAT:
            start = start + (i * strides[where] if kind == GENERAL else i)
        return indices(f, place(where, None), start, lanes)

    known.evaluate(same, still, lambda n: place(n, None), lambda n: index(n, None))
    known.keep_divisors()
    with f.loop(0, width, lanes) as i:
        left = None if shape.whole else width - i
        vectors = Vectors(f, lanes, left, shape.streaming)
        now = known.inner()
        now.evaluate(range(len(body.steps)), vectors, lambda n: place(n, i), lambda n: index(n, i))
        results = len(shape.kinds) - shape.counted - len(body.results)
        for number, value in enumerate(body.results):
            vectors.store(now.held[value], place(results + number, i))
