"""Bodies of gathers: read elements at computed indices.

Contiguous rows of bytes are copied as such, others item by item. Offsets of single items are
computed in vectors.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    StackVariable,
    element_type,
    vector_type,
)
from shardir.backends.cpu.kernels.data_movement import copy_bodies
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock, load_index
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.ir.dtypes import UNSIGNED

GATHERED_ITEMS = 8
"""Items whose offsets are computed in one vector."""


class IndexMode(NamedTuple):
    """Treatment of indices: negative indices count from the end (`wraps`), out-of-bounds indices
    read a fill value (`fills`); otherwise they are clamped."""

    wraps: bool = False
    fills: bool = False

    @property
    def name(self) -> str:
        return "_wrap" * self.wraps + "_fill" * self.fills

    def resolve(
        self, f: LLVMFunction, given: LLVMValue, limit: LLVMValue, dtype: str
    ) -> tuple[LLVMValue, LLVMValue]:
        """Return an index in [0, `limit`] and whether it was in bounds: one or a vector, in 64
        bits."""
        at = f.select(given.is_("slt", 0), given + limit + 1, given) if self.wraps else given
        inside = at.is_("ule", limit)
        if self.fills:
            return f.select(inside, at, 0), inside
        if dtype not in UNSIGNED:
            at = f.select(at.is_("slt", 0), 0, at)
        return f.select(at.is_("sgt", limit), limit, at), inside


def gather_rows(
    count: int,
    dtype: str,
    variant: str,
    size: int,
    wrapping: IndexMode,
    f: LLVMFunction,
    block: GridBlock,
) -> None:
    """Gather rows at the indices: contiguous bytes ("rows"), items, or single items."""
    step = block.extra(0)
    limits = [block.extra(1 + 2 * k) for k in range(count)]
    strides = [block.extra(2 + 2 * k) for k in range(count)]

    def element_address(pointer: LLVMValue, source: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        inside = f.value(1, "i1")
        for k in range(count):
            index = load_index(f, f.offset(pointer, step * k) if k else pointer, dtype)
            index, inside = wrapping.resolve(f, index, limits[k], dtype)
            source = f.offset(source, index * strides[k])
        return source, inside

    def start(row: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        pointer, source, target = (
            f.offset(address, row * stride)
            for address, stride in zip(block.addresses, block.row_strides, strict=True)
        )
        return element_address(pointer, source)[0], target

    if variant == "rows":
        copy_bodies.copy_byte_rows(f, block.rows, block.columns, start, streaming=False)
        return
    type = copy_bodies.item_type(size)
    if variant.startswith("single"):
        done = f.variable("i64", 0)
        places = [f.variable("ptr", address) for address in block.addresses]
        ahead = [[stride * i for stride in block.row_strides] for i in range(5)]
        if count == 1 and dtype == "i32" and size in (1, 2, 4, 8) and "+avx2" in f.machine.features:
            _gather_vectors(f, size, block, places, done, limits[0], strides[0], wrapping)
        for unroll in (4, 1):
            with f.while_(partial(fits_before, done, block.rows, unroll)):
                for i in range(unroll):
                    pointer, source, target = (
                        f.offset(place.get(), far)
                        for place, far in zip(places, ahead[i], strict=True)
                    )
                    address, inside = element_address(pointer, source)
                    item = f.load(address, type, 1)
                    if wrapping.fills:
                        item = f.select(inside, item, _fill_value(block, size))
                    f.store(item, target, 1)
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
    f: LLVMFunction,
    size: int,
    block: GridBlock,
    places: Sequence[StackVariable],
    done: StackVariable,
    limit: LLVMValue,
    stride: LLVMValue,
    wrapping: IndexMode,
) -> None:
    """Gather `GATHERED_ITEMS` items per iteration, if indices and target are contiguous.

    Offsets are stored to memory and each item is loaded separately: gather instructions take up to
    twice as long.
    """
    from_row, to_row = block.row_strides[1:]
    contiguous = block.row_strides[0].is_("eq", 4) & to_row.is_("eq", size)
    whole, type = (
        vector_type("i64", GATHERED_ITEMS),
        vector_type(copy_bodies.item_type(size), GATHERED_ITEMS),
    )
    lanes = LLVMValue(f"<{', '.join(f'i64 {i}' for i in range(GATHERED_ITEMS))}>", whole, f)
    steps, scale = lanes * f.splat(from_row, GATHERED_ITEMS), f.splat(stride, GATHERED_ITEMS)
    most = f.splat(limit, GATHERED_ITEMS)
    other = f.splat(_fill_value(block, size), GATHERED_ITEMS) if wrapping.fills else None
    with f.when(contiguous), f.while_(partial(fits_before, done, block.rows, GATHERED_ITEMS)):
        pointer, source, target = (place.get() for place in places)
        index = f.load(pointer, vector_type("i32", GATHERED_ITEMS), 4).to(whole, "sext")
        index, inside = wrapping.resolve(f, index, most, "i32")
        distance = index * scale + steps
        f.store(distance, block.scratch, 64)
        for lane in range(GATHERED_ITEMS):
            kept = f.offset(block.scratch, 8 * lane)
            # A volatile load keeps the compiler from extracting the lane from the vector.
            far = f.emit(f"load volatile i64, ptr {kept}, align 8", "i64")
            item = f.load(f.offset(source, far), element_type(type), 1)
            f.store(item, f.offset(target, lane * size), 1)
        if other is not None:
            missing = (~inside).to(f"i{GATHERED_ITEMS}", "bitcast")
            with f.when(missing.is_("ne", 0)):
                items = f.load(target, type, 1)
                f.store(f.select(inside, items, other), target, 1)
        for place, step in zip(places, block.row_strides, strict=True):
            place.set(f.offset(place.get(), step * GATHERED_ITEMS))
        done.set(done.get() + GATHERED_ITEMS)


def _fill_value(block: GridBlock, size: int) -> LLVMValue:
    """Return the fill value of out-of-bounds indices: the word after those of the single index."""
    word = block.extra(3)
    return word if size == 8 else word.to(copy_bodies.item_type(size), "trunc")
