"""The rule of `dot`, and the dispatch of products: selects a kernel and the number of tasks.

Large products are packed (`packed_kernel`). Small products and those with few rows or columns read
their operands in place (`unpacked_gemm`, `inner_product`). A long sum with a small result is split
into parts (split-K), whose number depends on the shape alone: results are the same for any number
of workers.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.kernel_api import MIN_TASK_NS, BufferView, LoweringContext, Phase
from shardir.backends.cpu.kernels.conv.depthwise import lower_depthwise
from shardir.backends.cpu.kernels.conv.implicit_gemm_lhs import (
    find_run_dim,
    is_lhs_readable_in_place,
)
from shardir.backends.cpu.kernels.conv.indirect_lhs import is_lhs_indirect
from shardir.backends.cpu.kernels.conv.nchw_layout import find_nchw_layout, lower_nchw
from shardir.backends.cpu.kernels.conv.padded_nhwc import (
    find_padded_nhwc_layout,
    lower_padded_nhwc,
)
from shardir.backends.cpu.kernels.conv.patch_access import PatchAccess
from shardir.backends.cpu.kernels.conv.patch_inner_product import lower_patch_inner_product
from shardir.backends.cpu.kernels.conv.row_selection import steps_of_selected_rows
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    arithmetic_of,
    can_widen,
)
from shardir.backends.cpu.kernels.gemm.grouped_steps import (
    can_pack_groups,
    group_steps,
    has_contiguous_pairs,
    has_grouped_steps,
    pack_groups,
)
from shardir.backends.cpu.kernels.gemm.matrix_product import (
    MatrixProduct,
    ProductLoop,
    matrix_product_of,
    merge_loops,
)
from shardir.backends.cpu.kernels.gemm.microkernel import type_of_stored_sums
from shardir.backends.cpu.kernels.gemm.operand_copies import lower_with_dense_result
from shardir.backends.cpu.kernels.gemm.packed_kernel import packed_gemm_kernel
from shardir.backends.cpu.kernels.gemm.product_record import encode_record
from shardir.backends.cpu.kernels.gemm.record_builder import (
    count_tasks,
    describe_blocked_product,
    describe_product,
    round_up,
)
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import (
    has_contiguous_columns,
    is_streamed,
    lower_skinny,
    operations_per_ns,
)
from shardir.backends.cpu.kernels.gemm.split_k import split_k_sum_kernel
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid, choose_task_grid
from shardir.backends.cpu.kernels.gemm.tuning import (
    MAX_PACKED_OPERAND_BYTES,
    MAX_PART_STEPS,
    MAX_SPLIT_K_PARTS,
    MAX_SPLIT_K_RESULT_ELEMENTS,
    MAX_UNCACHED_RESULT_ELEMENTS,
    MIN_COLUMN_RUN_BYTES,
    MIN_PACKED_SPLIT_K_EXTENT,
    MIN_PACKED_SPLIT_K_STEPS,
    MIN_SPLIT_K_STEPS,
    MIN_STEPS_PER_PART,
    MIN_STREAMED_LINES,
    MIN_STREAMED_MATRIX_BYTES,
    MIN_UNCACHED_SPLIT_K_STEPS,
    PACK_TASK_BYTES,
    PARTIAL_SUM_BYTES_PER_NS,
    STREAMED_PARTS,
    TILE_RATE_RATIO,
)
from shardir.ir.module import Op


def dot_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> Sequence[Phase] | None:
    """Lower a batched matrix product; return None if an operand cannot be widened to the result
    type."""
    lhs, rhs = operands
    (out,) = results
    if not all(can_widen(view.dtype, arithmetic_of(out.dtype)) for view in operands):
        return None
    work = matrix_product_of(op.attrs["dims"], lhs, rhs, out, context.machine)
    return lower_product(work, context, "dot")


def dot_order(op: Op, operands: Sequence[BufferView]) -> Sequence[int]:
    """Return the layout of the result: batch dimensions, then dimensions of the left operand, then
    of the right one, each in the order of their strides."""
    left, right = op.attrs["dims"].partition("->")[0].split(",")
    output = op.attrs["dims"].partition("->")[2]
    lhs, rhs = (
        dict(zip(term, view.strides, strict=True))
        for term, view in zip((left, right), operands, strict=True)
    )

    def place(dim: int) -> tuple[int, int]:
        letter = output[dim]
        if letter in lhs:
            return (0 if letter in rhs else 1), -abs(lhs[letter])
        return 2, -abs(rhs[letter])

    return sorted(range(len(output)), key=place)


def lower_product(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases of a product."""
    if not work.out.size:
        return []
    batch, _, _, inner = work.sizes
    count = _count_parts(work)
    if count > 1 and not any(work.inner[0].position_strides):
        return _lower_split_k(work, count, context, label)
    for each in (work, work.transpose()):
        nbytes = inner * each.sizes[2] * work.out.itemsize
        if (
            batch == 1
            and is_streamed(each)
            and nbytes >= MIN_STREAMED_MATRIX_BYTES
            and inner >= STREAMED_PARTS * MIN_STREAMED_LINES
        ):
            return _lower_split_k(each, STREAMED_PARTS, context, label)
    return _lower_unsplit(work, context, label)


