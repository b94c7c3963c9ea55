"""The kernel of products whose left operand uses the padded NHWC layout: see `padded_nhwc`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import GroupInstruction
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    lane_count as lanes_of,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.conv.line_copy import LAYOUT_FUNCTION, emit_layout_copy
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    arithmetic_of,
    narrow_to_storage,
)
from shardir.backends.cpu.kernels.gemm.microkernel import (
    RegisterTile,
    TileAccumulators,
    lane_mask,
    masked_store,
)
from shardir.backends.cpu.kernels.gemm.offset_tables import emit_offsets, emit_segments
from shardir.backends.cpu.kernels.gemm.packing import emit_pack, emit_pack_contiguous_lines
from shardir.backends.cpu.kernels.gemm.product_task import ProductTask
from shardir.ir.types import NUMPY_DTYPES


class ColumnTiles(NamedTuple):
    """The tiles of the columns: `whole` tiles if there are any, and a `last` one for the remainder.

    If the last tile has some full vectors and at most half of another, it is `folded`: two rows
    share the vector of their last columns.
    """

    whole: RegisterTile | None
    last: RegisterTile | None
    folded: bool
    height: int

    @staticmethod
    def of(columns: int, tile: RegisterTile) -> "ColumnTiles":
        """Return the tiles for `columns` columns that are packed for `tile`."""
        whole, rest = columns // tile.columns, columns % tile.columns
        half = 0 < rest % tile.lanes <= tile.lanes // 2 and tile.halved
        last = tile._replace(width=-(-rest // tile.lanes)) if rest else None
        if last and half and last.width == 1:
            last, half = last._replace(lanes=tile.lanes // 2), False
        # Folded vectors leave registers for more rows.
        height = tile.height * 4 // 3 if half and not whole else tile.height
        return ColumnTiles(tile if whole else None, last, half, height)

    def with_height(self, height: int) -> "ColumnTiles":
        """Return the same tiles with `height` rows."""
        whole, last = (each and each._replace(height=height) for each in (self.whole, self.last))
        return self._replace(whole=whole, last=last, height=height)

    @property
    def parts(self) -> list[tuple[RegisterTile, bool]]:
        """The tiles, and whether they are folded."""
        parts = (self.whole, False), (self.last, self.folded)
        return [(tile, folded) for tile, folded in parts if tile]

    @property
    def name(self) -> str:
        """The part of the kernel's name that depends on the tiles."""
        columns = [str(tile.columns) for tile in (self.whole, self.last) if tile]
        return f"{self.height}x{'_'.join(columns)}" + "_folded" * self.folded


@cache
def padded_nhwc_kernel(
    dtypes: tuple[str, str, str],
    sizes: BlockSizes,
    tiles: ColumnTiles,
    pace: int,
    grouped: GroupInstruction | None = None,
) -> Kernel:
    """Return the kernel for these tiles, also with one row less; rows are `pace` elements apart.
    Elements of operands may be groups for the instruction `grouped`."""
    groups = f"_groups_{grouped.name}" if grouped else ""
    name = f"padded_nhwc_{'_'.join(dtypes)}{groups}_{tiles.name}_by{pace}"
    arith = arithmetic_of(dtypes[2])._replace(grouped=grouped)
    return Kernel(name, lambda machine: _text(machine, name, dtypes, sizes, tiles, pace, arith))


def _text(
    machine: HostDescription,
    name: str,
    dtypes: tuple[str, str, str],
    sizes: BlockSizes,
    tiles: ColumnTiles,
    pace: int,
    arith: Arithmetic,
) -> str:
    lhs, rhs, out = dtypes
    module, packed = LLVMModule(machine), sizes.tile.columns
    emit_offsets(module)
    emit_segments(module)
    emit_pack_contiguous_lines(module, "pack_contiguous_rhs", packed, rhs, arith)
    emit_pack(module, rhs, arith, max(sizes.tile.height, packed), sizes.steps)
    emit_layout_copy(module, lhs, arith, 1)
    for part, folded in dict.fromkeys(tiles.parts):
        for height in dict.fromkeys((tiles.height, max(1, tiles.height - 1))):
            part = part._replace(height=height)
            _NhwcTileEmitter(part, packed, arith, out, pace, folded).emit(module)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    task = ProductTask(f, {"lhs": lhs, "rhs": rhs}, sizes, arith, PatchAccess())
    _emit_block(task, out, tiles, pace)
    f.ret()
    return module.text()


