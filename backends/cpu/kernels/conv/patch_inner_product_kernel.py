"""Inner-product kernel for patches and few columns: reads runs of K steps in place.

Vectors of steps are multiplied and accumulated lane by lane; the lanes are added at the end. The
start addresses of the runs of some rows are tabulated as in `implicit_gemm_lhs`; runs outside the
image point to zeros.
"""

from functools import cache

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER, Kernel
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import emit_starts, starts_per_panel
from shardir.backends.cpu.kernels.conv.tuning import MAX_RUN_STEPS, MAX_RUNS, MAX_UNROLLED_VECTORS
from shardir.backends.cpu.kernels.gemm.inner_product import store_sums
from shardir.backends.cpu.kernels.gemm.offset_tables import (
    OFFSETS_FUNCTION,
    emit_offsets,
    emit_segments,
)
from shardir.backends.cpu.kernels.gemm.product_record import OutputBlock, RecordReader
from shardir.backends.cpu.kernels.gemm.tuning import MAX_BLOCK_LINES
from shardir.backends.cpu.kernels.gemm.vector_arithmetic import VectorArithmetic


@cache
def patch_inner_product_kernel(
    kind: VectorArithmetic, height: int, width: int, run: int, checks: int, along: int
) -> Kernel:
    """Return the kernel for `height` rows at a time, `width` columns, and runs of `run` steps.

    `checks` dimensions are checked; runs are along the dimension `along` (-1: none).
    """
    name = (
        f"patch_inner_product_{kind.name}_{height}x{width}_{run}_{checks}{'_along' * (along + 1)}"
    )
    return Kernel(
        name, lambda machine: _text(machine, name, kind, (height, width), run, checks, along)
    )


def _text(
    machine: HostDescription,
    name: str,
    kind: VectorArithmetic,
    size: tuple[int, int],
    run: int,
    checks: int,
    along: int,
) -> str:
    module, height = LLVMModule(machine), size[0]
    emit_offsets(module)
    for dims in sorted({0, checks}):
        emit_segments(module, dims)
    emit_starts(
        module, "starts", height, MAX_RUN_STEPS, kind.arith, checks, 8 * MAX_BLOCK_LINES, along
    )
    _emit_dots(module, kind, size, run)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, worker = f.params
    r = RecordReader(f, record)
    block = OutputBlock(f, r, task)
    at, places = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER), {}
    for table, nbytes in (
        ("rows_lhs", 8 * MAX_BLOCK_LINES), ("rows_out", 8 * MAX_BLOCK_LINES),
        *((f"positions_{d}", 8 * MAX_BLOCK_LINES) for d in range(checks)),
        ("inner_lhs", (16 + 8 * checks) * MAX_RUNS), ("inner_rhs", 16 * MAX_RUNS), ("starts", 0),
    ):  # fmt: skip
        places[table] = at
        at = f.offset(at, nbytes)
    zero = f.value(0, "i64")
    parts = zero
    for side, dims in (("inner_rhs", 0), ("inner_lhs", checks)):
        args = [record, r.list_header(side), places[side], zero, r["inner"]]
        parts = f.call(f"segments_{dims}", args, "i64")
    column_in, column_out = (
        f.load(f.offset(r.loops(side)[0], 8), "i64") for side in ("columns_rhs", "columns_out")
    )
    with f.loop(0, block.rows, MAX_BLOCK_LINES) as first:
        count = f.umin(block.rows - first, MAX_BLOCK_LINES)
        for table in ("rows_lhs", "rows_out", *(f"positions_{d}" for d in range(checks))):
            args = [record, r.list_header(table), places[table], block.first_row + first, count]
            f.call(OFFSETS_FUNCTION, args)
        positions = places["positions_0"] if checks else places["rows_lhs"]
        with block.products(bases) as (lhs, rhs, out, _), f.loop(0, count, height) as row:
            here = f.umin(count - row, height)
            lines = f.offset(places["rows_lhs"], row, "i64")
            args = [places["starts"], lhs, lines, here, places["inner_lhs"], parts]
            args += [f.offset(positions, row, "i64"), r.loops("bounds")[0]]
            f.call("starts", args)
            to = f.offset(places["rows_out"], row, "i64")
            args = [parts, places["starts"], places["inner_rhs"], rhs, column_in, out, to,
                    column_out, here]  # fmt: skip
            f.call("dots", args)
    f.ret()
    return module.text()


def _emit_dots(module: LLVMModule, kind: VectorArithmetic, size: tuple[int, int], run: int) -> None:
    """Emit `dots(parts, starts, segments, rhs, column, out, rows, column_out, count)`."""
    params = ["i64", "ptr noalias readonly", "ptr noalias readonly", "ptr noalias readonly", "i64",
              "ptr noalias", "ptr noalias readonly", "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, "dots", params)
    parts, starts, segments, rhs, column, out, rows, column_out, count = f.params
    height, width = size
    lanes, item = kind.lanes, kind.item
    sums = [[kind.new_accumulators(f) for _ in range(width)] for _ in range(height)]
    table, entry = f.variable("ptr", starts), f.variable("ptr", segments)
    columns = [f.offset(rhs, column * j) for j in range(width)]

    def step(
        lines: list[LLVMValue], others: list[LLVMValue], distance: LLVMValue, mask: LLVMValue | None
    ) -> None:
        # Load the shorter operand first: accumulators leave few registers.
        left, right = ([f.offset(each, distance) for each in side] for side in (lines, others))
        few, many = (left, right) if height < width else (right, left)
        held = [kind.read(f, each, mask) for each in few]
        for n, each in enumerate(many):
            number = kind.read(f, each, mask)
            for m, other in enumerate(held):
                total = sums[m][n] if height < width else sums[n][m]
                kind.add(f, total, [number], [other])

    whole = run - run % lanes
    rest = kind.mask(f, f.value(run - whole, "i64")) if whole < run else None
    with f.loop(0, parts):
        lines = [f.load(f.offset(table.get(), 8 * i), "ptr") for i in range(height)]
        distance = f.load(entry.get(), "i64")
        others = [f.offset(each, distance) for each in columns]
        if whole <= MAX_UNROLLED_VECTORS * lanes:
            for k in range(0, whole, lanes):
                step(lines, others, f.value(k * item, "i64"), None)
        else:
            with f.loop(0, whole * item, lanes * item) as further:
                step(lines, others, further, None)
        if rest:
            step(lines, others, f.value(whole * item, "i64"), rest)
        table.set(f.offset(table.get(), 8 * starts_per_panel(height)))
        entry.set(f.offset(entry.get(), 16))
    unused = f.variable(f"[{item} x i8]").address
    totals, addresses = [], []
    for i, row in enumerate(sums):
        to = f.offset(out, f.load(f.offset(rows, 8 * i), "i64"))
        for j, total in enumerate(row):
            totals.append([total[0].get()])
            there = f.offset(to, column_out * j)
            addresses.append(f.select(count.is_("sgt", i), there, unused))
    store_sums(f, kind, totals, addresses)
    f.ret()
