"""Boolean mask compaction: writes the selected elements, rows, or their indices contiguously.

The result size depends on the data, so that no IR operation does this; arrays call it directly. The
true elements of every chunk of a mask are counted; the counts determine the offset of the output of
each chunk. If the processor has compress instructions, full vectors are written while at least a
vector of output is left; otherwise an element is always written, and the output position advances
only if it was selected.
"""

import ctypes
from collections.abc import Callable
from functools import lru_cache, partial

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.dispatch.memory_block import MemoryBlock
from shardir.backends.cpu.dispatch.program_table import RunProgram, load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.threads.memory import allocate

MIN_CHUNK_ELEMENTS = 1 << 16
"""Minimum elements of a mask that one task counts."""
MAX_CHUNKS = 64
"""About the maximum number of chunks of a mask."""
ITEM_TYPE_BY_BYTES = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i128"}
"""The type of rows of this many bytes, which are copied as one item; other rows are copied
bytewise."""
COMPRESS_FEATURE_BY_BYTES = {4: "avx512f", 8: "avx512f", 1: "avx512vbmi2", 2: "avx512vbmi2"}
"""The x86 feature that compresses items of this many bytes."""
BYTES_PER_CHECK = 64
"""Bytes of a mask that are checked together."""


def compile_row_selection(
    size: int, row: int, outer: int = 1
) -> Callable[[int, int], tuple[int, MemoryBlock]]:
    """Return a function that selects rows: from the addresses of a mask of `size` bytes and of
    `outer` times `size` contiguous rows of `row` bytes, to the number of true bytes and the
    rows."""
    counting, moving, words = _programs(size, row, outer, False)
    several = len(words()) > 1
    each = outer * row

    def chosen(mask: int, source: int) -> tuple[int, MemoryBlock]:
        counts = words()
        place = ctypes.addressof(counts)
        counting(mask, place)
        total = sum(counts) if several else counts[0]
        block = allocate(each * total)
        if total:
            moving(mask, place, source, block.address)
        return total, block

    return chosen


def true_indices(mask: int, size: int) -> tuple[int, MemoryBlock]:
    """Return the number of true elements of a mask, and their indices in i32."""
    counting, moving, words = _programs(size, 4, 1, True)
    counts = words()
    counting(mask, ctypes.addressof(counts))
    total = sum(counts)
    block = allocate(total * 4)
    if total:
        moving(mask, ctypes.addressof(counts), block.address)
    return total, block


