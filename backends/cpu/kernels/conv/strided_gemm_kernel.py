"""Strided GEMM without packing: rows at a constant pitch, K steps in three loops.

A tile has `height` rows and `width` vectors of columns, or `times` groups of `height` rows at any
distance. All rows of a group are addressed from one base with constant offsets, so that
accumulators can use the registers. The data that the tiles of a task read at a time fits the L2
cache.
"""

from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import (
    OUTLINED_FUNCTION_ATTRIBUTES,
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.gemm.product_record import OutputBlock, RecordReader
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic

STEP_LOOPS = 3
"""Loops of K steps; missing loops have extent 1."""


COLUMN_PREFETCH_STEPS = 64
"""Prefetch distance in steps of columns that are not in cache."""


class TileShape(NamedTuple):
    """The shape of a tile.

    A tile has `times` x `height` rows and `width` vectors of columns, `last` vectors in the last
    tile; `cut`: the last of these vectors is partial. Rows are `pitch` bytes apart; `ahead`:
    columns are prefetched. `sliding`: column r skips the first r steps and, of as many last steps
    as there are columns less one, uses only those before the r-th.
    """

    times: int
    height: int
    width: int
    last: int
    is_last_partial: bool
    pitch: int
    has_prefetch: bool = False
    sliding: bool = False

    @property
    def name(self) -> str:
        sizes = f"{self.times}x{self.height}x{self.width}_{self.last}{'cut' * self.is_last_partial}"
        return f"{sizes}_{self.pitch}{'_ahead' * self.has_prefetch}{'_sliding' * self.sliding}"


@cache
def strided_gemm_kernel(kind: VectorArithmetic, shape: TileShape) -> Kernel:
    """Return the kernel for tiles of this shape."""
    name = f"strided_gemm_{kind.name}_{shape.name}"
    return Kernel(name, lambda: _text(name, kind, shape))


def _text(name: str, kind: VectorArithmetic, shape: TileShape) -> str:
    module = LLVMModule()
    for wide, cut in {(shape.width, False): 0, (shape.last, shape.is_last_partial): 0}:
        _emit_tile(module, kind, shape, wide, cut)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, _ = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    row_out = f.load(f.offset(r.loops("rows_out")[0], 8), "i64")
    left, right = (r.loops(f"inner_{side}")[0] for side in ("lhs", "rhs"))
    counts = [f.load(f.offset(left, 16 * level), "i64") for level in range(STEP_LOOPS)]
    paces = [
        [f.load(f.offset(side, 16 * level + 8), "i64") for level in range(STEP_LOOPS)]
        for side in (left, right)
    ]
    columns = shape.width * kind.lanes
    height = f.value(shape.height, "i64")
    # Some steps of the outer loops are applied to all rows and columns of the task.
    with (
        f.loop(0, counts[2], r["packed_rows"]) as outer,
        f.loop(0, counts[1], r["packed_columns"]) as middle,
    ):
        many = [
            counts[0],
            f.umin(counts[1] - middle, r["packed_columns"]),
            f.umin(counts[2] - outer, r["packed_rows"]),
        ]
        adding = (outer | middle).is_("ne", 0)
        with block.products(bases) as (lhs, rhs, out, _):
            distances = [outer * each[2] + middle * each[1] for each in paces]
            a, b = f.offset(lhs, distances[0]), f.offset(rhs, distances[1])
            with f.loop(0, block.columns, columns) as j:
                here = block.first_column + j
                rest = block.columns - j
                thin = rest.is_("sle", shape.last * kind.lanes)
                called = f.select(
                    thin, *(LLVMValue(f"@tile{wide}{'cut' * cut}", "ptr", f) for wide, cut in
                            ((shape.last, shape.is_last_partial), (shape.width, False)))
                )  # fmt: skip
                with f.loop(0, block.rows, shape.height) as i:
                    # The last tile overlaps the rows before it, which are not stored again.
                    first = block.first_row + i
                    top = f.umin(first, r["rows"] - height)
                    args = [
                        f.offset(a, top * shape.pitch), f.offset(b, here * kind.item),
                        f.offset(f.offset(out, top * row_out), here * kind.result_item),
                        row_out, rest, first - top, adding, left, right, *many,
                        r["panel_columns"], r["steps"],
                    ]  # fmt: skip
                    f.call(str(called), args)
    f.ret()
    return module.text()


def _emit_tile(
    module: LLVMModule, kind: VectorArithmetic, shape: TileShape, width: int, cut: bool
) -> None:
    """Emit `tile{width}(lhs, rhs, out, row_out, columns, skipped, adding, left, right, inner,
    middle, outer, apart, apart_out)`.

    `left` and `right` are the loops of K steps; the `times` groups of rows are `apart` bytes apart.
    """
    params = ["ptr noalias readonly", "ptr noalias readonly", "ptr noalias", "i64", "i64", "i64",
              "i1", "ptr noalias readonly", "ptr noalias readonly", "i64", "i64", "i64", "i64",
              "i64"]  # fmt: skip
    f = LLVMFunction(
        module,
        f"tile{width}{'cut' * cut}",
        params,
        attributes=OUTLINED_FUNCTION_ATTRIBUTES,
        internal=True,
    )
    lhs, rhs, out, row_out, columns, skipped, adding, left, right, *counts, apart, apart_out = (
        f.params
    )
    lanes, made = kind.lanes, kind.result_item
    masks = [
        kind.mask(f, columns - j * lanes) if cut and j == width - 1 else None for j in range(width)
    ]
    rows = [(t, i) for t in range(shape.times) for i in range(shape.height)]
    places = {(t, i): f.offset(f.offset(out, apart_out * t), row_out * i) for t, i in rows}
    sums = {row: [kind.new_accumulators(f) for _ in range(width)] for row in rows}
    with f.when(adding):
        for row, place in places.items():
            for j, mask in enumerate(masks):
                value = kind.read(f, f.offset(place, j * lanes * made), mask)
                sums[row][j][0].set(value)
    paces = [[f.load(f.offset(side, 16 * level + 8), "i64") for level in range(STEP_LOOPS)]
             for side in (left, right)]  # fmt: skip
    with f.loop(0, counts[2]) as outer, f.loop(0, counts[1]) as middle:
        starts = [
            f.variable("ptr", f.offset(base, outer * pace[2] + middle * pace[1]))
            for base, pace in zip((lhs, rhs), paces, strict=True)
        ]

        def step(exist: LLVMValue | None, starts: list[StackVariable] = starts) -> None:
            a, b = (start.get() for start in starts)
            vectors = [
                kind.read(f, f.offset(b, j * lanes * kind.item), mask)
                for j, mask in enumerate(masks)
            ]
            for j in range(width if shape.has_prefetch else 0):
                prefetch(
                    f, f.offset(b, paces[1][0] * COLUMN_PREFETCH_STEPS + j * lanes * kind.item)
                )
            groups = [f.offset(a, apart * t) for t in range(shape.times)]
            for t, i in rows:
                number = kind.broadcast_element(f, f.offset(groups[t], i * shape.pitch))
                for total, each in zip(sums[t, i], vectors, strict=True):
                    before = total[0].get()
                    kind.add(f, total, number, [each])
                    if exist:
                        total[0].set(f.select(exist, total[0].get(), before))
            for start, pace in zip(starts, paces, strict=True):
                start.set(f.offset(start.get(), pace[0]))

        beside = (lanes - 1) * shape.sliding
        with f.loop(0, beside) as k:
            step(kind.mask(f, k + 1))
        with f.loop(2 * beside, counts[0]):
            step(None)
        with f.loop(0, beside) as k:
            step(~kind.mask(f, k + 1))
    for t, i in rows:
        with f.when(skipped.is_("sle", i)):
            for j, (mask, total) in enumerate(zip(masks, sums[t, i], strict=True)):
                kind.write(f, total[0].get(), f.offset(places[t, i], j * lanes * made), mask)
    f.ret()
