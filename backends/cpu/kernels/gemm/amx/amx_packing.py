"""Packing for tile registers.

A panel of the left operand is a sequence of blocks of 16 K groups: each line has 64 contiguous
bytes in a block. Panels of the right operand are those of other micro-kernels. Both end with zeros
if the number of groups is not a multiple of 16.
"""

from functools import partial

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
    add_outlined_function,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.tile_instructions import TILE_GROUP_BYTES, TILE_ROW_BYTES
from shardir.backends.cpu.kernels.gemm.element_arithmetic import Arithmetic
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store
from shardir.backends.cpu.kernels.gemm.packing import SEGMENT_ENTRY_BYTES, zeros_constant
from shardir.backends.cpu.kernels.gemm.tuning import PACK_PREFETCH_STEPS

LINES_PER_ITERATION = 8
"""Lines that one iteration of the packing loop copies."""
FILL_FUNCTION = "fill_steps"


def emit_pack_lines(
    module: LLVMModule,
    name: str,
    lines: int,
    longest: int,
    item: int,
    checks: int,
    table_bytes: int,
) -> None:
    """Emit `name(packed, base, offsets, count, segments, parts, steps, positions, bounds)`.

    The function packs `count` lines that begin `offsets[i]` bytes after `base` in panels of `lines`
    lines and `steps` K steps, whose values or groups have `item` bytes. Those of each of the
    `parts` segments are contiguous; `longest` is the maximum of `steps`. For patches, positions of
    lines are in `checks` tables that are `table_bytes` bytes apart; lines of a segment outside of
    the `bounds` (start, size) of the checked dimensions are zeros.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "ptr noalias readonly",
              "ptr noalias readonly"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    packed, base, offsets, count, segments, parts, steps, positions, bounds = f.params
    many = vector_type("i64", lines)
    numbered = LLVMValue(f"<{', '.join(f'i64 {lane}' for lane in range(lines))}>", many, f)
    zeros = f.splat(zeros_constant(f, name, longest * item).to("i64", "ptrtoint"), lines)
    starts = f.variable(many)
    place = f.variable("ptr", packed)
    with f.loop(0, count, lines) as first:
        here = f.umin(count - first, lines)
        exist = numbered.is_("ult", f.splat(here, lines))
        begin = f.load(f.offset(offsets, first, "i64"), many, 8)
        where = [
            f.load(f.offset(f.offset(positions, d * table_bytes), first, "i64"), many, 8)
            for d in range(checks)
        ]
        done = f.variable("i64", 0)
        with f.loop(0, parts) as number:
            entry = f.offset(segments, number * (SEGMENT_ENTRY_BYTES + 8 * checks))
            origin = f.offset(base, f.load(entry, "i64")).to("i64", "ptrtoint")
            inside = exist
            for d, position in enumerate(where):
                start = f.load(f.offset(bounds, 16 * d), "i64")
                extent = f.load(f.offset(bounds, 16 * d + 8), "i64")
                step = f.load(f.offset(entry, SEGMENT_ENTRY_BYTES + 8 * d), "i64")
                at = position + f.splat(start + step, lines)
                inside = inside & at.is_("ult", f.splat(extent, lines))
            starts.set(f.select(inside, begin + f.splat(origin, lines), zeros))
            length = f.load(f.offset(entry, 8), "i64")
            _copy_segment(f, place.get(), done.get(), starts.address, length, here, lines, item)
            done.set(done.get() + length)
        place.set(f.offset(place.get(), steps * (lines * item)))
    f.ret()


def _copy_segment(
    f: LLVMFunction,
    panel: LLVMValue,
    first: LLVMValue,
    starts: LLVMValue,
    length: LLVMValue,
    here: LLVMValue,
    lines: int,
    item: int,
) -> None:
    """Copy `length` steps of each line that begins at `starts` to the steps from `first` on of a
    panel. Steps after the last one of a block are overwritten later, or zeros."""
    many = TILE_ROW_BYTES // item
    type = vector_type(f"i{8 * item}", many)
    step = f.variable("i64", 0)
    with f.while_(lambda: step.get().is_("slt", length)):
        now = step.get()
        block, skipped = (first + now) // many, (first + now) % many
        count = f.umin(many - skipped, length - now)
        to = f.offset(panel, block * (lines * TILE_ROW_BYTES) + skipped * item)
        mask = lane_mask(f, count, many)

        def copy(
            load: bool, store: bool, now: LLVMValue = now, to: LLVMValue = to,
            mask: LLVMValue = mask,
        ) -> None:  # fmt: skip
            """Copy the steps of all lines; `load` and `store` state whether whole vectors are."""
            with f.loop(0, here, LINES_PER_ITERATION) as start:
                for i in range(LINES_PER_ITERATION):
                    line = f.load(f.offset(starts, start + i, "i64"), "ptr")
                    source = f.offset(line, now * item)
                    target = f.offset(to, (start + i) * TILE_ROW_BYTES)
                    if load:
                        value = f.load(source, type, item)
                    else:
                        value = masked_load(f, source, mask, type, item)
                    if store:
                        f.store(value, target, item)
                    else:
                        masked_store(f, value, target, mask, item)

        is_first = skipped.is_("eq", 0)

        def copy_part(is_first: LLVMValue = is_first) -> None:
            f.if_else(is_first, lambda: copy(False, True), lambda: copy(False, False))

        f.if_else(
            count.is_("eq", many),
            lambda: copy(True, True),
            copy_part,
        )
        step.set(now + count)


def emit_pack_rows(module: LLVMModule, name: str, columns: int, values: int) -> None:
    """Emit `name(packed, base, offsets, count, segments, parts, steps, stride)`.

    The function packs `count` contiguous columns, which begin `offsets[0]` bytes after `base`, in
    panels of `columns` columns and `steps` K groups. It makes the groups from `values` rows each;
    groups of a segment are `stride` bytes apart.
    """
    params = ["ptr noalias", "ptr readonly", "ptr noalias readonly", "i64",
              "ptr noalias readonly", "i64", "i64", "i64"]  # fmt: skip
    f = add_outlined_function(module, name, params)
    packed, base, offsets, count, segments, parts, steps, stride = f.params
    item = TILE_GROUP_BYTES // values
    distance = stride / values  # The stride may be negative.
    type = vector_type(f"i{8 * item}", columns)
    panel_bytes = steps * (columns * TILE_GROUP_BYTES)
    start = f.offset(base, f.load(offsets, "i64"))
    place = f.variable("ptr", packed)

    def copy(source: LLVMValue, to: LLVMValue, mask: LLVMValue | None) -> None:
        """Make the groups of one step of a panel."""
        rows = []
        for _ in range(values):
            if mask is None:
                rows.append(f.load(source, type, item))
            else:
                rows.append(masked_load(f, source, mask, type, item))
            prefetch(f, f.offset(source, stride * PACK_PREFETCH_STEPS))
            source = f.offset(source, distance)
        while len(rows) > 1:
            half, count = len(rows) // 2, lane_count(rows[0].type)
            order = [lane for i in range(count) for lane in (i, count + i)]
            rows = [f.shuffle(rows[i], rows[i + half], order) for i in range(half)]
        f.store(rows[0], to, TILE_GROUP_BYTES)

    with f.loop(0, parts) as number:
        entry = f.offset(segments, number * SEGMENT_ENTRY_BYTES)
        origin = f.offset(start, f.load(entry, "i64"))
        length = f.load(f.offset(entry, 8), "i64")
        panel = f.variable("ptr", place.get())
        with f.loop(0, count, columns) as first:
            here = f.offset(origin, first * item)
            mask = lane_mask(f, count - first, columns)

            def copy_segment(
                mask: LLVMValue | None, here: LLVMValue = here, panel: StackVariable = panel,
                length: LLVMValue = length,
            ) -> None:  # fmt: skip
                with f.loop(0, length) as step:
                    to = f.offset(panel.get(), step * (columns * TILE_GROUP_BYTES))
                    copy(f.offset(here, step * stride), to, mask)

            whole = (count - first).is_("sge", columns)
            f.if_else(whole, partial(copy_segment, None), partial(copy_segment, mask))
            panel.set(f.offset(panel.get(), panel_bytes))
        place.set(f.offset(place.get(), length * (columns * TILE_GROUP_BYTES)))
    f.ret()


def emit_fill_steps(module: LLVMModule, lines: int, arith: Arithmetic) -> None:
    """Emit `fill_steps(packed, count, steps, whole)`: fill the steps from `steps` to `whole` of
    panels of `count` lines of the right operand with zeros."""
    f = add_outlined_function(module, FILL_FUNCTION, ["ptr", "i64", "i64", "i64"])
    packed, count, steps, whole = f.params
    row, type = lines * arith.size, vector_type(arith.type, lines)
    place = f.variable("ptr", packed)
    with f.loop(0, count, lines):
        with f.loop(steps, whole) as step:
            f.store(f.value(0, type), f.offset(place.get(), step * row), arith.size)
        place.set(f.offset(place.get(), whole * row))
    f.ret()