@lru_cache(256)
def _programs(
    size: int, row: int, outer: int, counted: bool
) -> tuple[RunProgram, RunProgram, type[ctypes.Array[ctypes.c_int64]]]:
    piece = max(MIN_CHUNK_ELEMENTS, -(-size // (MAX_CHUNKS * 64)) * 64)
    pieces = max(1, -(-size // piece))
    count = Kernel("mask_count", _count_text)
    counting = Phase(count, (size, piece), pieces, size / 30, "count")
    groups = 1 if pieces > 1 else max(1, min(outer, outer * size // MIN_CHUNK_ELEMENTS))
    each = -(-outer // groups)
    kind = "places" if counted else f"items{row}" if row in ITEM_TYPE_BY_BYTES else "rows"
    kernel = Kernel(f"mask_{kind}", partial(_move_text, kind, row))
    record = (size, piece, pieces, outer, each, row)
    cost = outer * size * (0.3 + row / 32)
    moving = Phase(kernel, record, pieces * groups, cost, "compact")
    return (
        load_program([counting], 3),
        load_program([moving], 4 if counted else 5),
        ctypes.c_int64 * pieces,
    )


def _start(
    name: str, machine: HostDescription
) -> tuple[LLVMModule, LLVMFunction, Callable[[int], LLVMValue], Callable[[int], LLVMValue]]:
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record = f.params[:2]
    return (
        module,
        f,
        lambda slot: f.load(f.offset(bases, slot, "ptr"), "ptr"),
        lambda word: f.load(f.offset(record, word, "i64"), "i64"),
    )


def _nonzero_bits(f: LLVMFunction, address: LLVMValue, count: int) -> LLVMValue:
    """Return which of `count` bytes are nonzero, as a bit mask."""
    bytes_ = f.load(address, vector_type("i8", count), 1)
    return bytes_.is_("ne", 0).to(f"i{count}", "bitcast")


def _count_text(machine: HostDescription) -> str:
    module, f, base, word = _start("mask_count", machine)
    size, piece, task = word(0), word(1), f.params[2]
    start = task * piece
    stop = f.umin(start + piece, size)
    mask, total, at = base(1), f.variable("i64", 0), f.variable("i64", start)
    with f.while_(lambda: (at.get() + BYTES_PER_CHECK).is_("sle", stop)):
        flags = _nonzero_bits(f, f.offset(mask, at.get()), BYTES_PER_CHECK)
        total.set(total.get() + f.intrinsic("ctpop", flags))
        at.set(at.get() + BYTES_PER_CHECK)
    with f.loop(at.get(), stop) as i:
        total.set(total.get() + f.load(f.offset(mask, i), "i8").is_("ne", 0).to("i64", "zext"))
    f.store(total.get(), f.offset(base(2), task, "i64"))
    f.ret()
    return module.text()


def _move_text(kind: str, row: int, machine: HostDescription) -> str:
    module, f, base, word = _start(f"mask_{kind}", machine)
    size, piece, pieces, outer, each, width = (word(i) for i in range(6))
    task = f.params[2]
    number, group = task % pieces, task // pieces
    begin, total = f.variable("i64", 0), f.variable("i64", 0)
    counts = base(2)
    with f.loop(0, pieces) as i:
        here = f.load(f.offset(counts, i, "i64"), "i64")
        begin.set(begin.get() + f.select(i.is_("slt", number), here, 0))
        total.set(total.get() + here)
    left = f.load(f.offset(counts, number, "i64"), "i64")
    start = number * piece
    mask = f.offset(base(1), start)
    length = f.umin(start + piece, size) - start
    first = group * each
    with f.loop(first, f.umin(first + each, outer)) as line:
        if kind == "places":
            target = f.offset(base(3), begin.get() * 4)
            _compact_items(f, mask, length, left, target, 4, partial(_index_vector, f, start))
        else:
            source = f.offset(base(3), (line * size + start) * width)
            target = f.offset(base(4), (line * total.get() + begin.get()) * width)
            if kind == "rows":
                _compact_rows(f, mask, length, left, target, source, width)
            else:
                _compact_items(
                    f, mask, length, left, target, row, partial(_load_items, f, source, row)
                )
    f.ret()
    return module.text()


def _index_vector(f: LLVMFunction, start: LLVMValue, at: LLVMValue, lanes: int) -> LLVMValue:
    """Return the indices of `lanes` elements."""
    first = f.splat((start + at).to("i32", "trunc"), lanes)
    if lanes == 1:
        return first
    steps = ", ".join(f"i32 {lane}" for lane in range(lanes))
    return first + LLVMValue(f"<{steps}>", first.type, f)


def _load_items(
    f: LLVMFunction, source: LLVMValue, row: int, at: LLVMValue, lanes: int
) -> LLVMValue:
    return f.load(
        f.offset(source, at * row),
        vector_type(ITEM_TYPE_BY_BYTES[row], lanes),
        row if row < 16 else 8,
    )


def _compact_items(
    f: LLVMFunction,
    mask: LLVMValue,
    length: LLVMValue,
    left: LLVMValue,
    target: LLVMValue,
    row: int,
    items: Callable[[LLVMValue, int], LLVMValue],
) -> None:
    """Write `left` items, those where the mask is true."""
    at, written = f.variable("i64", 0), f.variable("i64", 0)
    lanes = f.machine.lanes(row)
    if f"+{COMPRESS_FEATURE_BY_BYTES.get(row)}" in f.machine.features.split(","):
        with f.while_(lambda: (written.get() + lanes).is_("sle", left)):
            # At least this many items are left, so that as much of the mask is left, too.
            flags = f.load(f.offset(mask, at.get()), vector_type("i8", lanes), 1).is_("ne", 0)
            value = items(at.get(), lanes)
            whole = f"llvm.experimental.vector.compress.v{lanes}{ITEM_TYPE_BY_BYTES[row]}"
            f.module.declare(whole, value.type, [value.type, flags.type, value.type])
            packed = f.call(whole, [value, flags, f.value(0, value.type)], value.type)
            f.store(packed, f.offset(target, written.get() * row), row)
            number = flags.to(f"i{lanes}", "bitcast")
            many = f.intrinsic("ctpop", number)
            written.set(written.get() + (many if lanes == 64 else many.to("i64", "zext")))
            at.set(at.get() + lanes)

    def one(here: LLVMValue) -> None:
        f.store(items(here, 1), f.offset(target, written.get() * row), min(row, 8))
        flag = f.load(f.offset(mask, here), "i8").is_("ne", 0)
        written.set(written.get() + flag.to("i64", "zext"))

    _visit_true(f, mask, length, left, at, written, one)


def _visit_true(
    f: LLVMFunction,
    mask: LLVMValue,
    length: LLVMValue,
    left: LLVMValue,
    at: StackVariable,
    written: StackVariable,
    one: Callable[[LLVMValue], None],
) -> None:
    """Call `one` for positions of a mask until `left` are selected; runs of false are skipped."""
    with f.while_(lambda: written.get().is_("slt", left)):
        stop = f.umin(at.get() + BYTES_PER_CHECK, length)
        whole = (at.get() + BYTES_PER_CHECK).is_("sle", length)
        nothing = f.variable("i1", 0)
        with f.when(whole):
            nothing.set(_nonzero_bits(f, f.offset(mask, at.get()), BYTES_PER_CHECK).is_("eq", 0))
        with f.when(nothing.get() ^ 1):
            here = f.variable("i64", at.get())
            with f.while_(lambda: here.get().is_("slt", stop) & written.get().is_("slt", left)):
                one(here.get())
                here.set(here.get() + 1)
        at.set(stop)


def _compact_rows(
    f: LLVMFunction,
    mask: LLVMValue,
    length: LLVMValue,
    left: LLVMValue,
    target: LLVMValue,
    source: LLVMValue,
    width: LLVMValue,
) -> None:
    """Copy `left` rows of any size, those where the mask is true.

    The true positions of a run of bytes are the set bits of a word, so that false ones cost
    nothing.
    """
    at, written, flags = f.variable("i64", 0), f.variable("i64", 0), f.variable("i64", 0)
    wide = f.machine.vector_bytes

    def one(here: LLVMValue) -> None:
        old, new = f.offset(source, here * width), f.offset(target, written.get() * width)
        copied = f.variable("i64", 0)
        for kind, count in ((vector_type("i8", wide), wide), ("i64", 8), ("i8", 1)):
            with f.while_(partial(fits_before, copied, width, count)):
                word = f.load(f.offset(old, copied.get()), kind, 1)
                f.store(word, f.offset(new, copied.get()), 1)
                copied.set(copied.get() + count)
        written.set(written.get() + 1)

    def rest() -> None:
        flags.set(0)
        with f.loop(0, length - at.get()) as i:
            true = f.load(f.offset(mask, at.get() + i), "i8").is_("ne", 0)
            flags.set(flags.get() | (true.to("i64", "zext") << i))

    def many() -> None:
        flags.set(_nonzero_bits(f, f.offset(mask, at.get()), BYTES_PER_CHECK))

    with f.while_(lambda: written.get().is_("slt", left)):
        f.if_else((at.get() + BYTES_PER_CHECK).is_("sle", length), many, rest)
        with f.while_(lambda: flags.get().is_("ne", 0)):
            seen = flags.get()
            one(at.get() + f.intrinsic("cttz", seen, LLVMValue("true", "i1", f)))
            flags.set(seen & (seen - 1))
        at.set(at.get() + BYTES_PER_CHECK)