def _emit_block(task: ProductTask, out_dtype: str, tiles: ColumnTiles, pace: int) -> None:
    """Emit whole lines of the result, one after the other."""
    f, r, block, size = task.f, task.record, task.block, task.arith.size
    item = NUMPY_DTYPES[out_dtype].itemsize
    inner, height, packed = r["inner"], tiles.height, task.sizes.tile.columns
    (places, line_distance), (row_out, line_out) = (
        [f.load(f.offset(r.loops(name)[0], at, "i64"), "i64") for at in where]
        for name, where in (("rows_lhs", (0, 3)), ("rows_out", (1, 3)))
    )
    words, table = r.loops("image_layout")[0], task.places["lhs_segments"]
    width = f.load(words, "i64")
    offsets = task.places["rows_staged"]
    for i in range(height):
        f.store(row_out * i, f.offset(offsets, i, "i64"))
    task.fill_line_tables("columns_rhs", block.first_column, block.columns)
    first, count = block.first_row // places, block.rows // places
    pieces = (places + (height - 1)) // height
    # The first `higher` pieces of a line have one row more than the others.
    higher = places - pieces * (height - 1)
    with block.products(task.bases) as (lhs, rhs, out, _):
        none = f.value(0, "i64")
        filter, image = task.places["rhs"], task.places["lhs"]
        task.pack("rhs", rhs, none, block.columns, none, inner, filter)
        copied = first * line_distance * width, ((count - 1) * line_distance + 1) * width
        f.call(LAYOUT_FUNCTION, [image, lhs, words, table, none, inner, *copied])
        with f.loop(0, count) as line:
            source = f.variable("ptr", f.offset(image, line * line_distance * width * size))
            to = f.variable("ptr", f.offset(out, (first + line) * line_out))
            with f.loop(0, pieces) as piece:
                whole = piece.is_("slt", higher)
                with f.loop(0, block.columns, packed) as j:
                    rest = block.columns - j
                    found, *last = (_select_tile_function(f, *part, whole) for part in tiles.parts)
                    if last:
                        found = f.select(rest.is_("slt", packed), last[0], found)
                    right = f.offset(filter, j * inner * size)
                    args = [inner, source.get(), right, table, f.offset(to.get(), j * item)]
                    f.call(str(found), [*args, offsets, rest])
                rows = f.select(whole, height, height - 1)
                source.set(f.offset(source.get(), rows * (pace * size)))
                to.set(f.offset(to.get(), rows * row_out))


def _select_tile_function(
    f: LLVMFunction, tile: RegisterTile, folded: bool, whole: LLVMValue
) -> LLVMValue:
    """Return the function for a tile; one row less unless `whole` is set."""
    high, low = (
        LLVMValue(f"@{_tile_function_name(tile._replace(height=height), folded)}", "ptr", f)
        for height in (tile.height, max(1, tile.height - 1))
    )
    return f.select(whole, high, low)


def _tile_function_name(tile: RegisterTile, folded: bool) -> str:
    return f"tile{tile.height}x{tile.columns}" + "_folded" * folded


