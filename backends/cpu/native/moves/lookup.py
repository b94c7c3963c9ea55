"""Reading and writing windows at computed places: slices that start anywhere, and gathers.

A gather walks the result. Along the dimensions of the indices it reads where a window starts;
along those of the window it copies. Rows of bytes are copied as such: an embedding is looked up at
the speed of memory.
"""

from collections.abc import Sequence
from functools import partial

from shardir.backends.cpu.native.data import Context, Phase, Rule, View
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable, element, vector
from shardir.backends.cpu.native.moves import bodies
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.copying import BLOCK_BYTES, copy_phases, moving_copy_phases
from shardir.backends.cpu.native.moves.grid import (
    Block,
    Form,
    Start,
    clamped,
    grid_kernel,
    grid_of,
    load_index,
)
from shardir.backends.cpu.native.moves.loops import Loop, nest
from shardir.backends.cpu.native.moves.views import sliced
from shardir.ir import Op
from shardir.ops.indexing import GATHER, Layout

GATHERED = 8
"""Items that an instruction reads from anywhere, where there is one."""


def dynamic_slice_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """A copy from the part where the starts point."""
    x, *starts = operands
    (y,) = results
    none, one = (0,) * len(x.shape), (1,) * len(x.shape)
    return moving_copy_phases(
        sliced(x, none, one, y.shape), y, 0, _starts(x, y.shape, starts), context
    )


def dynamic_update_slice_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase]:
    """A copy of all, unless it is the same memory; then one to the part where the starts point."""
    x, update, *starts = operands
    (y,) = results
    none, one = (0,) * len(x.shape), (1,) * len(x.shape)
    target = sliced(y, none, one, update.shape)
    moves = _starts(y, update.shape, starts)
    return [
        *copy_phases(x, y, context),
        *moving_copy_phases(update, target, 1, moves, context),
    ]


def _starts(whole: View, shape: Sequence[int], starts: Sequence[View]) -> list[Start]:
    return [
        Start(start, size - extent, stride)
        for start, size, extent, stride in zip(
            starts, whole.shape, shape, whole.strides, strict=True
        )
    ]


def gather_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """Windows of the operand, moved inside where they would reach outside."""
    (x, indices), (y,) = operands, results
    if y.size == 0:
        return []
    layout = Layout.of(x.shape, len(y.shape), GATHER.read(op.attrs))
    pointers, source = windows_of(x, indices, y.shape, layout)
    components = [
        (layout.operand[d] - _reach(layout, y.shape, d), x.strides[d]) for d in layout.index_map
    ]
    return [gather_phase(pointers, source, y, components, indices.strides[-1], context)]


