"""Depthwise contraction kernel: one sum per lane, as for a depthwise convolution.

`out[line, lane] = sum over taps of lhs[line, tap, lane] * rhs[line, tap, lane]`. Lanes are
contiguous in the result. In the left operand they are contiguous, every second element, or several
lanes share an element; in the right operand they are contiguous or share one element. Some lines,
which share the loaded right operand, are computed together. Taps of patches may be outside the
image, for a whole line or, if lanes are positions of a row, for each lane.
"""

from collections.abc import Sequence
from functools import cache

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER, Kernel
from shardir.backends.cpu.kernels.conv.depthwise_tile import (
    MAX_DEPTHWISE_CHECKED_DIMS,
    TAP_ENTRY_BYTES,
    DepthwiseTile,
    LaneLayout,
    TapRun,
    TileShape,
    TileStrides,
)

RUNS_PER_TABLE = 512
"""Runs of taps that are tabulated at a time."""
_NAMES = ("lhs_slot", "lhs_offset", "rhs_slot", "rhs_offset", "out_slot", "out_offset",
          "lanes", "block_lanes", "lane_blocks", "lines", "block_lines", "runs",
          "line_loops", "line_count", "tap_loops", "tap_count",
          "start_0", "size_0", "start_1", "size_1", "start_2", "size_2",
          "row_stride", "tap_stride", "row_step_0", "row_step_1", "row_step_2",
          "plane_stride", "plane_out", "plane_step_0", "plane_step_1", "plane_step_2")  # fmt: skip
_FIELD_INDEX = {name: i for i, name in enumerate(_NAMES)}
_LOOP_BYTES = 8 * (4 + MAX_DEPTHWISE_CHECKED_DIMS)
"""Bytes of a loop: its extent, three strides and the strides of positions."""