@dataclass
class _NhwcTileEmitter:
    """Emits `tile(steps, lhs, rhs, table, out, offsets, columns)`.

    Rows are `pace` elements apart, steps at the offsets in the table; columns are packed, `packed`
    for each step. Row i of the result, of the type `out`, begins `offsets[i]` bytes further on.
    """

    tile: RegisterTile
    packed: int
    arith: Arithmetic
    out: str
    pace: int
    folded: bool

    def emit(self, module: LLVMModule) -> None:
        """Emit the function."""
        params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly",
                  "ptr noalias", "ptr noalias readonly", "i64"]  # fmt: skip
        f = add_outlined_function(module, _tile_function_name(self.tile, self.folded), params)
        steps, lhs, rhs, table, out, offsets, columns = f.params
        height, size = self.tile.height, self.arith.size
        # A folded vector holds two rows that are half of the rows apart; an odd last row is single.
        self.pairs = [(i, i + height // 2) for i in range(height // 2) if self.folded]
        self.pairs += [(height - 1, height - 1)] * (height % 2 * self.folded)
        sums = TileAccumulators(f, self._plain(), self.tile, self.arith)
        type = vector_type(self.arith.type, self.tile.lanes)
        self.mixed = [f.variable(type, 0) for _ in self.pairs]
        right = f.variable("ptr", rhs)

        def step(k: LLVMValue) -> None:
            start = f.offset(lhs, f.load(f.offset(table, k, "i64"), "i64"))
            rows = [f.offset(start, i * self.pace * size) for i in range(height)]
            here = right.get()
            if self.folded:
                self._add_folded(f, sums, rows, here)
            else:
                sums.add([rows], sums.columns_at(here))
            right.set(f.offset(here, self.packed * size))

        # Each of the first steps prefetches one row of the result.
        prefetched_rows = f.umin(steps, height)
        with f.loop(0, prefetched_rows) as k:
            sums.prefetch_row([out, offsets], k)
            step(k)
        with f.loop(prefetched_rows, steps) as k:
            step(k)
        self._write(f, sums, out, offsets, columns)
        f.ret()

    def _plain(self) -> RegisterTile:
        """Return the tile without the folded vector: vectors of one row each."""
        return self.tile._replace(width=self.tile.width - self.folded)

    def _add_folded(
        self, f: LLVMFunction, sums: TileAccumulators, rows: Sequence[LLVMValue], right: LLVMValue
    ) -> None:
        """Add the products of a step, a pair of rows at a time, so that operands use few
        registers."""
        lanes, arith = self.tile.lanes, self.arith
        half = vector_type(arith.type, lanes // 2)
        columns = [each for (each,) in sums.columns_at(right)]
        few = f.load(f.offset(right, len(columns) * lanes * arith.size), half, arith.size)
        twice = f.shuffle(few, few, [*range(lanes // 2)] * 2)

        def add(place: StackVariable, a: LLVMValue, b: LLVMValue) -> None:
            place.set(arith.add_product(f, a, b, place.get()))

        first = ", ".join(f"i1 {int(lane < lanes // 2)}" for lane in range(lanes))
        for place, pair in zip(self.mixed, self.pairs, strict=True):
            left = {i: f.splat(f.load(rows[i], arith.type), lanes) for i in pair}
            for i, a in left.items():
                for (total,), b in zip(sums.sums[i], columns, strict=True):
                    add(total, a, b)
            text = f"select <{lanes} x i1> <{first}>, {twice.type} {left[pair[0]]}"
            both = f.emit(f"{text}, {twice.type} {left[pair[1]]}", twice.type)
            add(place, both, twice)

    def _write(
        self,
        f: LLVMFunction,
        sums: TileAccumulators,
        out: LLVMValue,
        offsets: LLVMValue,
        columns: LLVMValue,
    ) -> None:
        lanes, size = self.tile.lanes, NUMPY_DTYPES[self.out].itemsize
        parts: list[list[LLVMValue]] = [[each.get() for (each,) in row] for row in sums.sums]
        for place, pair in zip(self.mixed, self.pairs, strict=True):
            both = place.get()
            for i, first in zip(pair, (0, lanes // 2), strict=True):
                parts[i].append(f.shuffle(both, both, range(first, first + lanes // 2)))
        masks = []
        for j, part in enumerate(parts[0]):
            masks.append(lane_mask(f, columns - j * lanes, lanes_of(part.type)))

        def write(masked: bool) -> None:
            for i, row in enumerate(parts):
                start = f.offset(out, f.load(f.offset(offsets, i, "i64"), "i64"))
                for j, (value, mask) in enumerate(zip(row, masks, strict=False)):
                    at = f.offset(start, j * lanes * size)
                    part = narrow_to_storage(f, value, self.out)
                    if masked:
                        masked_store(f, part, at, mask, size)
                    else:
                        f.store(part, at, size)

        there = self._plain().columns + self.folded * (lanes // 2)
        f.if_else(columns.is_("sge", there), lambda: write(False), lambda: write(True))