def gather_phase(
    pointers: View,
    source: View,
    target: View,
    components: Sequence[tuple[int, int]],
    step: int,
    context: Context,
) -> Phase:
    """Elements of `source`, moved on by what `pointers` have where an element of `target` is.

    All views have the shape of `target`. A component of an index vector, `step` bytes after the
    one before it, is at most the first of a pair, and moves the source by so many times the second.
    """
    found = nest([pointers, source, target])
    size = target.itemsize
    # Windows are walked within a row, unless the result has elements of different ones together.
    *_, inner = (None, *found.loops)
    column = inner if inner and not inner.strides[0] else None
    rows = [loop for loop in found.loops if loop is not column]
    row = rows[-1] if rows else None
    bytewise = column is not None and column.strides[1:] == (size, size)
    if bytewise:
        assert column is not None
        joined = Loop(column.extent * size, (0, 1, 1))
        found = found._replace(
            loops=tuple(joined if loop is column else loop for loop in found.loops)
        )
        column = joined
    extent = column.extent if column else 1
    across = min(extent, BLOCK_BYTES)
    down = max(1, BLOCK_BYTES // (across * (1 if bytewise else size)))
    grid = grid_of([pointers, source, target], found, row, column, down, across)
    count, kind = len(components), pointers.dtype
    way = "rows" if bytewise else f"items{size}" if column else f"single{size}"
    name = f"gather_{way}_{count}_{kind}"
    body = partial(_gather, count, kind, way, size)
    lines = target.size / max(1, extent // size if bytewise else extent)
    cost = lines * (3.0 + 2.0 * count) + target.nbytes / (12 if bytewise else size)
    extra = [step, *(word for pair in components for word in pair)]
    kernel = grid_kernel(name, Form(3, extras=len(extra)), body)
    return grid.phase(kernel, cost, context.workers, "gather", extra)


def windows_of(x: View, indices: View, slices: Sequence[int], layout: Layout) -> tuple[View, View]:
    """Indices and operand as views over the dimensions of the slices, from the first window on.

    The first says where an index vector is, along the batch dimensions; the second where an
    element is, along window and batching dimensions, if all indices are zero.
    """
    pointers, source = [0] * len(slices), [0] * len(slices)
    for i, s in enumerate(layout.batch):
        pointers[s] = indices.strides[i]
    for s, d in layout.window.items():
        source[s] = x.strides[d]
    for d, i in layout.batching.items():
        source[layout.batch[i]] = x.strides[d]
    shape = tuple(slices)
    return (
        View(indices.slot, indices.offset, shape, tuple(pointers), indices.dtype),
        View(x.slot, x.offset, shape, tuple(source), x.dtype),
    )


def _reach(layout: Layout, slices: Sequence[int], dim: int) -> int:
    """How many elements of a dimension of the operand a window covers."""
    return next((slices[s] for s, d in layout.window.items() if d == dim), 1)


def _gather(count: int, dtype: str, way: str, size: int, f: Function, block: Block) -> None:
    """Rows that start where indices say, of bytes that lie together, of items, of one item."""
    step = block.extra(0)
    limits = [block.extra(1 + 2 * k) for k in range(count)]
    strides = [block.extra(2 + 2 * k) for k in range(count)]

    def found(pointer: Value, source: Value) -> Value:
        for k in range(count):
            index = load_index(f, f.offset(pointer, step * k) if k else pointer, dtype)
            source = f.offset(source, clamped(f, index, limits[k], dtype) * strides[k])
        return source

    def start(row: Value) -> tuple[Value, Value]:
        pointer, source, target = (
            f.offset(address, row * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        return found(pointer, source), target

    if way == "rows":
        bodies.rows_of_bytes(f, block.rows, block.columns, start, streaming=False)
        return
    type = bodies.item_type(size)
    if way.startswith("single"):
        done = f.variable("i64", 0)
        places = [f.variable("ptr", address) for address in block.addresses]
        ahead = [[stride * i for stride in block.row_strides] for i in range(5)]
        if count == 1 and dtype == "i32" and size in (1, 2, 4, 8) and "+avx2" in host().features:
            _gather_vectors(f, size, block, places, done, limits[0], strides[0])
        for unroll in (4, 1):
            with f.while_(partial(fits, done, block.rows, unroll)):
                for i in range(unroll):
                    pointer, source, target = (
                        f.offset(place.get(), far)
                        for place, far in zip(places, ahead[i], strict=True)
                    )
                    f.store(f.load(found(pointer, source), type, 1), target, 1)
                for place, far in zip(places, ahead[unroll], strict=True):
                    place.set(f.offset(place.get(), far))
                done.set(done.get() + unroll)
        return
    with f.loop(0, block.rows) as row:
        first, second = start(row)
        at, to = f.variable("ptr", first), f.variable("ptr", second)
        with f.loop(0, block.columns):
            f.store(f.load(at.get(), type, 1), to.get(), 1)
            at.set(f.offset(at.get(), block.column_strides[1]))
            to.set(f.offset(to.get(), block.column_strides[2]))


def _gather_vectors(
    f: Function, size: int, block: Block, places: Sequence[Variable], done: Variable,
    limit: Value, stride: Value,
) -> None:  # fmt: skip
    """Vectors of items, as many as there are, where indices and target lie together."""
    from_row, to_row = block.row_strides[1:]
    together = block.row_strides[0].is_("eq", 4) & to_row.is_("eq", size)
    whole, type = vector("i64", GATHERED), vector(bodies.item_type(size), GATHERED)
    lanes = Value(f"<{', '.join(f'i64 {i}' for i in range(GATHERED))}>", whole, f)
    steps, scale = lanes * f.splat(from_row, GATHERED), f.splat(stride, GATHERED)
    least, most = f.value(0, whole), f.splat(limit, GATHERED)
    with f.when(together), f.while_(partial(fits, done, block.rows, GATHERED)):
        pointer, source, target = (place.get() for place in places)
        index = f.load(pointer, vector("i32", GATHERED), 4).to(whole, "sext")
        index = f.select(index.is_("slt", 0), least, index)
        index = f.select(index.is_("sgt", most), most, index)
        distance = index * scale + steps
        if size >= 4:
            f.store(_items_at(f, source, distance, type), target, size)
        else:
            for lane in range(GATHERED):
                far = f.emit(f"extractelement {whole} {distance}, i64 {lane}", "i64")
                item = f.load(f.offset(source, far), element(type), 1)
                f.store(item, f.offset(target, lane * size), 1)
        for place, step in zip(places, block.row_strides, strict=True):
            place.set(f.offset(place.get(), step * GATHERED))
        done.set(done.get() + GATHERED)


def _items_at(f: Function, source: Value, distance: Value, type: str) -> Value:
    """A vector of items so many bytes after a place."""
    places, mask, item = vector("ptr", GATHERED), vector("i1", GATHERED), element(type)
    name = f"llvm.masked.gather.v{GATHERED}{item}.v{GATHERED}p0"
    f.module.declare(name, type, [places, "i32 immarg", mask, type])
    at = f.emit(f"getelementptr i8, ptr {source}, {distance.type} {distance}", places)
    return f.emit(
        f"call {type} @{name}({places} {at}, i32 {int(item[1:]) // 8}, {mask} splat (i1 true), "
        f"{type} zeroinitializer)",
        type,
    )


RULES: dict[str, Rule] = {
    "dynamic_slice": dynamic_slice_rule,
    "dynamic_update_slice": dynamic_update_slice_rule,
    "gather": gather_rule,
}
"""Each with phases for whatever strides there are."""
