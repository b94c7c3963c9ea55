"""The axes of a reduction: the vector axis, the parallel axes, and the reduced axes.

`VectorAxisArrays` has the addresses of a kernel's arrays at a vector, for reductions in rows and in
columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES
from shardir.backends.cpu.kernels.elementwise.evaluation import iota_vector
from shardir.backends.cpu.kernels.elementwise.loop_axes import (
    BROADCAST,
    CONTIGUOUS,
    STRIDED,
    LoopArray,
    LoopAxis,
    order_axes,
    vector_axis_cost,
    vector_layout,
)
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorPlace
from shardir.backends.cpu.kernels.math.registers import VectorValue, itemsize


@dataclass(frozen=True, slots=True)
class VectorAxisArrays:
    """The arrays along the vector axis: operands, `results`, and `counted` iota indices."""

    f: LLVMFunction
    kinds: Sequence[tuple[str, str]]
    results: int
    counted: int
    lanes: int
    strides: Sequence[LLVMValue]

    def place(self, number: int, at: Sequence[LLVMValue], i: LLVMValue | None) -> VectorPlace:
        """Return the place of array `number` at column `i`."""
        dtype, kind = self.kinds[number]
        address = at[number]
        if i is not None and kind != BROADCAST and address.type == "ptr":
            step = self.strides[number] if kind == STRIDED else itemsize(dtype)
            address = self.f.offset(address, i * step)
        return VectorPlace(address, dtype, kind, self.strides[number] if kind == STRIDED else None)

    def result(self, number: int, at: Sequence[LLVMValue], i: LLVMValue | None) -> VectorPlace:
        """Return the place of result `number` at column `i`."""
        return self.place(len(self.kinds) - self.counted - self.results + number, at, i)

    def prefetch(self, at: Sequence[LLVMValue], i: LLVMValue, ahead: int = 0) -> None:
        """Prefetch the operand vectors at column `i`, or `ahead` bytes further on."""
        for number in range(len(self.kinds) - self.counted - self.results):
            dtype, kind = self.kinds[number]
            if kind == CONTIGUOUS:
                address = self.place(number, at, i).address
                for line in range(0, self.lanes * itemsize(dtype), CACHE_LINE_BYTES):
                    prefetch(self.f, self.f.offset(address, ahead + line))

    def index(self, number: int, at: Sequence[LLVMValue], i: LLVMValue | None) -> VectorValue:
        """Return the values of iota index `number` for the vector at column `i`."""
        where = len(self.kinds) - self.counted + number
        begin, kind = at[where], self.kinds[where][1]
        if i is not None and kind != BROADCAST:
            begin = begin + (i * self.strides[where] if kind == STRIDED else i)
        return iota_vector(self.f, self.place(where, at, None), begin, self.lanes)


class ReductionLayout(NamedTuple):
    """The axes of a reduction by role; `column` is the vector axis."""

    arrays: tuple[LoopArray, ...]
    counted: int
    column: LoopAxis
    parallel: tuple[LoopAxis, ...]
    reduced: tuple[LoopAxis, ...]
    lanes: int

    @property
    def size(self) -> int:
        return prod(axis.extent for axis in (self.column, *self.parallel, *self.reduced))

    @property
    def kinds(self) -> tuple[tuple[str, str], ...]:
        pairs = zip(self.arrays, self.column.strides, strict=True)
        return tuple((a.dtype, vector_layout(a, stride)) for a, stride in pairs)

    @property
    def has_full_vectors(self) -> bool:
        return self.column.extent % self.lanes == 0


def choose_layout(
    axes: Sequence[LoopAxis], arrays: Sequence[LoopArray], counted: int, lanes: int
) -> ReductionLayout:
    """Choose the vector axis of a loop nest and classify the others."""
    axes = order_axes(axes, arrays)
    column = min(axes, key=lambda axis: vector_axis_cost(arrays, axis, lanes))
    others = [axis for axis in axes if axis is not column]
    return ReductionLayout(
        tuple(arrays),
        counted,
        column,
        tuple(axis for axis in others if not axis.reduced),
        tuple(axis for axis in others if axis.reduced),
        lanes,
    )
