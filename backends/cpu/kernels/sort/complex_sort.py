"""Sorting of c64: the keys of both parts form a word of 64 bits.

The real part is the upper half, the imaginary part the lower. Elements whose imaginary part alone
is NaN come after all others without NaN, ordered by their real parts: their upper half is a value
that no real part becomes. Words do not keep the signs of zeros. If a line has a negative zero, its
elements with zeros are searched among the words and written again in source order.
"""

from collections.abc import Callable
from functools import partial

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, lane_count, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, LoweringContext, Phase
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection.radix_select import line_starts
from shardir.backends.cpu.kernels.sort.quicksort import KernelStart, start_kernel
from shardir.backends.cpu.kernels.sort.sort_keys import NAN_BITS, SortKeys
from shardir.backends.cpu.kernels.sort.tuning import PART_ELEMENTS

WORD_BYTES = 8
"""The size in bytes of an element, and of a word."""
HALF_KEYS = SortKeys("f32", 32, lanes=1)
BELOW_NAN_KEY = 0x7F900000
"""Above the key of infinity, and below that of NaN."""
SIGNED_ZERO = -(1 << 31)

SortPhases = Callable[[BufferView, BufferView], list[Phase] | None]
"""Returns phases that write the sorted lines of one view to the other, along the last dimension."""


