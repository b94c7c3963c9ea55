"""Restores the order of signed zeros in sorted lines: all zeros are equal, and the sort is stable.

Sorting by bits puts negative zeros first. If a line has zeros of both signs, its zeros are written
again in source order. If the source is a NumPy array that another thread modifies, fewer zeros may
be found than were sorted.
"""

from functools import partial

from shardir.backends.cpu.codegen.llvm_text import FLOAT_TYPES, LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, Kernel, Phase
from shardir.backends.cpu.kernels.data_movement import element_values
from shardir.backends.cpu.kernels.data_movement.loop_nest import loop_nest_of
from shardir.backends.cpu.kernels.selection.radix_select import line_starts


def signed_zero_phases(x: BufferView, y: BufferView, dim: int, signed: bool = True) -> list[Phase]:
    """Return phases that write the zeros of sorted lines `y` in the order they have in `x`.

    The lines must have a constant stride. Zeros in `y` have lost their signs if `signed` is
    False. There are no phases for types without signed zeros.
    """
    if element_values.kind_of(x.dtype).type not in FLOAT_TYPES:
        return []
    loops, offsets = loop_nest_of([line_starts(x, dim), line_starts(y, dim)])
    count, from_line, to_line = (loops[0].extent, *loops[0].strides) if loops else (1, 0, 0)
    name = f"moves_sort_zeros_{x.dtype}"
    kernel = Kernel(name, partial(_restore_text, name, x.dtype))
    source = (x.slot, offsets[0], from_line, x.strides[dim])
    target = (y.slot, offsets[1], to_line, y.strides[dim])
    return [
        Phase(
            kernel, (x.shape[dim], *source, *target, int(not signed)), count, count * 100.0, "sort"
        )
    ]


def _restore_text(name: str, dtype: str, machine: HostDescription) -> str:
    f = LLVMFunction(LLVMModule(machine), name, ("ptr", "ptr", "i64", "i64"))
    bases, record, task, _ = f.params

    def word(index: int) -> LLVMValue:
        return f.load(f.offset(record, index, "i64"), "i64")

    def base(slot: LLVMValue) -> LLVMValue:
        return f.load(f.offset(bases, slot, "ptr"), "ptr")

    steps, slot, offset, from_line, step = (word(k) for k in range(5))
    to_slot, to_offset, to_line, to_step = (word(5 + k) for k in range(4))
    source = f.offset(base(slot), offset + task * from_line)
    target = f.offset(base(to_slot), to_offset + task * to_line)
    kind, bits = element_values.kind_of(dtype), f"i{8 * element_values.ELEMENT_BYTES[dtype]}"

    def first_not(predicate: str) -> LLVMValue:
        """Return the first position of a sorted line where the comparison with zero fails."""
        low, high = f.variable("i64", 0), f.variable("i64", steps)
        with f.while_(lambda: low.get().is_("slt", high.get())):
            middle = (low.get() + high.get()) >> 1
            value = element_values.load(f, f.offset(target, middle * to_step), kind, 1)
            below = value.is_(predicate, f.value(0.0, kind.type))
            low.set(f.select(below, middle + 1, low.get()))
            high.set(f.select(below, high.get(), middle))
        return low.get()

    begin, end = first_not("olt"), first_not("ole")
    lost = word(9).is_("ne", 0)
    with f.when(begin.is_("slt", end)):
        ends = [f.load(f.offset(target, i * to_step), bits, 1) for i in (begin, end - 1)]
        at = f.variable("i64", f.select(lost | ends[0].is_("ne", ends[1]), begin, end))
        place = f.variable("i64", 0)
        with f.while_(lambda: at.get().is_("slt", end) & place.get().is_("slt", steps)):
            found = f.load(f.offset(source, place.get() * step), bits, 1)
            with f.when((found << 1).is_("eq", 0)):
                f.store(found, f.offset(target, at.get() * to_step), 1)
                at.set(at.get() + 1)
            place.set(place.get() + 1)
    f.ret()
    return f.module.text()
