"""A fused group while its kernel is written: names, tensors, and texts of kernels and launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from shardir.backends.gpu.dtypes import POINTER_TYPES
from shardir.backends.gpu.kernels.group_layout import GroupLayout, layout_of
from shardir.backends.gpu.kernels.helpers import helper_functions
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelText
from shardir.backends.gpu.kernels.kernel_text import allocation_text, make_kernel
from shardir.backends.gpu.kernels.kernel_writer import KernelWriter
from shardir.backends.gpu.kernels.tile_sides import IndexVariables, TileSide
from shardir.backends.gpu.kernels.value_names import (
    identifier,
    ir_names,
    make_identifiers,
    make_unused_name,
)
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.text.printer import Printer

RESERVED_NAMES = ("tl", "triton", "torch", "libdevice", "device", "float", "range", "INTERPRETED")
FUNCTION_WORDS = ("kernel", "parts", "rows", "columns", "operands", "reference")
"""Ends of the names of functions and variables of a group."""
INDEX_NAMES = (*"ijklmnpqrst", *(f"i{number}" for number in range(2, 100)))


@dataclass(frozen=True, slots=True)
class FusedGroup:
    """A `fused` or `fused_products` operation, its axes, and the names of its values."""

    op: Op
    block: Block
    name: str
    layout: GroupLayout
    words: Mapping[Value, str]
    """Names in the IR."""
    names: Mapping[Value, str]
    """Names in Python."""
    results: tuple[str, ...]
    indices: int
    """The number of different indices of tensors and of flattened axes."""

    @property
    def params(self) -> tuple[Value, ...]:
        """Return the parameters that the results depend on."""
        return tuple(value for value in self.block.params if value in self.layout.axes_of)

    @property
    def is_large(self) -> bool:
        """Return whether element indices may exceed 32 bits."""
        return self.indices >= 1 << 30

    @property
    def itemsize(self) -> int:
        """Return the size in bytes of the widest element type in memory."""
        tensors = (*self.params, *self.block.returns)
        return max(NUMPY_DTYPES[value.type.dtype].itemsize for value in tensors)

    def own_name(self, word: str) -> str:
        """Return a variable name of the kernel derived from `word` that no value has."""
        return make_unused_name(word, (*self.names.values(), *self.results), "_")

    def make_side(
        self, word: str, axes: Sequence[int], size: int, length: int, block: str, slot: str = ""
    ) -> TileSide:
        """Return a side of the tile whose index variable is named after `word`."""
        mask = self.own_name("mask" if word == "at" else f"{word}_mask") if size % length else ""
        return TileSide(self.own_name(word), tuple(axes), size, length, block, slot, mask)

    def make_writer(self, *sides: TileSide) -> KernelWriter:
        letters = [self.own_name(letter) for letter in INDEX_NAMES]
        counting = IndexVariables(self.layout, letters)
        counter = "i64" if self.is_large else "i32"
        return KernelWriter(self.block, self.layout, self.names, sides, counting, counter)

    def program_id(self, axis: int) -> str:
        """Return the program id along an axis of the grid."""
        return f"tl.program_id({axis}){'.to(tl.int64)' if self.is_large else ''}"

    def pointers(self, values: Sequence[Value]) -> dict[str, str]:
        """Return the pointer parameters of loaded values, and their types."""
        return {f"{self.names[value]}_ptr": POINTER_TYPES[value.type.dtype] for value in values}

    def stores(self) -> list[tuple[Value, str, str]]:
        """Return each yielded value, its pointer parameter, and the pointer's type."""
        return [
            (value, f"{name}_ptr", POINTER_TYPES[value.type.dtype])
            for value, name in zip(self.block.returns, self.results, strict=True)
        ]

    def docstring(self) -> list[str]:
        """Return the group's computation as lines of IR."""
        printer = Printer(())
        names = {value: f"%{word}" for value, word in self.words.items()}
        lines = [self.op.why, ""] if self.op.why else []
        lines += [str(printer.op(op, names)) for op in self.block.ops]
        return [*lines, f"yield {', '.join(names[value] for value in self.block.returns)}"]

    def allocation(self, name: str, shape: Sequence[int], dtype: str) -> str:
        """Return the line of the launch that allocates a tensor."""
        operands = [self.names[value] for value in self.block.params]
        return allocation_text(
            name, shape, dtype, f"{operands[0]}.device" if operands else "device"
        )

    def kernel(
        self, texts: Sequence[str], launches: Sequence[KernelLaunch], scratch: Sequence[str] = ()
    ) -> KernelText:
        """Return the `Kernel` with all texts of the group."""
        results = zip(self.block.returns, self.results, strict=True)
        lines = [self.allocation(name, v.type.shape, v.type.dtype) for v, name in results]
        operands = [self.names[value] for value in self.block.params]
        return make_kernel(texts, launches, [*lines, *scratch], operands, self.results)


def make_group(op: Op, name: str) -> FusedGroup:
    """Return the `FusedGroup` of a `fused` operation, before its kernel is selected."""
    layout = layout_of(op.blocks[0])
    return name_group(op, name, layout, prod(layout.extents))


def name_group(op: Op, name: str, layout: GroupLayout, indices: int = 1) -> FusedGroup:
    """Return the `FusedGroup` of an operation with these axes; `indices` is the number of different
    indices of its flattened axes."""
    (block,) = op.blocks
    words = ir_names(op)
    own = tuple(f"{name}_{word}" for word in FUNCTION_WORDS)
    names = make_identifiers(words, (*RESERVED_NAMES, *helper_functions(), *own, name))
    results: list[str] = []
    taken = {*RESERVED_NAMES, *helper_functions(), *own, *names.values()}
    for inner, result in zip(block.returns, op.results, strict=True):
        word = names[inner]
        if inner in block.params or word in results:
            word = make_unused_name(identifier(result.name), taken, "_")
        taken.add(word)
        results.append(word)
    sizes = (value.type.size for value in (*block.params, *block.returns))
    return FusedGroup(op, block, name, layout, words, names, tuple(results), max([indices, *sizes]))
