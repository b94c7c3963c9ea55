"""The record of a phase: the words that a kernel reads, in the order in which the phase wrote them.

Blocks of loops are numbered along a table of outer axes; `locate_block` computes their addresses.

`make_named_kernel` names kernels by the parameters of their text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeVar

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.elementwise.loop_axes import LoopArray, LoopAxis
from shardir.backends.cpu.kernels.math import library

KERNEL_PARAMS = ("ptr", "ptr", "i64", "i64")
"""The parameters of a kernel: base addresses, record, task, worker."""
KERNEL_ATTRIBUTES = "nounwind alignstack(64)"
"""Vectors that are spilled around a call must not cross cache lines: a kernel with two calls took
twice the time otherwise, in three processes of four."""


@dataclass
class PhaseRecord:
    """The words of a record under construction."""

    words: list[int] = field(default_factory=list)

    def add(self, *words: int) -> None:
        self.words += words

    def arrays(self, arrays: Sequence[LoopArray]) -> None:
        """Add the slot and the offset of each array, and the start of iota indices."""
        for array in arrays:
            if array.view is not None:
                self.words += [array.view.slot, array.view.offset]
            else:
                self.words.append(array.begin)

    def table(self, axes: Sequence[LoopAxis]) -> None:
        """Add a table of axes to number blocks along, outermost first, with all of their
        strides."""
        self.words.append(len(axes))
        for axis in reversed(axes):
            self.words += [axis.extent, *axis.strides]


@dataclass
class RecordReader:
    """Reads a record in the order in which it was written."""

    function: LLVMFunction
    bases: LLVMValue
    record: LLVMValue
    at: int = 0

    def word(self) -> LLVMValue:
        f = self.function
        self.at += 1
        return f.load(f.offset(self.record, 8 * (self.at - 1)), "i64")

    def words(self, count: int) -> list[LLVMValue]:
        return [self.word() for _ in range(count)]

    def arrays(self, count: int, indices: int) -> list[LLVMValue]:
        """Return the addresses of arrays, then the starts of iota indices."""
        f = self.function
        result = []
        for _ in range(count):
            base = f.load(f.offset(self.bases, self.word(), "ptr"), "ptr")
            result.append(f.offset(base, self.word()))
        return result + self.words(indices)

    def table(self) -> LLVMValue:
        """Return the address of a table; it must be read last, or skipped by its length."""
        return self.function.offset(self.record, 8 * self.at)


def locate_block(
    f: LLVMFunction, table: LLVMValue, number: LLVMValue, starts: Sequence[LLVMValue]
) -> tuple[list[LLVMValue], LLVMValue]:
    """Return the addresses of arrays at block `number` along the axes of a table, and the table's
    end."""
    left = f.variable("i64", number)
    places = [start_variable(f, start) for start in starts]
    depth = f.load(table, "i64")
    at = f.variable("ptr", f.offset(table, 8))
    with f.loop(0, depth):
        entry = at.get()
        extent = f.load(entry, "i64")
        now = left.get()
        rest = now // extent
        index = now - rest * extent
        left.set(rest)
        for i, place in enumerate(places):
            stride = f.load(f.offset(entry, 8 + 8 * i), "i64")
            place.set(advance(f, place.get(), index * stride))
        at.set(f.offset(entry, 8 + 8 * len(places)))
    return [place.get() for place in places], at.get()


def start_variable(f: LLVMFunction, start: LLVMValue) -> StackVariable:
    """Return a variable that is initialized with an address or an integer."""
    return f.variable(start.type, start)


def advance(f: LLVMFunction, start: LLVMValue, distance: LLVMValue) -> LLVMValue:
    """Return an address, or an integer, advanced by a distance."""
    return f.offset(start, distance) if start.type == "ptr" else start + distance


KernelShape = TypeVar("KernelShape")


def make_named_kernel(
    word: str,
    shape: KernelShape,
    machine: HostDescription,
    write: Callable[[KernelShape, str, HostDescription], LLVMModule],
) -> Kernel:
    """Return the kernel of `write(shape, name, machine)`; its name contains `word` and a hash of
    `shape`.

    The text is written at once, because it states the library functions that the kernel imports.
    """
    name = f"{word}_{sha256(repr(shape).encode()).hexdigest()[:24]}"
    module = write(shape, name, machine)
    text = module.text()
    return Kernel(name, lambda _: text, library.imported_symbols(module))
