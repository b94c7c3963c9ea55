"""`select_and_scatter`, the gradient of max pooling.

First every window stores the position of the element that it selects. Then every element adds the
sources of the windows that selected it, in a fixed order; each element is written by one task.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

from shardir.backends.cpu.codegen.llvm_text import FLOAT_TYPES, LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import (
    BufferView,
    LoweringContext,
    Phase,
    Rule,
    row_major_strides,
)
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock, KernelForm, grid_kernel
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.pooling.reduce_window import (
    SlidingWindow,
    for_each_column_group,
    sliding_windows,
    window_grid,
    windowed_dims,
)
from shardir.backends.cpu.schedule.buffer_views import dimension_order
from shardir.ir.dtypes import UNSIGNED
from shardir.ir.module import Op
from shardir.ir.types import TensorType

MAX_WINDOW_DIMS = 3
"""Maximum number of dimensions along which windows may move."""
WORDS_PER_DIM = 6
"""Words that describe the windows along a dimension in the record of the selecting phase."""


def select_and_scatter_rule(
    op: Op, operands: Sequence[BufferView], results: Sequence[BufferView], context: LoweringContext
) -> list[Phase] | None:
    """Lower to a phase that selects and a phase that adds."""
    (x, source), (y,) = operands, results
    if y.size == 0:
        return []
    dims, sliding = windowed_dims(op, x.shape, source.shape), sliding_windows(op, x.shape)
    dilated = any(sliding[d].base_dilation != 1 for d in dims)
    if len(dims) > MAX_WINDOW_DIMS or dilated or source.size == 0:
        return None
    before: list[Phase] = []
    after: list[Phase] = []
    target, order = y, _better_order(x, dims, context.machine)
    if order:
        copies = [_temporary(TensorType(v.shape, v.dtype), order, context) for v in (x, source, y)]
        before = [*copy_phases(x, copies[0], context), *copy_phases(source, copies[1], context)]
        after = copy_phases(copies[2], y, context)
        x, source, target = copies
    choice = _temporary(TensorType(source.shape, "i32"), dimension_order(x), context)
    return [
        *before,
        _selection_phase(str(op.attrs["op"]), x, choice, dims, sliding, context),
        _addition_phase(source, choice, target, dims, sliding, context),
        *after,
    ]


def _better_order(x: BufferView, dims: Sequence[int], machine: HostDescription) -> list[int] | None:
    """Return a dimension order with an innermost dimension along which windows do not move, or None
    if `x` has one or the copies do not pay off."""
    others = [d for d in range(len(x.shape)) if d not in dims]
    inner = max(others, key=lambda d: x.shape[d], default=None)
    if inner is None or x.shape[inner] < machine.lanes(4):
        return None
    if any(x.strides[d] == x.itemsize and x.shape[d] >= machine.lanes(4) for d in others):
        return None
    return [*(d for d in range(len(x.shape)) if d != inner), inner]


def _temporary(type: TensorType, order: Sequence[int], context: LoweringContext) -> BufferView:
    slot = context.temporary(type.nbytes)
    return BufferView(slot, 0, type.shape, row_major_strides(type, order), type.dtype)


def _counters(view: BufferView, dims: Sequence[int]) -> list[BufferView]:
    """Return a counter along each dimension where windows move, then counters of stride zero."""
    found = [
        view._replace(offset=0, strides=tuple(int(d == dim) for d in range(len(view.shape))))
        for dim in dims
    ]
    still = view._replace(offset=0, strides=(0,) * len(view.shape))
    return [*found, *(still for _ in range(MAX_WINDOW_DIMS - len(dims)))]


def _with_zero_strides(view: BufferView, dims: Sequence[int], shape: Sequence[int]) -> BufferView:
    """Return a view with stride zero along `dims`, where it gets other extents."""
    strides = tuple(0 if d in dims else s for d, s in enumerate(view.strides))
    return view._replace(shape=tuple(shape), strides=strides)


def _selection_phase(
    op: str,
    x: BufferView,
    choice: BufferView,
    dims: Sequence[int],
    sliding: Sequence[SlidingWindow],
    context: LoweringContext,
) -> Phase:
    views = [_with_zero_strides(x, dims, choice.shape), choice]
    found = loop_nest_of([*views, *_counters(choice, dims)], counters=MAX_WINDOW_DIMS)
    grid, contiguous = window_grid(views, found, range(2), range(2, 2 + MAX_WINDOW_DIMS))
    variant = "rows" if contiguous else "items"
    extra: list[int] = []
    for d in dims:
        one = sliding[d]
        extra += [one.size, one.stride, one.low, one.dilation, one.extent, x.strides[d]]
    extra += [1, 1, 0, 1, 1, 0] * (MAX_WINDOW_DIMS - len(dims))
    kernel = grid_kernel(
        f"choose_{op}_{variant}_{x.dtype}",
        KernelForm(2, MAX_WINDOW_DIMS, len(extra)),
        partial(_emit_selection, op, x.dtype, contiguous),
    )
    taps = prod(sliding[d].size for d in dims)
    cost = choice.size * (1 + taps) * (0.3 if contiguous else 1.5)
    return grid.phase(kernel, cost, context.workers, "select in windows", extra)


def _emit_selection(
    op: str, dtype: str, contiguous: bool, f: LLVMFunction, block: GridBlock
) -> None:
    kind = element_values.kind_of(dtype)
    words = [
        [block.extra(WORDS_PER_DIM * k + i) for i in range(WORDS_PER_DIM)]
        for k in range(MAX_WINDOW_DIMS)
    ]
    with f.loop(0, block.rows) as i:
        source, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses[:2], block.row_strides[:2], strict=True)
        )
        places = [
            address + i * stride
            for address, stride in zip(block.addresses[2:], block.row_strides[2:], strict=True)
        ]

        def columns(at: LLVMValue, vectors: int, lanes: int) -> None:
            best = [f.variable(vector_type(kind.type, lanes), 0) for _ in range(vectors)]
            chosen = [f.variable(vector_type("i32", lanes), -1) for _ in range(vectors)]
            starts = [
                (place + at * stride) * word[1] - word[2]
                for place, stride, word in zip(places, block.column_strides[2:], words, strict=True)
            ]
            number = f.variable("i32", 0)

            def visit(depth: int, inside: LLVMValue, start: LLVMValue) -> None:
                if depth < MAX_WINDOW_DIMS:
                    size, _, _, dilation, extent, step = words[depth]
                    with f.loop(0, size) as inner:
                        index = starts[depth] + inner * dilation
                        within = inside & index.is_("ult", extent)
                        visit(depth + 1, within, f.offset(start, index * step))
                    return
                with f.when(inside):
                    for k in range(vectors):
                        place = f.offset(start, (at + k * lanes) * block.column_strides[0])
                        here = element_values.load(f, place, kind, lanes)
                        better = _is_better(op, dtype, here, best[k].get())
                        better = better | chosen[k].get().is_("slt", 0)
                        best[k].set(f.select(better, here, best[k].get()))
                        now = f.splat(number.get(), lanes)
                        chosen[k].set(f.select(better, now, chosen[k].get()))
                number.set(number.get() + 1)

            visit(0, f.value(1, "i1"), source)
            for k in range(vectors):
                place = f.offset(target, (at + k * lanes) * block.column_strides[1])
                f.store(chosen[k].get(), place, 1)

        for_each_column_group(
            f,
            block,
            f.machine.lanes(max(4, element_values.ELEMENT_BYTES[dtype])),
            contiguous,
            columns,
        )


def _is_better(op: str, dtype: str, here: LLVMValue, best: LLVMValue) -> LLVMValue:
    if element_values.kind_of(dtype).type in FLOAT_TYPES:
        is_first_nan = here.is_("uno", here) & best.is_("ord", best)
        return here.is_("ogt" if op == "max" else "olt", best) | is_first_nan
    sign = "u" if dtype in ("bool", *UNSIGNED) else "s"
    return here.is_(sign + ("gt" if op == "max" else "lt"), best)


def _addition_phase(
    source: BufferView,
    choice: BufferView,
    y: BufferView,
    dims: Sequence[int],
    sliding: Sequence[SlidingWindow],
    context: LoweringContext,
) -> Phase:
    views = [
        _with_zero_strides(source, dims, y.shape),
        _with_zero_strides(choice, dims, y.shape),
        y,
    ]
    found = loop_nest_of([*views, *_counters(y, dims)], counters=MAX_WINDOW_DIMS)
    grid, contiguous = window_grid(views, found, range(3), range(3, 3 + MAX_WINDOW_DIMS))
    variant = "rows" if contiguous else "items"
    extra: list[int] = []
    for d in dims:
        one = sliding[d]
        extra += [one.size, one.stride, one.low, one.dilation, source.shape[d]]
        extra += [source.strides[d], choice.strides[d]]
    extra += [1, 1, 0, 1, 1, 0, 0] * (MAX_WINDOW_DIMS - len(dims))
    kernel = grid_kernel(
        f"add_chosen_{variant}_{y.dtype}",
        KernelForm(3, MAX_WINDOW_DIMS, len(extra)),
        partial(_emit_addition, y.dtype, contiguous),
    )
    taps = prod(sliding[d].size for d in dims)
    cost = y.size * (1 + taps) * (0.3 if contiguous else 2.0)
    return grid.phase(kernel, cost, context.workers, "add selected", extra)


def _emit_addition(dtype: str, contiguous: bool, f: LLVMFunction, block: GridBlock) -> None:
    kind = element_values.kind_of(dtype)
    words = [
        [block.extra((WORDS_PER_DIM + 1) * k + i) for i in range(WORDS_PER_DIM + 1)]
        for k in range(MAX_WINDOW_DIMS)
    ]
    with f.loop(0, block.rows) as i:
        source, choice, target = (
            f.offset(address, i * stride)
            for address, stride in zip(block.addresses[:3], block.row_strides[:3], strict=True)
        )
        places = [
            address + i * stride
            for address, stride in zip(block.addresses[3:], block.row_strides[3:], strict=True)
        ]

        def columns(at: LLVMValue, vectors: int, lanes: int) -> None:
            totals = [f.variable(vector_type(kind.type, lanes), 0) for _ in range(vectors)]
            position_starts = [
                place + at * stride + word[2]
                for place, stride, word in zip(places, block.column_strides[3:], words, strict=True)
            ]
            number = f.variable("i32", 0)

            def visit(depth: int, inside: LLVMValue, start: LLVMValue, chosen: LLVMValue) -> None:
                if depth < MAX_WINDOW_DIMS:
                    size, stride, _, dilation, extent, step, step_chosen = words[depth]
                    with f.loop(0, size) as inner:
                        ahead = position_starts[depth] - inner * dilation
                        index = ahead // stride
                        within = ahead.is_("sge", 0) & (index * stride).is_("eq", ahead)
                        visit(
                            depth + 1,
                            inside & within & index.is_("ult", extent),
                            f.offset(start, index * step),
                            f.offset(chosen, index * step_chosen),
                        )
                    return
                with f.when(inside):
                    for k, total in enumerate(totals):
                        column = at + k * lanes
                        place = f.offset(start, column * block.column_strides[0])
                        new = element_values.load(f, place, kind, lanes)
                        by = f.load(
                            f.offset(chosen, column * block.column_strides[1]),
                            vector_type("i32", lanes),
                            1,
                        )
                        is_selected = by.is_("eq", f.splat(number.get(), lanes))
                        total.set(total.get() + f.select(is_selected, new, 0))
                number.set(number.get() + 1)

            visit(0, f.value(1, "i1"), source, choice)
            for k, total in enumerate(totals):
                place = f.offset(target, (at + k * lanes) * block.column_strides[2])
                element_values.store(f, total.get(), place, kind)

        for_each_column_group(
            f,
            block,
            f.machine.lanes(max(4, element_values.ELEMENT_BYTES[dtype])),
            contiguous,
            columns,
        )


RULES: dict[str, Rule] = {"select_and_scatter": select_and_scatter_rule}
"""Dilated operands, empty sources, and windows along more than three dimensions are not
supported."""
