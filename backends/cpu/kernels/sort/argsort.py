"""Argsort of lines: sorts words of key and index, for processors with compress instructions.

A key of at most 32 bits and its index form a word of 64 bits, so that sorting words is stable.
"""

from collections.abc import Callable
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import FLOAT_TYPES, LLVMFunction, LLVMValue, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection.radix_select import line_starts, to_ordered_integer
from shardir.backends.cpu.kernels.sort.quicksort import KernelStart, sort_keys_of, start_kernel
from shardir.backends.cpu.kernels.sort.samplesort import (
    compress_sort_phases,
    is_compress_sort_faster,
)
from shardir.backends.cpu.kernels.sort.signed_zeros import signed_zero_phases
from shardir.backends.cpu.kernels.sort.tuning import (
    MIN_RADIX_ARGSORT_ELEMENTS,
    PART_ELEMENTS,
)

WORD_BYTES = 8


def argsort_phases(
    x: BufferView, y: BufferView, dim: int, values: BufferView | None, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the permutation that sorts the lines of `x` to `y`, in i32, and
    32-bit elements to `values`.

    Return None for keys of 64 bits, for long lines, and if the processor has no compress
    instructions.
    """
    steps = x.shape[dim]
    ends = [x, y] if values is None else [x, y, values]
    loops, offsets = loop_nest_of([line_starts(end, dim) for end in ends])
    if len(loops) > 1 or steps >= MIN_RADIX_ARGSORT_ELEMENTS.get(x.itemsize, 0):
        return None
    count, strides = loops[0] if loops else (1, (0,) * len(ends))
    if not is_compress_sort_faster("u64", count, steps, False, context):
        return None
    lines = [
        (end.slot, offset, stride, end.strides[dim])
        for end, offset, stride in zip(ends, offsets, strides, strict=True)
    ]
    around = steps * WORD_BYTES

    def words() -> BufferView:
        slot = context.temporary(count * around)
        return BufferView(slot, 0, (count, steps), (around, WORD_BYTES), "u64")

    unsorted, arranged = words(), words()
    phases = compress_sort_phases(unsorted, arranged, 1, (), context)
    assert phases is not None, "words of such lines fit a worker's scratch memory"
    parts = -(-steps // PART_ELEMENTS)

    def phase(name: str, text: Callable[[str, HostDescription], str], *record: int) -> Phase:
        kernel = Kernel(name, partial(text, name))
        cost = count * steps * 0.4 + 50.0
        return Phase(kernel, (parts, steps, *record), count * parts, cost, "sort")

    made = (arranged.slot, 0, around, WORD_BYTES)
    write = phase("moves_words_places", _indices_text, *made, *lines[1])
    read = phase(
        f"moves_words_{x.dtype}", partial(_words_text, x.dtype),
        *lines[0], unsorted.slot, 0, around, WORD_BYTES,
    )  # fmt: skip
    phases = [read, *phases, write]
    if values is not None:
        name = f"moves_words_values_{x.dtype}"
        phases.append(phase(name, partial(_values_text, x.dtype), *made, *lines[2]))
        phases += signed_zero_phases(x, values, dim, False)
    return phases


def _words_text(dtype: str, name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that converts elements to words."""
    kind, size = element_values.kind_of(dtype), element_values.ELEMENT_BYTES[dtype]

    def move(
        f: LLVMFunction, source: LLVMValue, target: LLVMValue, first: LLVMValue, lanes: int
    ) -> None:
        value = element_values.load(f, source, kind, lanes)
        if kind.type in FLOAT_TYPES:
            value = value + 0.0  # Converts -0 to +0.
        key = to_ordered_integer(f, value, dtype)
        whole, place = vector_type("i64", lanes), f.splat(first, lanes)
        if lanes > 1:
            indices = ", ".join(f"i64 {lane}" for lane in range(lanes))
            place = place + LLVMValue(f"<{indices}>", whole, f)
        f.store((key.to(whole, "zext") << 32) | place, target, WORD_BYTES)

    return _text(name, machine, size, WORD_BYTES, move)


def _indices_text(name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that extracts the indices of words."""

    def move(
        f: LLVMFunction, source: LLVMValue, target: LLVMValue, _: LLVMValue, lanes: int
    ) -> None:
        word = f.load(source, vector_type("i64", lanes), WORD_BYTES)
        f.store(word.to(vector_type("i32", lanes), "trunc"), target, 4)

    return _text(name, machine, WORD_BYTES, 4, move)


def _values_text(dtype: str, name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that extracts the elements of words; all NaN are one."""
    keys = sort_keys_of(dtype, machine)

    def move(
        f: LLVMFunction, source: LLVMValue, target: LLVMValue, _: LLVMValue, lanes: int
    ) -> None:
        word = f.load(source, vector_type("i64", lanes), WORD_BYTES)
        key = (word >> 32).to(vector_type("i32", lanes), "trunc") ^ keys.min_key
        f.store(keys.to_elements(f, key), target, 4)

    return _text(name, machine, WORD_BYTES, 4, move)


def _text(
    name: str, machine: HostDescription, reads: int, writes: int,
    move: Callable[[LLVMFunction, LLVMValue, LLVMValue, LLVMValue, int], None],
) -> str:  # fmt: skip
    """Return the text of a kernel that converts parts of lines, in vectors if they are
    contiguous."""
    start = start_kernel(name, machine)
    f, wide = start.function, machine.lanes(WORD_BYTES)
    parts, steps = start.word(0), start.word(1)
    line, first = start.task // parts, (start.task % parts) * PART_ELEMENTS
    stop = f.umin(first + PART_ELEMENTS, steps)
    source, step = _line_address(start, 2, line)
    target, to_step = _line_address(start, 6, line)
    at = f.variable("i64", first)

    def move_some(lanes: int) -> None:
        here = at.get()
        move(f, f.offset(source, here * step), f.offset(target, here * to_step), here, lanes)
        at.set(here + lanes)

    contiguous = step.is_("eq", reads) & to_step.is_("eq", writes)
    with f.while_(lambda: contiguous & fits_before(at, stop, wide)):
        move_some(wide)
    with f.while_(partial(fits_before, at, stop, 1)):
        move_some(1)
    f.ret()
    return f.module.text()


def _line_address(start: KernelStart, index: int, number: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the address of a line and the stride of its elements."""
    return start.line_address(index, number), start.word(index + 3)
