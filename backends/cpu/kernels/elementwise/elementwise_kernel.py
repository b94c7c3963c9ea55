"""The kernel of an elementwise loop nest.

A nest is processed block by block, and row by row in a block. A nest with one axis, the most common
case, needs none of that: for many arrays the addresses of rows are most of the text of a kernel,
and most of the time to compile it.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import store_fence
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.elementwise.evaluation import (
    StepValues,
    invariant_steps,
    iota_vector,
)
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST, STRIDED
from shardir.backends.cpu.kernels.elementwise.loop_body import LoopBody
from shardir.backends.cpu.kernels.elementwise.math_inlining import is_inlined, is_long
from shardir.backends.cpu.kernels.elementwise.phase_record import (
    KERNEL_ATTRIBUTES,
    KERNEL_PARAMS,
    RecordReader,
    advance,
    locate_block,
    make_named_kernel,
    start_variable,
)
from shardir.backends.cpu.kernels.elementwise.streaming_stores import are_aligned
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorAccess, VectorPlace
from shardir.backends.cpu.kernels.math.registers import VectorValue, itemsize


class ElementwiseShape(NamedTuple):
    """The parameters of the text of an elementwise kernel.

    `kinds` has the element type of each array and its layout along the columns; iota indices come
    last. `has_full_vectors`: columns are full vectors; `streaming`: results are stored past the
    caches; `single`: there is one row.
    """

    body: LoopBody
    kinds: tuple[tuple[str, str], ...]
    counted: int
    lanes: int
    has_full_vectors: bool
    streaming: bool
    single: bool


@cache
def elementwise_kernel(shape: ElementwiseShape, machine: HostDescription) -> Kernel:
    """Return the kernel of an elementwise loop nest; equal shapes share one kernel."""
    return make_named_kernel("map", shape, machine, _emit_module)


def _emit_module(shape: ElementwiseShape, name: str, machine: HostDescription) -> LLVMModule:
    module = LLVMModule(machine, inlined=is_inlined(shape.body))
    f = LLVMFunction(module, name, KERNEL_PARAMS, attributes=KERNEL_ATTRIBUTES)
    (_emit_single_row if shape.single else _emit_nest)(shape, f)
    if shape.streaming:
        store_fence(f)
    f.ret()
    return module


def _emit_single_row(shape: ElementwiseShape, f: LLVMFunction) -> None:
    """Emit the part of a row that a task computes."""
    bases, words, task, _ = f.params
    count = len(shape.kinds)
    reader = RecordReader(f, bases, words)
    columns, each, *strides = reader.words(2 + count)
    starts = reader.arrays(count - shape.counted, shape.counted)
    first = task * each
    at = [
        start if kind == BROADCAST else advance(f, start, first * stride)
        for start, (_, kind), stride in zip(starts, shape.kinds, strides, strict=True)
    ]
    _emit_row_with_streaming(shape, f, at, strides, f.umin(columns - first, each))


def _emit_nest(shape: ElementwiseShape, f: LLVMFunction) -> None:
    bases, words, task, _ = f.params
    count = len(shape.kinds)
    reader = RecordReader(f, bases, words)
    blocks, each = reader.words(2)
    rows, row_cut, row_count, *row_strides = reader.words(3 + count)
    columns, column_cut, column_count, *column_strides = reader.words(3 + count)
    starts = reader.arrays(count - shape.counted, shape.counted)
    table = reader.table()
    first = task * each
    with f.loop(first, f.umin(first + each, blocks)) as block:
        outer_block = block // column_count
        column_at = (block - outer_block * column_count) * column_cut
        rest = outer_block // row_count
        row_at = (outer_block - rest * row_count) * row_cut
        begins, _ = locate_block(f, table, rest, starts)
        at = [
            start_variable(f, advance(f, advance(f, begin, row_at * down), column_at * along))
            for begin, down, along in zip(begins, row_strides, column_strides, strict=True)
        ]
        width = f.umin(columns - column_at, column_cut)
        with f.loop(0, f.umin(rows - row_at, row_cut)):
            _emit_row_with_streaming(shape, f, [each.get() for each in at], column_strides, width)
            for place, down in zip(at, row_strides, strict=True):
                place.set(advance(f, place.get(), down))


def _emit_row_with_streaming(
    shape: ElementwiseShape,
    f: LLVMFunction,
    at: Sequence[LLVMValue],
    strides: Sequence[LLVMValue],
    width: LLVMValue,
) -> None:
    """Emit a row with streaming stores where results are aligned, and with normal stores
    elsewhere."""
    if not shape.streaming:
        _emit_row(shape, f, at, strides, width)
        return
    aligned = are_aligned(f, _result_places(shape, at), shape.lanes)

    def plain() -> None:
        # This path is rare, so it calls functions instead of inlining them.
        f.module.inlined = False
        _emit_row(shape._replace(streaming=False), f, at, strides, width)
        f.module.inlined = is_inlined(shape.body)

    if is_long(shape.body):
        # A branch at each store is negligible in a long body, which is then emitted only once.
        _emit_row(shape, f, at, strides, width, aligned)
    else:
        f.if_else(aligned, lambda: _emit_row(shape, f, at, strides, width), plain)


def _result_places(shape: ElementwiseShape, at: Sequence[LLVMValue]) -> list[VectorPlace]:
    """Return the places where the results of a row begin."""
    end = len(at) - shape.counted
    first = end - len(shape.body.results)
    return [VectorPlace(at[k], *shape.kinds[k]) for k in range(first, end)]


def _emit_row(
    shape: ElementwiseShape,
    f: LLVMFunction,
    at: Sequence[LLVMValue],
    strides: Sequence[LLVMValue],
    width: LLVMValue,
    aligned: LLVMValue | None = None,
) -> None:
    """Emit one row: its invariant values, then its vectors, streamed if `aligned` holds."""
    body, lanes = shape.body, shape.lanes
    known = StepValues(f, body, lanes)
    same = invariant_steps(body, shape.kinds, shape.counted)
    full_vectors = VectorAccess(f, lanes)

    def place(number: int, i: LLVMValue | None) -> VectorPlace:
        dtype, kind = shape.kinds[number]
        address = at[number]
        if i is not None and kind != BROADCAST and address.type == "ptr":
            distance = i * strides[number] if kind == STRIDED else i * itemsize(dtype)
            address = f.offset(address, distance)
        return VectorPlace(address, dtype, kind, strides[number] if kind == STRIDED else None)

    def index(number: int, i: LLVMValue | None) -> VectorValue:
        where = len(shape.kinds) - shape.counted + number
        start, kind = at[where], shape.kinds[where][1]
        if i is not None and kind != BROADCAST:
            start = start + (i * strides[where] if kind == STRIDED else i)
        return iota_vector(f, place(where, None), start, lanes)

    known.evaluate(same, full_vectors, lambda n: place(n, None), lambda n: index(n, None))
    known.precompute_divisors()
    with f.loop(0, width, lanes) as i:
        left = None if shape.has_full_vectors else width - i
        vectors = VectorAccess(f, lanes, left, shape.streaming, aligned)
        now = known.copy_for_inner_loop()
        now.evaluate(range(len(body.steps)), vectors, lambda n: place(n, i), lambda n: index(n, i))
        results = len(shape.kinds) - shape.counted - len(body.results)
        for number, value in enumerate(body.results):
            vectors.store(now.computed[value], place(results + number, i))