def _count_parts(work: MatrixProduct) -> int:
    """Return the number of parts of a split-K sum, 1 if the sum is not split."""
    batch, rows, columns, inner = work.sizes
    elements = rows * columns
    if batch > 1 or elements > MAX_UNCACHED_RESULT_ELEMENTS:
        return 1
    if inner >= MIN_PACKED_SPLIT_K_STEPS and min(rows, columns) >= MIN_PACKED_SPLIT_K_EXTENT:
        return min(MAX_SPLIT_K_PARTS, inner // MIN_STEPS_PER_PART)
    if inner >= MIN_UNCACHED_SPLIT_K_STEPS or (
        inner >= MIN_SPLIT_K_STEPS and elements <= MAX_SPLIT_K_RESULT_ELEMENTS
    ):
        return min(MAX_SPLIT_K_PARTS, inner // (MIN_SPLIT_K_STEPS // 2))
    return 1


def _lower_unsplit(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    return (
        lower_depthwise(work, context, label)
        or lower_patch_inner_product(work, context, label)
        or _lower_grouped(work, context, label)
        or lower_skinny(work, context, label)
        or _lower_packed(work, context, label)
    )


def _lower_grouped(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    """Return the phases of a product of groups of K steps, none if it has no groups."""
    if _is_transposition_better(work):
        # The copies of the operands are not interchangeable.
        work = work.transpose()
    if has_grouped_steps(work):
        copies, grouped = group_steps(work, context)
        return [*copies, *_lower_packed(grouped, context, label)]
    if not can_pack_groups(work) or any(
        find_nchw_layout(each) or find_padded_nhwc_layout(each) or is_lhs_readable_in_place(each)
        for each in (work, work.transpose())
    ):
        return []
    copies, grouped = pack_groups(work, context)
    is_transposed = grouped.patches != work.patches
    if (grouped.arithmetic.has_tiles or is_transposed) and not has_contiguous_columns(
        grouped, grouped.out.itemsize
    ):
        return [*copies, *lower_with_dense_result(grouped, _lower_packed, context, label)]
    return [*copies, *_lower_packed(grouped, context, label)]


def _lower_split_k(
    work: MatrixProduct, count: int, context: LoweringContext, label: str
) -> list[Phase]:
    """Return the phases of equal parts of the outermost K loop, of the remainder, and of their
    sum."""
    arith = arithmetic_of(work.out.dtype)
    _, rows, columns, _ = work.sizes
    loop, *others = work.inner
    count = min(count, loop.extent)
    steps = loop.extent // count
    rest = loop.extent - count * steps
    each = rows * columns * arith.size
    slot = context.temporary((count + 1) * each)
    place = BufferView(slot, 0, (rows, columns), (columns * arith.size, arith.size), arith.dtype)
    dense = _dense_loops(work, arith)
    part = loop._replace(extent=count, lhs=loop.lhs * steps, rhs=loop.rhs * steps, out=each)
    short = work._replace(out=place, batch=(part,), rows=dense[0], columns=dense[1],
        inner=merge_loops([loop._replace(extent=steps), *others]),
    )  # fmt: skip
    phases = _lower_unsplit(short, context, f"{label}, split-K")
    if rest:
        done = count * steps
        last = short._replace(
            lhs=work.lhs._replace(offset=work.lhs.offset + done * loop.lhs),
            rhs=work.rhs._replace(offset=work.rhs.offset + done * loop.rhs),
            out=place._replace(offset=count * each),
            batch=(),
            inner=merge_loops([loop._replace(extent=rest), *others]),
        )
        phases += _lower_unsplit(last, context, f"{label}, split-K remainder")
    lines = merge_loops(loop._replace(rhs=0, position_strides=()) for loop in work.columns)
    plain = work._replace(lhs=place, columns=lines, inner=(), patches=None)
    cost = each * (count + 1) / PARTIAL_SUM_BYTES_PER_NS
    block = -(-rows // max(1, min(int(cost / MIN_TASK_NS), context.workers)))
    fields, lists = describe_product(plain, TaskGrid(block, columns, False, cost))
    fields["inner"] = count + bool(rest)
    added = Phase(
        split_k_sum_kernel(work.out.dtype), encode_record(fields, lists), count_tasks(fields), cost,
        f"{label}, split-K sum",
    )  # fmt: skip
    return [*phases, added]


def _dense_loops(
    work: MatrixProduct, arith: Arithmetic
) -> tuple[tuple[ProductLoop, ...], tuple[ProductLoop, ...]]:
    """Return the rows and columns with the strides of a dense result, rows outermost."""
    step, dense_loops = arith.size, []
    for loops in (work.columns, work.rows):
        new: list[ProductLoop] = []
        for loop in reversed(loops):
            new.insert(0, loop._replace(out=step))
            step *= loop.extent
        dense_loops.append(tuple(new))
    return dense_loops[1], dense_loops[0]


def _lower_packed(work: MatrixProduct, context: LoweringContext, label: str) -> list[Phase]:
    arith, item = work.arithmetic, work.out.itemsize
    if not work.grouped and _is_transposition_better(work):
        work = work.transpose()
    if not work.grouped and (
        phases := lower_nchw(work, context, label) or lower_padded_nhwc(work, context, label)
    ):
        return phases
    while (
        not _are_columns_contiguous(work.columns, item)
        and _contiguous_column_bytes(work.columns, item) >= MIN_COLUMN_RUN_BYTES
        # Batch loops are not checked against the bounds of the image.
        and not any(work.columns[0].position_strides)
    ):
        work = work._replace(batch=(work.columns[0], *work.batch), columns=work.columns[1:])
    batch, rows, columns, inner = work.sizes
    # Usually one task computes one product of a batch.
    sizes = BlockSizes.of(
        arith, columns, work.machine, rows if batch > 1 and inner > MAX_PART_STEPS else 1, inner
    )
    direct = _are_columns_contiguous(work.columns, item)
    stored = type_of_stored_sums(work.out.dtype, work.machine, direct and inner <= sizes.steps)
    staged = not direct or (arith.dtype != work.out.dtype and not stored)
    part_steps = 0 if stored else steps_of_selected_rows(work, sizes)
    checked = _patch_access_of(work, sizes, part_steps)
    shared = prod(loop.extent for loop in work.batch if loop.rhs == 0)
    copied = batch // shared * columns * inner * arith.operand_bytes
    grid = choose_task_grid(
        batch,
        rows,
        columns,
        inner,
        sizes,
        arith.operand_bytes,
        staged,
        shared > 1,
        context.workers,
        operations_per_ns(arith.size, arith.planes, work.machine)
        * (TILE_RATE_RATIO if work.arithmetic.has_tiles else 1),
        checked.side != "rhs"
        and not _is_rhs_packed(work, sizes)
        and copied <= MAX_PACKED_OPERAND_BYTES,
        work.rows[-1].extent if checked.is_indirect else 1,
    )
    return _packed_phases(work, grid, sizes, checked, staged, stored, part_steps, context, label)


def _is_rhs_packed(work: MatrixProduct, sizes: BlockSizes) -> bool:
    """Return whether the right operand is a packed panel as it is: if its columns fill a tile, and
    rows of them are contiguous in the order of the K steps.

    On a Zen 4, products of 27 rows and 32 columns over 16,384 steps take 0.88 of the time with
    packing.
    """
    arith, step = work.arithmetic, work.rhs.itemsize
    if work.rhs.dtype != arith.dtype or arith.planes > 1 or work.grouped:
        return False
    if work.sizes[2] != sizes.tile.columns or (work.patches and work.patches.side == "rhs"):
        return False
    for loop in (*reversed(work.columns), *reversed(work.inner)):
        if loop.rhs != step:
            return False
        step *= loop.extent
    return True


def _is_transposition_better(work: MatrixProduct) -> bool:
    """Return whether to transpose the product, so that patches are read in place or results are
    stored without staging."""
    item, transposed = work.out.itemsize, work.transpose()
    if find_nchw_layout(work):
        return False
    if find_nchw_layout(transposed) and not is_lhs_readable_in_place(work):
        return True
    return not has_contiguous_columns(work, item) and has_contiguous_columns(transposed, item)


def _are_columns_contiguous(columns: Sequence[ProductLoop], item: int) -> bool:
    """Return whether the columns of the result are contiguous."""
    return _contiguous_column_bytes(columns, item) == item * prod(loop.extent for loop in columns)


def _contiguous_column_bytes(columns: Sequence[ProductLoop], item: int) -> int:
    """Return the bytes of a contiguous run of the innermost result columns."""
    step = item
    for loop in reversed(columns):
        if loop.out != step:
            break
        step *= loop.extent
    return step


def _has_several_runs(work: MatrixProduct) -> bool:
    """Return whether the lines of patches form several runs, which packing of patches copies as
    vectors: those of a plain operand are contiguous, or it is packed element by element.

    On a Zen 4, the gradient of a filter of 3x3x3 elements without padding takes 0.64 of the time.
    """
    if work.patches and work.patches.side == "rhs":
        return len(work.columns) > 1
    return len(work.rows) > 1 and work.rows[-1].lhs == work.lhs.itemsize


def _patch_access_of(work: MatrixProduct, sizes: BlockSizes, part_steps: int) -> PatchAccess:
    """Return how patches are accessed; patches that all exist are packed as a plain operand unless
    their lines form several runs. Rows are selected for parts of `part_steps` steps if that is not
    0."""
    patches = work.patches
    if not patches:
        return PatchAccess()
    is_in_place = is_lhs_readable_in_place(work) and not work.arithmetic.has_tiles
    if not (is_in_place or patches.starts or _has_several_runs(work)):
        return PatchAccess()
    is_packed = part_steps > 0
    is_in_place = is_in_place and not is_packed
    return PatchAccess(
        patches.side,
        len(patches.starts),
        is_in_place,
        find_run_dim(work) if is_in_place else -1,
        has_pairs=has_contiguous_pairs(work),
        selects_rows=is_packed,
        is_indirect=is_lhs_indirect(work, sizes.tile),
    )


def _packed_phases(
    work: MatrixProduct,
    grid: TaskGrid,
    sizes: BlockSizes,
    checked: PatchAccess,
    staged: bool,
    stored: str,
    part_steps: int,
    context: LoweringContext,
    label: str,
) -> list[Phase]:
    arith = work.arithmetic
    kernel = packed_gemm_kernel(
        work.lhs.dtype,
        work.rhs.dtype,
        work.out.dtype,
        sizes,
        checked,
        work.grouped,
        stored,
        work.packs_groups,
    )
    _, _, columns, inner = work.sizes
    width = sizes.tile.columns
    fields, lists = describe_blocked_product(work, grid, sizes, staged, checked, part_steps)
    if _is_rhs_packed(work, sizes):
        fields |= {"packed_slot": work.rhs.slot, "packed_offset": work.rhs.offset}
        lists["batch"] = [(*loop[:4], loop.rhs) for loop in reversed(work.batch)]
    if not grid.packed:
        return [Phase(kernel, encode_record(fields, lists), count_tasks(fields), grid.cost, label)]
    steps = round_up(inner, arith.block_steps)
    entries, size = [], fields["panel_columns"] * steps * arith.operand_bytes
    for loop in reversed(work.batch):
        entries.append((*loop[:4], size if loop.rhs else 0))
        size *= loop.extent if loop.rhs else 1
    fields["packed_slot"] = context.temporary(size)
    lists["batch"] = entries
    block = max(
        width,
        min(sizes.columns, PACK_TASK_BYTES // (inner * arith.operand_bytes or 1)) // width * width,
    )
    kept = [entry for entry in entries if entry[2]]
    before = {
        **fields, "packing": 1, "products": prod(entry[0] for entry in kept), "block_products": 1,
        "block_columns": block, "column_blocks": -(-columns // block), "row_blocks": 1,
        "rows": 0, "packed_columns": block, "staged": 0,
    }  # fmt: skip
    packing = encode_record(before, {**lists, "batch": kept})
    cost = 0.25 * size / arith.operand_bytes
    return [
        Phase(kernel, packing, count_tasks(before), cost, f"{label} packing"),
        Phase(kernel, encode_record(fields, lists), count_tasks(fields), grid.cost, label),
    ]
