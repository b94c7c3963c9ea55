"""Bodies that copy a block: rows of bytes, fills, repeats, single items, reversed rows.

Views are (source, target). Only the size in bytes of an item matters, not its element type.
"""

from collections.abc import Callable
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, StackVariable
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock

VECTORS_PER_ITERATION = 4
"""Vectors that an iteration of a copy loop moves."""


def item_type(nbytes: int) -> str:
    """Return the LLVM integer type of `nbytes` bytes."""
    return f"i{8 * nbytes}"


def byte_vector_type(nbytes: int) -> str:
    """Return the LLVM type of a vector of bytes."""
    return f"<{nbytes} x i8>"


def copy_rows(streaming: bool, f: LLVMFunction, block: GridBlock) -> None:
    """Copy rows that are contiguous in both views; a column is a byte."""

    def start(row: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        source, target = (
            f.offset(address, row * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        return source, target

    # A result buffer that reuses the operand's memory already has the elements.
    with f.when(block.addresses[0].is_("ne", block.addresses[1])):
        copy_byte_rows(f, block.rows, block.columns, start, streaming)


def copy_byte_rows(
    f: LLVMFunction,
    rows: LLVMValue,
    count: LLVMValue,
    start: Callable[[LLVMValue], tuple[LLVMValue, LLVMValue]],
    streaming: bool,
) -> None:
    """Copy `count` bytes per row; `start` returns the source and target address of a row."""
    width = f.machine.vector_bytes

    def each(copy: Callable[[LLVMValue, LLVMValue], None]) -> None:
        with f.loop(0, rows) as row:
            copy(*start(row))

    def wide() -> None:
        if streaming:
            each(partial(_copy_streaming, f, count, width))
        else:
            each(partial(_copy_wide, f, count, width))

    def narrow() -> None:
        size = width // 2
        while size >= 1:
            with f.when((count - size).is_("ult", size)):
                each(partial(_copy_ends, f, count, size))
            size //= 2

    f.if_else(count.is_("uge", CACHE_LINE_BYTES if streaming else width), wide, narrow)


def _is_before(position: StackVariable, stop: LLVMValue) -> LLVMValue:
    return position.get().is_("slt", stop)


def _copy_ends(
    f: LLVMFunction, count: LLVMValue, size: int, source: LLVMValue, target: LLVMValue
) -> None:
    """Copy at least `size` and less than twice as many bytes: the first and the last `size`
    bytes."""
    last = count - size
    first_half = f.load(source, byte_vector_type(size), 1)
    second_half = f.load(f.offset(source, last), byte_vector_type(size), 1)
    f.store(first_half, target, 1)
    f.store(second_half, f.offset(target, last), 1)


def _copy_wide(
    f: LLVMFunction, count: LLVMValue, width: int, source: LLVMValue, target: LLVMValue
) -> None:
    """Copy at least one vector; the last vector overlaps the one before it."""
    last = count - width
    end = f.load(f.offset(source, last), byte_vector_type(width), 1)
    position = f.variable("i64", 0)
    for vectors in (VECTORS_PER_ITERATION, 1):
        _copy_vectors(f, position, count, width, vectors, False, source, target)
    f.store(end, f.offset(target, last), 1)


def _copy_streaming(
    f: LLVMFunction, count: LLVMValue, width: int, source: LLVMValue, target: LLVMValue
) -> None:
    """Copy at least a cache line; whole cache lines of the target are streamed.

    No other store writes to these lines: a streaming store evicts a line that is in the cache.
    """
    head = (f.value(0, "i64") - target.to("i64", "ptrtoint")) & (CACHE_LINE_BYTES - 1)
    copy_few_bytes(f, head, CACHE_LINE_BYTES, source, target)
    position = f.variable("i64", head)
    vectors = CACHE_LINE_BYTES // width
    for lines in (4, 1):
        _copy_vectors(f, position, count, width, lines * vectors, True, source, target)
    at = position.get()
    rest = f.offset(source, at), f.offset(target, at)
    copy_few_bytes(f, count - at, CACHE_LINE_BYTES, *rest)


def copy_few_bytes(
    f: LLVMFunction, count: LLVMValue, limit: int, source: LLVMValue, target: LLVMValue
) -> None:
    """Copy fewer bytes than `limit`, a power of two."""
    size = limit // 2
    while size >= 1:
        with f.when((count - size).is_("ult", size)):
            _copy_ends(f, count, size, source, target)
        size //= 2


def _copy_vectors(
    f: LLVMFunction,
    position: StackVariable,
    count: LLVMValue,
    width: int,
    vectors: int,
    streaming: bool,
    source: LLVMValue,
    target: LLVMValue,
) -> None:
    """Copy `vectors` vectors per iteration from `position` on, and advance it."""
    step = vectors * width
    with f.while_(partial(_is_before, position, count - (step - 1))):
        at = position.get()
        moved = [
            f.load(f.offset(source, at + i * width), byte_vector_type(width), 1)
            for i in range(vectors)
        ]
        for i, value in enumerate(moved):
            place = f.offset(target, at + i * width)
            f.store(value, place, width if streaming else 1, streaming)
        position.set(at + step)


def fill_rows(nbytes: int, streaming: bool, f: LLVMFunction, block: GridBlock) -> None:
    """Fill each row with one item; a column is an item."""
    width = f.machine.vector_bytes
    lanes = max(1, width // nbytes)
    type = item_type(nbytes)
    with f.loop(0, block.rows) as i:
        source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        one = f.load(source, type, 1)
        many = f.splat(one, lanes)
        count = block.columns
        position = f.variable("i64", 0)
        if streaming:
            whole = lanes * nbytes
            head = ((f.value(0, "i64") - target.to("i64", "ptrtoint")) & (whole - 1)) // nbytes
            with f.while_(lambda: position.get().is_("slt", f.umin(head, count))):
                at = position.get()
                f.store(one, f.offset(target, at, type), 1)
                position.set(at + 1)
        for vectors in (VECTORS_PER_ITERATION, 1):
            step = vectors * lanes
            with f.while_(partial(_is_before, position, count - (step - 1))):
                at = position.get()
                for k in range(vectors):
                    place = f.offset(target, at + k * lanes, type)
                    f.store(many, place, lanes * nbytes if streaming else 1, streaming)
                position.set(at + step)
        with f.while_(lambda: position.get().is_("slt", count)):
            at = position.get()
            f.store(one, f.offset(target, at, type), 1)
            position.set(at + 1)


def repeat_rows(nbytes: int, times: int, f: LLVMFunction, block: GridBlock) -> None:
    """Repeat each item of contiguous rows `times` times; a column is an item of the source.

    Each target vector is a shuffle of a source vector.
    """
    lanes = max(2, f.machine.lanes(nbytes))
    one = item_type(nbytes)
    type = f"<{lanes} x {one}>"
    with f.loop(0, block.rows) as i:
        source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        count = block.columns
        position = f.variable("i64", 0)
        with f.while_(partial(_is_before, position, count - (lanes - 1))):
            at = position.get()
            items = f.load(f.offset(source, at, one), type, 1)
            place = f.offset(target, at * times, one)
            for k in range(times):
                chosen = [(k * lanes + lane) // times for lane in range(lanes)]
                f.store(f.shuffle(items, items, chosen), f.offset(place, k * lanes, one), 1)
            position.set(at + lanes)
        with f.while_(partial(_is_before, position, count)):
            at = position.get()
            item = f.load(f.offset(source, at, one), one, 1)
            place = f.offset(target, at * times, one)
            for k in range(times):
                f.store(item, f.offset(place, k, one), 1)
            position.set(at + 1)


def copy_items(nbytes: int, f: LLVMFunction, block: GridBlock) -> None:
    """Copy item by item, with any strides."""
    type = item_type(nbytes)
    (from_row, to_row), (from_column, to_column) = block.row_strides, block.column_strides
    with f.loop(0, block.rows) as i:
        source = f.variable("ptr", f.offset(block.addresses[0], i * from_row))
        target = f.variable("ptr", f.offset(block.addresses[1], i * to_row))
        for unroll, count in ((4, block.columns >> 2), (1, block.columns & 3)):
            with f.loop(0, count):
                for _ in range(unroll):
                    f.store(f.load(source.get(), type, 1), target.get(), 1)
                    source.set(f.offset(source.get(), from_column))
                    target.set(f.offset(target.get(), to_column))


def reverse_rows(nbytes: int, f: LLVMFunction, block: GridBlock) -> None:
    """Copy rows whose items are contiguous, with the order of the source reversed."""
    lanes = f.machine.lanes(nbytes)
    type = f"<{lanes} x {item_type(nbytes)}>"
    one = item_type(nbytes)
    with f.loop(0, block.rows) as i:
        source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        count = block.columns
        position = f.variable("i64", 0)
        with f.while_(lambda: position.get().is_("slt", count - (lanes - 1))):
            at = position.get()
            back = f.load(f.offset(source, (at + (lanes - 1)) * -nbytes), type, 1)
            reversed_items = (
                f.shuffle(back, back, list(reversed(range(lanes)))) if lanes > 1 else back
            )
            f.store(reversed_items, f.offset(target, at * nbytes), 1)
            position.set(at + lanes)
        with f.while_(lambda: position.get().is_("slt", count)):
            at = position.get()
            f.store(
                f.load(f.offset(source, at * -nbytes), one, 1), f.offset(target, at * nbytes), 1
            )
            position.set(at + 1)
