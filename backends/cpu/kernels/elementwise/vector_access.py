"""Load and store vectors, of which the last of a row may be partial.

With masked memory accesses (AVX-512) a partial vector is masked; otherwise its elements are copied
through the stack, so that one copy of a loop body handles full and partial vectors.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    StackVariable,
    lane_count,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST, STRIDED
from shardir.backends.cpu.kernels.math import registers
from shardir.backends.cpu.kernels.math.registers import TYPE_BYTES, VectorValue, itemsize
from shardir.ir.types import REAL_OF

_MAX_SHIFT_BITS = 63


class VectorPlace(NamedTuple):
    """The memory of a vector of elements, from `address` on with a stride of `stride` bytes."""

    address: LLVMValue
    dtype: str
    layout: str
    stride: LLVMValue | None = None


@dataclass
class VectorAccess:
    """Accesses to vectors of `count` elements, of which the first `remaining` exist (`None`: all).

    Results that are `streaming` are stored past the caches; with `aligned`, a run-time condition,
    only if it holds.
    """

    function: LLVMFunction
    count: int
    remaining: LLVMValue | None = None
    streaming: bool = False
    aligned: LLVMValue | None = None
    _masks: dict[int, LLVMValue] = field(default_factory=dict)

    def load(self, place: VectorPlace) -> VectorValue:
        """Load the elements at a place; lanes past the end have arbitrary values."""
        f = self.function
        if place.layout == BROADCAST:
            return splat_value(
                f, registers.load_elements(f, place.address, place.dtype, 1), self.count
            )
        if place.layout == STRIDED:
            return registers.load_elements(f, self._gather(place).address, place.dtype, self.count)
        if self.remaining is None:
            return registers.load_elements(f, place.address, place.dtype, self.count)
        if not has_masked_access(f.machine):
            stack = self._stack_vector(place.dtype)
            is_full = self.remaining.is_("uge", self.count)
            with f.when(is_full ^ 1):
                self._copy(stack.address, place.address, self._remaining_bytes(place.dtype))
            address = f.select(is_full, place.address, stack.address)
            return registers.load_elements(f, address, place.dtype, self.count)
        part, type, mask = self._masked_type(place.dtype)
        name = f"llvm.masked.load.{_intrinsic_suffix(type)}.p0"
        f.module.declare(name, type, ["ptr", "i32 immarg", mask.type, type])
        stored = f.emit(
            f"call {type} @{name}(ptr {place.address}, i32 {TYPE_BYTES[part]}, "
            f"{mask.type} {mask}, {type} zeroinitializer)",
            type,
        )
        if place.dtype not in REAL_OF:
            return registers.widen_elements(f, stored, place.dtype)
        ends = 2 * self.count
        return (
            f.shuffle(stored, stored, range(0, ends, 2)),
            f.shuffle(stored, stored, range(1, ends, 2)),
        )

    def store(self, held: VectorValue, place: VectorPlace) -> None:
        """Store the elements that exist."""
        f = self.function
        if place.layout == STRIDED:
            stack = self._stack_vector(place.dtype)
            registers.store_elements(f, held, stack.address, place.dtype)
            self._copy_each(place, stack, writes=True)
        elif self.remaining is None:
            self._store_whole(held, place)
        elif not has_masked_access(f.machine):
            stack = self._stack_vector(place.dtype)
            is_full = self.remaining.is_("uge", self.count)
            address = f.select(is_full, place.address, stack.address)
            registers.store_elements(f, held, address, place.dtype)
            with f.when(is_full ^ 1):
                self._copy(place.address, stack.address, self._remaining_bytes(place.dtype))
        else:
            part, type, mask = self._masked_type(place.dtype)
            value = _interleave(f, held, place.dtype)
            name = f"llvm.masked.store.{_intrinsic_suffix(type)}.p0"
            f.module.declare(name, "void", [type, "ptr", "i32 immarg", mask.type])
            f.do(
                f"call void @{name}({type} {value}, ptr {place.address}, i32 {TYPE_BYTES[part]}, "
                f"{mask.type} {mask})"
            )

    def _store_whole(self, value: VectorValue, place: VectorPlace) -> None:
        def store(streaming: bool) -> None:
            registers.store_elements(self.function, value, place.address, place.dtype, streaming)

        if self.aligned is None:
            store(self.streaming)
        else:
            self.function.if_else(self.aligned, lambda: store(True), lambda: store(False))

    def present_mask(self) -> LLVMValue | None:
        """Return the mask of the lanes that exist; `None` for all."""
        if self.remaining is None:
            return None
        return self._mask(self.count)

    def _masked_type(self, dtype: str) -> tuple[str, str, LLVMValue]:
        part = MEMORY_TYPES[dtype]
        width = self.count * (2 if dtype in REAL_OF else 1)
        return part, vector_type(part, width), self._mask(width)

    def _mask(self, width: int) -> LLVMValue:
        """Return a mask of the first `remaining` lanes."""
        if width not in self._masks:
            f = self.function
            assert self.remaining is not None
            if width <= _MAX_SHIFT_BITS + 1:
                there = self.remaining if width == self.count else self.remaining << 1
                lost = f.value(width, "i64") - f.umin(there, width)
                bits = f.value(-1, f"i{width}")
                short = lost if width == 64 else lost.to(f"i{width}", "trunc")
                # A shift by the full width is undefined; vectors without any element do not occur.
                self._masks[width] = (bits >> short).to(vector_type("i1", width), "bitcast")
            elif width == self.count:
                # Words of more than 64 lanes do not fit into one shift.
                numbers = ", ".join(f"i16 {lane}" for lane in range(width))
                type = vector_type("i16", width)
                there = f.splat(f.umin(self.remaining, width).to("i16", "trunc"), width)
                short = f.emit(f"icmp ult {type} <{numbers}>, {there}", vector_type("i1", width))
                self._masks[width] = short
            else:
                half = self._mask(width // 2)
                order = [lane // 2 for lane in range(width)]
                self._masks[width] = f.shuffle(half, half, order)
        return self._masks[width]

    def _gather(self, place: VectorPlace) -> StackVariable:
        stack = self._stack_vector(place.dtype)
        self._copy_each(place, stack, writes=False)
        return stack

    def _copy_each(self, place: VectorPlace, stack: StackVariable, writes: bool) -> None:
        """Copy elements one by one between a place and the stack."""
        f = self.function
        size = itemsize(place.dtype)
        word = f"i{8 * size}"
        align = TYPE_BYTES[MEMORY_TYPES[place.dtype]]
        assert place.stride is not None
        end = (
            f.value(self.count, "i64")
            if self.remaining is None
            else f.umin(self.remaining, self.count)
        )
        outer = f.variable("ptr", place.address)
        with f.loop(0, end) as i:
            inner = f.offset(stack.address, i * size)
            source, target = (inner, outer.get()) if writes else (outer.get(), inner)
            f.store(f.load(source, word, align), target, align)
            outer.set(f.offset(outer.get(), place.stride))

    def _stack_vector(self, dtype: str) -> StackVariable:
        width = self.count * (2 if dtype in REAL_OF else 1)
        return self.function.variable(vector_type(MEMORY_TYPES[dtype], width))

    def _remaining_bytes(self, dtype: str) -> LLVMValue:
        size = itemsize(dtype)
        assert self.remaining is not None
        return self.remaining * size

    def _copy(self, target: LLVMValue, source: LLVMValue, nbytes: LLVMValue) -> None:
        f = self.function
        f.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1 immarg"])
        f.do(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)"
        )


def has_masked_access(machine: HostDescription) -> bool:
    """Return whether a machine has masked loads and stores for elements of any size."""
    return machine.has("avx512bw") and machine.has("avx512vl")


def splat_value(function: LLVMFunction, value: VectorValue, count: int) -> VectorValue:
    """Return one element in all lanes."""
    if isinstance(value, tuple):
        return function.splat(value[0], count), function.splat(value[1], count)
    return function.splat(value, count)


def _interleave(f: LLVMFunction, value: VectorValue, dtype: str) -> LLVMValue:
    if not isinstance(value, tuple):
        return registers.narrow_elements(f, value, dtype)
    count = lane_count(value[0].type)
    return f.shuffle(*value, [lane for i in range(count) for lane in (i, i + count)])


def _intrinsic_suffix(type: str) -> str:
    short = {"float": "f32", "double": "f64"}
    count, kind = type[1:-1].split(" x ")
    return f"v{count}{short.get(kind, kind)}"
