"""Load and store vectors, of which the last of a row may be partial.

With masked memory accesses (AVX-512) a partial vector is masked; otherwise its elements are copied
through the stack, so that one copy of a loop body handles full and partial vectors.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable, lanes, vector
from shardir.backends.cpu.native.loops.axes import GENERAL, SPLAT
from shardir.backends.cpu.native.vector import registers
from shardir.backends.cpu.native.vector.registers import MEMORY, SIZES, Held, itemsize
from shardir.types import REAL_OF

_LAST = 63


class Place(NamedTuple):
    """The memory of a vector of elements: the first is at `address`, the others `stride` bytes
    apart."""

    address: Value
    dtype: str
    lying: str
    stride: Value | None = None


@dataclass
class Vectors:
    """Accesses to vectors of `count` elements, of which the first `left` exist (`None`: all).

    Results that are `streaming` are stored past the caches; with `aligned`, a run-time condition,
    only if it holds.
    """

    function: Function
    count: int
    left: Value | None = None
    streaming: bool = False
    aligned: Value | None = None
    _masks: dict[int, Value] = field(default_factory=dict)

    def load(self, place: Place) -> Held:
        """Load the elements at a place; lanes past the end have arbitrary values."""
        f = self.function
        if place.lying == SPLAT:
            return splat(f, registers.load(f, place.address, place.dtype, 1), self.count)
        if place.lying == GENERAL:
            return registers.load(f, self._gathered(place).address, place.dtype, self.count)
        if self.left is None:
            return registers.load(f, place.address, place.dtype, self.count)
        if not has_masks():
            stack = self._stack(place.dtype)
            is_full = self.left.is_("uge", self.count)
            with f.when(is_full ^ 1):
                self._copy(stack.address, place.address, self._bytes(place.dtype))
            address = f.select(is_full, place.address, stack.address)
            return registers.load(f, address, place.dtype, self.count)
        part, type, mask = self._masked(place.dtype)
        name = f"llvm.masked.load.{_suffix(type)}.p0"
        f.module.declare(name, type, ["ptr", "i32 immarg", mask.type, type])
        stored = f.emit(
            f"call {type} @{name}(ptr {place.address}, i32 {SIZES[part]}, "
            f"{mask.type} {mask}, {type} zeroinitializer)",
            type,
        )
        if place.dtype not in REAL_OF:
            return registers.widened(f, stored, place.dtype)
        ends = 2 * self.count
        return (
            f.shuffle(stored, stored, range(0, ends, 2)),
            f.shuffle(stored, stored, range(1, ends, 2)),
        )

    def store(self, held: Held, place: Place) -> None:
        """Store the elements that exist."""
        f = self.function
        if place.lying == GENERAL:
            stack = self._stack(place.dtype)
            registers.store(f, held, stack.address, place.dtype)
            self._each(place, stack, writes=True)
        elif self.left is None:
            self._store_whole(held, place)
        elif not has_masks():
            stack = self._stack(place.dtype)
            is_full = self.left.is_("uge", self.count)
            address = f.select(is_full, place.address, stack.address)
            registers.store(f, held, address, place.dtype)
            with f.when(is_full ^ 1):
                self._copy(place.address, stack.address, self._bytes(place.dtype))
        else:
            part, type, mask = self._masked(place.dtype)
            value = _packed(f, held, place.dtype)
            name = f"llvm.masked.store.{_suffix(type)}.p0"
            f.module.declare(name, "void", [type, "ptr", "i32 immarg", mask.type])
            f.do(
                f"call void @{name}({type} {value}, ptr {place.address}, i32 {SIZES[part]}, "
                f"{mask.type} {mask})"
            )

    def _store_whole(self, value: Held, place: Place) -> None:
        def store(streaming: bool) -> None:
            registers.store(self.function, value, place.address, place.dtype, streaming)

        if self.aligned is None:
            store(self.streaming)
        else:
            self.function.choose(self.aligned, lambda: store(True), lambda: store(False))

    def present(self) -> Value | None:
        """Return the mask of the lanes that exist; `None` for all."""
        if self.left is None:
            return None
        return self._mask(self.count)

    def _masked(self, dtype: str) -> tuple[str, str, Value]:
        part = MEMORY[dtype]
        width = self.count * (2 if dtype in REAL_OF else 1)
        return part, vector(part, width), self._mask(width)

    def _mask(self, width: int) -> Value:
        """Return a mask of the first `left` lanes."""
        if width not in self._masks:
            f = self.function
            assert self.left is not None
            if width <= _LAST + 1:
                there = self.left if width == self.count else self.left << 1
                lost = f.value(width, "i64") - f.least(there, width)
                bits = f.value(-1, f"i{width}")
                short = lost if width == 64 else lost.to(f"i{width}", "trunc")
                # A shift by the full width is undefined; vectors without any element do not occur.
                self._masks[width] = (bits >> short).to(vector("i1", width), "bitcast")
            elif width == self.count:
                # Words of more than 64 lanes do not fit into one shift.
                numbers = ", ".join(f"i16 {lane}" for lane in range(width))
                type = vector("i16", width)
                there = f.splat(f.least(self.left, width).to("i16", "trunc"), width)
                short = f.emit(f"icmp ult {type} <{numbers}>, {there}", vector("i1", width))
                self._masks[width] = short
            else:
                half = self._mask(width // 2)
                order = [lane // 2 for lane in range(width)]
                self._masks[width] = f.shuffle(half, half, order)
        return self._masks[width]

    def _gathered(self, place: Place) -> Variable:
        stack = self._stack(place.dtype)
        self._each(place, stack, writes=False)
        return stack

    def _each(self, place: Place, stack: Variable, writes: bool) -> None:
        """Copy elements one by one between a place and the stack."""
        f = self.function
        size = itemsize(place.dtype)
        word = f"i{8 * size}"
        align = SIZES[MEMORY[place.dtype]]
        assert place.stride is not None
        end = f.value(self.count, "i64") if self.left is None else f.least(self.left, self.count)
        outer = f.variable("ptr", place.address)
        with f.loop(0, end) as i:
            inner = f.offset(stack.address, i * size)
            source, target = (inner, outer.get()) if writes else (outer.get(), inner)
            f.store(f.load(source, word, align), target, align)
            outer.set(f.offset(outer.get(), place.stride))

    def _stack(self, dtype: str) -> Variable:
        width = self.count * (2 if dtype in REAL_OF else 1)
        return self.function.variable(vector(MEMORY[dtype], width))

    def _bytes(self, dtype: str) -> Value:
        size = itemsize(dtype)
        assert self.left is not None
        return self.left * size

    def _copy(self, target: Value, source: Value, nbytes: Value) -> None:
        f = self.function
        f.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1 immarg"])
        f.do(
            f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)"
        )


def has_masks() -> bool:
    """Return whether this machine has masked loads and stores for elements of any size."""
    features = host().features
    return "+avx512bw" in features and "+avx512vl" in features


def splat(function: Function, value: Held, count: int) -> Held:
    """Return one element in all lanes."""
    if isinstance(value, tuple):
        return function.splat(value[0], count), function.splat(value[1], count)
    return function.splat(value, count)


def _packed(f: Function, value: Held, dtype: str) -> Value:
    if not isinstance(value, tuple):
        return registers.narrowed(f, value, dtype)
    count = lanes(value[0].type)
    return f.shuffle(*value, [lane for i in range(count) for lane in (i, i + count)])


def _suffix(type: str) -> str:
    short = {"float": "f32", "double": "f64"}
    count, kind = type[1:-1].split(" x ")
    return f"v{count}{short.get(kind, kind)}"
