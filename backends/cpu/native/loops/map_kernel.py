"""The kernel of an elementwise loop nest.

A nest is processed block by block, and row by row in a block. A nest with one axis, the most common
case, needs none of that: for many arrays the addresses of rows are most of the text of a kernel,
and most of the time to compile it.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.hints import fence
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.loops.access import Place, Vectors
from shardir.backends.cpu.native.loops.axes import GENERAL, SPLAT
from shardir.backends.cpu.native.loops.body import Body
from shardir.backends.cpu.native.loops.evaluation import Values, indices, same_along
from shardir.backends.cpu.native.loops.inlining import is_inlined, is_long
from shardir.backends.cpu.native.loops.record import (
    ATTRIBUTES,
    PARAMS,
    Reader,
    further,
    located,
    moved,
)
from shardir.backends.cpu.native.loops.streaming import are_aligned
from shardir.backends.cpu.native.loops.writing import written
from shardir.backends.cpu.native.vector.registers import Held, itemsize


class Shape(NamedTuple):
    """The parameters of the text of an elementwise kernel.

    `kinds` has the element type of each array and its layout along the columns; iota indices come
    last. `whole`: columns are full vectors; `streaming`: results are stored past the caches;
    `single`: there is one row.
    """

    body: Body
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    whole: bool
    streaming: bool
    single: bool


@cache
def kernel_of(shape: Shape) -> Kernel:
    """Return the kernel of an elementwise loop nest; equal shapes share one kernel."""
    return written("map", shape, _module)


def _module(shape: Shape, name: str) -> Module:
    module = Module(inlined=is_inlined(shape.body))
    f = Function(module, name, PARAMS, attributes=ATTRIBUTES)
    (_single_row if shape.single else _nest)(shape, f)
    if shape.streaming:
        fence(f)
    f.leave()
    return module


def _single_row(shape: Shape, f: Function) -> None:
    """Emit the part of a row that a task computes."""
    bases, words, task, _ = f.params
    count = len(shape.kinds)
    reader = Reader(f, bases, words)
    columns, each, *strides = reader.words(2 + count)
    starts = reader.arrays(count - shape.counted, shape.counted)
    first = task * each
    at = [
        start if kind == SPLAT else further(f, start, first * stride)
        for start, (_, kind), stride in zip(starts, shape.kinds, strides, strict=True)
    ]
    _either_way(shape, f, at, strides, f.least(columns - first, each))


def _nest(shape: Shape, f: Function) -> None:
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
        outer_block = block // column_count
        column_at = (block - outer_block * column_count) * column_cut
        rest = outer_block // row_count
        row_at = (outer_block - rest * row_count) * row_cut
        begins, _ = located(f, table, rest, starts)
        at = [
            moved(f, further(f, further(f, begin, row_at * down), column_at * along))
            for begin, down, along in zip(begins, row_strides, column_strides, strict=True)
        ]
        width = f.least(columns - column_at, column_cut)
        with f.loop(0, f.least(rows - row_at, row_cut)):
            _either_way(shape, f, [each.get() for each in at], column_strides, width)
            for place, down in zip(at, row_strides, strict=True):
                place.set(further(f, place.get(), down))


def _either_way(
    shape: Shape, f: Function, at: Sequence[Value], strides: Sequence[Value], width: Value
) -> None:
    """Emit a row with streaming stores where results are aligned, and with normal stores
    elsewhere."""
    if not shape.streaming:
        _row(shape, f, at, strides, width)
        return
    aligned = are_aligned(f, _results(shape, at), shape.lanes)

    def plain() -> None:
        # This path is rare, so it calls functions instead of inlining them.
        f.module.inlined = False
        _row(shape._replace(streaming=False), f, at, strides, width)
        f.module.inlined = is_inlined(shape.body)

    if is_long(shape.body):
        # A branch at each store is negligible in a long body, which is then emitted only once.
        _row(shape, f, at, strides, width, aligned)
    else:
        f.choose(aligned, lambda: _row(shape, f, at, strides, width), plain)


def _results(shape: Shape, at: Sequence[Value]) -> list[Place]:
    """Return the places where the results of a row begin."""
    end = len(at) - shape.counted
    first = end - len(shape.body.results)
    return [Place(at[k], *shape.kinds[k]) for k in range(first, end)]


def _row(
    shape: Shape,
    f: Function,
    at: Sequence[Value],
    strides: Sequence[Value],
    width: Value,
    aligned: Value | None = None,
) -> None:
    """Emit one row: its invariant values, then its vectors, streamed if `aligned` holds."""
    body, lanes = shape.body, shape.lanes
    known = Values(f, body, lanes)
    same = same_along(body, shape.kinds, shape.counted)
    full_vectors = Vectors(f, lanes)

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

    known.evaluate(same, full_vectors, lambda n: place(n, None), lambda n: index(n, None))
    known.keep_divisors()
    with f.loop(0, width, lanes) as i:
        left = None if shape.whole else width - i
        vectors = Vectors(f, lanes, left, shape.streaming, aligned)
        now = known.inner()
        now.evaluate(range(len(body.steps)), vectors, lambda n: place(n, i), lambda n: index(n, i))
        results = len(shape.kinds) - shape.counted - len(body.results)
        for number, value in enumerate(body.results):
            vectors.store(now.held[value], place(results + number, i))
