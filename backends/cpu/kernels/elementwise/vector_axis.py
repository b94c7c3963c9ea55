"""The places of a kernel's arrays at a vector, for reductions in rows and in columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import prefetch
from shardir.backends.cpu.kernels.elementwise.evaluation import iota_vector
from shardir.backends.cpu.kernels.elementwise.loop_axes import BROADCAST, CONTIGUOUS, STRIDED
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorPlace
from shardir.backends.cpu.kernels.math.registers import VectorValue, itemsize

CACHE_LINE_BYTES = 64
"""Bytes of a cache line."""


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

    def prefetch(self, at: Sequence[LLVMValue], i: LLVMValue) -> None:
        """Prefetch the operand vectors at column `i`."""
        for number in range(len(self.kinds) - self.counted - self.results):
            dtype, kind = self.kinds[number]
            if kind == CONTIGUOUS:
                address = self.place(number, at, i).address
                for line in range(0, self.lanes * itemsize(dtype), CACHE_LINE_BYTES):
                    prefetch(self.f, self.f.offset(address, line))

    def index(self, number: int, at: Sequence[LLVMValue], i: LLVMValue | None) -> VectorValue:
        """Return the values of iota index `number` for the vector at column `i`."""
        where = len(self.kinds) - self.counted + number
        begin, kind = at[where], self.kinds[where][1]
        if i is not None and kind != BROADCAST:
            begin = begin + (i * self.strides[where] if kind == STRIDED else i)
        return iota_vector(self.f, self.place(where, at, None), begin, self.lanes)