def encode_depthwise_record(
    fields: dict[str, int], lines: Sequence[Sequence[int]], taps: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Return the record. `lines` and `taps` are loops (extent, lhs, rhs, out, positions...),
    innermost first; at least one of each."""
    words = [fields.get(name, 0) for name in _NAMES]
    for name, loops in (("line", lines), ("tap", taps)):
        words[_FIELD_INDEX[f"{name}_loops"]] = len(words)
        words[_FIELD_INDEX[f"{name}_count"]] = len(loops)
        for loop in loops:
            words += loop
    return tuple(words)


@cache
def depthwise_kernel(
    operand: str, result: str, shape: TileShape, layout: LaneLayout, run: TapRun
) -> Kernel:
    """Return the kernel for tiles of this shape, with operands and a result of these element types.

    Lines of a tile share the elements of the right operand.
    """
    unrolled = f"_run{run.taps}_{run.line_pitch}_{run.tap_pitch}" * (run.taps > 1)
    types = operand if operand == result else f"{operand}_{result}"
    name = f"depthwise_{types}_{shape.name}_{layout.name}{unrolled}"
    return Kernel(name, lambda machine: _text(machine, name, (operand, result), shape, layout, run))


def _text(
    machine: HostDescription, name: str, dtypes: tuple[str, str], shape: TileShape,
    layout: LaneLayout, run: TapRun,
) -> str:  # fmt: skip
    module = LLVMModule(machine)
    f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
    bases, record, task, worker = f.params

    def get(field: str) -> LLVMValue:
        return f.load(f.offset(record, 8 * _FIELD_INDEX[field]), "i64")

    def address(side: str) -> LLVMValue:
        base = f.load(f.offset(bases, get(f"{side}_slot"), "ptr"), "ptr")
        return f.offset(base, get(f"{side}_offset"))

    table = f.offset(f.load(bases, "ptr"), worker * SCRATCH_BYTES_PER_WORKER)
    operands = [address(side) for side in ("lhs", "rhs", "out")]
    first_lane = task % get("lane_blocks") * get("block_lanes")
    last_lane = f.umin(first_lane + get("block_lanes"), get("lanes"))
    first = task // get("lane_blocks") * get("block_lines")
    last = f.umin(first + get("block_lines"), get("lines"))
    runs = get("runs")
    bounds = [(get(f"start_{d}"), get(f"size_{d}")) for d in range(layout.checks)]
    loops = f.offset(record, get("line_loops"), "i64")
    extent = f.load(loops, "i64")
    if shape.planes > 1:
        extent = extent * f.load(f.offset(loops, _LOOP_BYTES), "i64")
    strides = TileStrides(
        get("row_stride"), get("plane_stride"), get("tap_stride"),
        f.load(f.offset(loops, 8 * 3), "i64"), get("plane_out"),
        tuple(get(f"row_step_{d}") for d in range(layout.checks)),
        tuple(get(f"plane_step_{d}") for d in range(layout.checks)),
    )  # fmt: skip
    sums = DepthwiseTile(f, *dtypes, shape, layout, run, bounds, strides)
    begun, start = f.variable("i64", 0), f.variable("i64", 0)
    with f.while_(lambda: begun.get().is_("eq", 0) | start.get().is_("slt", runs)):
        here = f.umin(runs - start.get(), RUNS_PER_TABLE)
        tap_loops = f.offset(record, get("tap_loops"), "i64")
        _emit_table(f, table, tap_loops, get("tap_count"), start.get(), here)
        line = f.variable("i64", first)
        with f.while_(lambda: line.get().is_("slt", last)):
            now = line.get()
            count = f.umin(f.umin(extent - now % extent, last - now), shape.lines)
            place = [each.get() for each in _evaluate_loops(f, loops, get("line_count"), now)]
            starts = [
                f.offset(a, distance) for a, distance in zip(operands, place[:3], strict=True)
            ]
            with f.loop(first_lane, last_lane, sums.lanes) as lane:
                sums.emit(starts, place[3:], table, here, lane, last_lane, begun.get(), count)
            line.set(now + count)
        begun.set(1)
        start.set(start.get() + RUNS_PER_TABLE)
    f.ret()
    return module.text()


def _emit_table(
    f: LLVMFunction,
    table: LLVMValue,
    loops: LLVMValue,
    count: LLVMValue,
    first: LLVMValue,
    taps: LLVMValue,
) -> None:
    """Write the offsets and positions of taps from `first`, in runs of the innermost loop, since
    divisions are slow."""
    extent, done = f.load(loops, "i64"), f.variable("i64", 0)
    kinds = [0, 1, *range(3, 3 + MAX_DEPTHWISE_CHECKED_DIMS)]
    paces = [f.load(f.offset(loops, 8 * (1 + k)), "i64") for k in kinds]
    with f.while_(lambda: done.get().is_("slt", taps)):
        now = done.get()
        found = _evaluate_loops(f, loops, count, first + now)
        end = f.umin(now + (extent - (first + now) % extent), taps)
        with f.loop(now, end) as i:
            for k, (kind, pace) in enumerate(zip(kinds, paces, strict=True)):
                each = found[kind]
                f.store(each.get(), f.offset(f.offset(table, i * TAP_ENTRY_BYTES), 8 * k))
                each.set(each.get() + pace)
        done.set(end)


def _evaluate_loops(
    f: LLVMFunction, loops: LLVMValue, count: LLVMValue, index: LLVMValue
) -> list[StackVariable]:
    """Return the totals of the loops at an index: three offsets, and positions."""
    sums = [f.variable("i64", 0) for _ in range(3 + MAX_DEPTHWISE_CHECKED_DIMS)]
    rest = f.variable("i64", index)
    with f.loop(0, count) as level:
        entry = f.offset(loops, level * _LOOP_BYTES)
        extent, now = f.load(entry, "i64"), rest.get()
        step = now % extent
        rest.set(now // extent)
        for k, each in enumerate(sums):
            each.set(each.get() + step * f.load(f.offset(entry, 8 + 8 * k), "i64"))
    return sums