def complex_sort_phases(
    x: BufferView, y: BufferView, dim: int, sort: SortPhases, context: LoweringContext
) -> list[Phase] | None:
    """Return phases that write the sorted lines of complex `x` to `y`, using `sort` for u64.

    Return None if `sort` does, or for lines without a constant stride.
    """
    steps = x.shape[dim]
    loops, offsets = loop_nest_of([line_starts(x, dim), line_starts(y, dim)])
    if len(loops) > 1:
        return None
    count, strides = loops[0] if loops else (1, (0, 0))
    source, target = (
        (end.slot, offset, stride, end.strides[dim])
        for end, offset, stride in zip((x, y), offsets, strides, strict=True)
    )
    around = steps * WORD_BYTES
    slots = [context.temporary(count * around) for _ in range(2)]
    words = [BufferView(slot, 0, (count, steps), (around, WORD_BYTES), "u64") for slot in slots]
    phases = sort(words[0], words[1])
    if phases is None:
        return None
    parts = -(-steps // PART_ELEMENTS)
    flags, seen = context.temporary(count * parts * 8), context.temporary(count * steps * 4)
    unsorted, arranged = ((slot, 0, around, WORD_BYTES) for slot in slots)
    record = (parts, steps, *source, *unsorted, *arranged, *target, flags, seen)

    def phase(
        what: str, text: Callable[[str, HostDescription], str], tasks: int, cost: float
    ) -> Phase:
        name = f"moves_pairs_{what}"
        kernel = Kernel(name, partial(text, name))
        return Phase(kernel, record, count * tasks, count * cost, "sort")

    cost = steps * 0.6 + 50.0
    read, write = (
        phase("words", _words_text, parts, cost),
        phase("back", _elements_text, parts, cost),
    )
    return [read, *phases, write, phase("zeros", _zeros_text, 1, 50.0 + parts)]


SOURCE, UNSORTED, ARRANGED, TARGET, FLAGS, SEEN = 2, 6, 10, 14, 18, 19


def _to_words(f: LLVMFunction, bits: LLVMValue) -> LLVMValue:
    """Convert the bits of elements to words, one or a vector."""
    real, imaginary = (_to_key(f, half) for half in _split_halves(bits))
    is_imaginary_nan = _is_nan(imaginary) & ~_is_nan(real)
    high = f.select(is_imaginary_nan, BELOW_NAN_KEY, real)
    return _join_halves(
        f.select(is_imaginary_nan, real, imaginary) ^ HALF_KEYS.min_key, high ^ HALF_KEYS.min_key
    )


def _to_bits(f: LLVMFunction, words: LLVMValue) -> LLVMValue:
    """Convert words back to the bits of elements."""
    low, high = (half ^ HALF_KEYS.min_key for half in _split_halves(words))
    is_imaginary_nan = high.is_("eq", BELOW_NAN_KEY)
    imaginary = f.select(is_imaginary_nan, NAN_BITS["f32"], low)
    return _join_halves(
        HALF_KEYS.to_elements(f, f.select(is_imaginary_nan, low, high)),
        HALF_KEYS.to_elements(f, imaginary),
    )


def _to_key(f: LLVMFunction, half: LLVMValue) -> LLVMValue:
    return HALF_KEYS.from_elements(f, f.select(half.is_("eq", SIGNED_ZERO), 0, half))


def _is_nan(key: LLVMValue) -> LLVMValue:
    return key.is_("sgt", BELOW_NAN_KEY)


def _split_halves(words: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the lower and upper half: of elements, the real and the imaginary part."""
    half = vector_type("i32", lane_count(words.type))
    return words.to(half, "trunc"), (words >> 32).to(half, "trunc")


def _join_halves(low: LLVMValue, high: LLVMValue) -> LLVMValue:
    whole = vector_type("i64", lane_count(low.type))
    return (high.to(whole, "zext") << 32) | low.to(whole, "zext")


def _convert_words(
    start: KernelStart, ends: tuple[int, int], move: Callable[[LLVMValue], LLVMValue]
) -> None:
    """Convert the words of a part of a line, in vectors if both ends are contiguous."""
    f, wide = start.function, start.function.machine.lanes(WORD_BYTES)
    parts, steps = start.word(0), start.word(1)
    line, first = start.task // parts, (start.task % parts) * PART_ELEMENTS
    stop = f.umin(first + PART_ELEMENTS, steps)
    source, target = (start.line_address(end, line) for end in ends)
    step, to_step = (start.word(end + 3) for end in ends)
    at = f.variable("i64", first)

    def some(count: int) -> None:
        bits = f.load(f.offset(source, at.get() * step), vector_type("i64", count), 4)
        f.store(move(bits), f.offset(target, at.get() * to_step), 4)
        at.set(at.get() + count)

    contiguous = step.is_("eq", WORD_BYTES) & to_step.is_("eq", WORD_BYTES)
    with f.while_(lambda: contiguous & fits_before(at, stop, wide)):
        some(wide)
    with f.while_(partial(fits_before, at, stop, 1)):
        some(1)


def _words_text(name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that converts elements to words and detects negative zeros."""
    start = start_kernel(name, machine)
    f, wide = start.function, machine.lanes(WORD_BYTES)
    found = [f.variable(vector_type("i32", count), 0) for count in (wide, 1)]

    def move(bits: LLVMValue) -> LLVMValue:
        flags = found[lane_count(bits.type) == 1]
        for half in _split_halves(bits):
            flags.set(flags.get() | half.is_("eq", SIGNED_ZERO).to(half.type, "zext"))
        return _to_words(f, bits)

    _convert_words(start, (SOURCE, UNSORTED), move)
    some = found[0].get().is_("ne", 0).to(f"i{wide}", "bitcast").is_("ne", 0)
    some = some | found[1].get().is_("ne", 0)
    flags = start.buffer(start.word(FLAGS))
    f.store(some.to("i64", "zext"), f.offset(flags, start.task, "i64"))
    f.ret()
    return f.module.text()


def _elements_text(name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that converts words back to elements."""
    start = start_kernel(name, machine)
    _convert_words(start, (ARRANGED, TARGET), partial(_to_bits, start.function))
    start.function.ret()
    return start.function.module.text()


def _zeros_text(name: str, machine: HostDescription) -> str:
    """Return the text of the kernel that writes elements with zeros in source order, if any zero is
    negative."""
    start = start_kernel(name, machine)
    f, line = start.function, start.task
    parts, steps = start.word(0), start.word(1)
    signed = f.variable("i64", 0)
    flags = start.buffer(start.word(FLAGS))
    with f.loop(0, parts) as part:
        signed.set(signed.get() | f.load(f.offset(flags, line * parts + part, "i64"), "i64"))
    source, words, target = (start.line_address(end, line) for end in (SOURCE, ARRANGED, TARGET))
    step, to_step = (start.word(end + 3) for end in (SOURCE, TARGET))
    seen = f.offset(start.buffer(start.word(SEEN)), line * steps, "i32")
    with f.when(signed.get().is_("ne", 0)):
        with f.loop(0, steps) as i:
            f.store(f.value(0, "i32"), f.offset(seen, i, "i32"))
        with f.loop(0, steps) as i:
            bits = f.load(f.offset(source, i * step), "i64", 4)
            real, imaginary = ((half << 1).is_("eq", 0) for half in _split_halves(bits))
            with f.when(real | imaginary):
                # If another thread has modified the element, it may be behind all words.
                low = f.umin(_lower_bound(f, words, steps, _to_words(f, bits)), steps - 1)
                place = f.offset(seen, low, "i32")
                before = f.load(place, "i32")
                f.store(before + 1, place)
                at = f.umin(low + before.to("i64", "zext"), steps - 1)
                f.store(bits, f.offset(target, at * to_step), 4)
    f.ret()
    return f.module.text()


def _lower_bound(f: LLVMFunction, words: LLVMValue, count: LLVMValue, word: LLVMValue) -> LLVMValue:
    """Return the first position of `word` among sorted words, by binary search."""
    low, high = f.variable("i64", 0), f.variable("i64", count)
    with f.while_(lambda: low.get().is_("slt", high.get())):
        middle = (low.get() + high.get()) >> 1
        below = f.load(f.offset(words, middle, "i64"), "i64").is_("ult", word)
        low.set(f.select(below, middle + 1, low.get()))
        high.set(f.select(below, high.get(), middle))
    return low.get()
