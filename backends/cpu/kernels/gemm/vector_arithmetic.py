"""Vector operations of the kernels that do not pack their operands: load, multiply-add, store.

Half precision is widened on load. Complex numbers stay interleaved (real, imaginary) pairs as in
memory: products with the real part and products with the imaginary part are accumulated separately
and combined after the last step, so that no step permutes pairs.
"""

from typing import NamedTuple

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMValue,
    StackVariable,
    vector_type,
)
from shardir.backends.cpu.kernels.gemm.element_arithmetic import (
    Arithmetic,
    arithmetic_of,
    can_widen,
    narrow_to_storage,
    split_planes,
    widen,
)
from shardir.backends.cpu.kernels.gemm.microkernel import lane_mask, masked_load, masked_store
from shardir.ir.types import COMPLEX, NUMPY_DTYPES


class VectorArithmetic(NamedTuple):
    """Vectors of elements of type `operand`, accumulated for results of type `result`.

    A vector has `most` elements if `most` is nonzero, otherwise as many as registers of
    `vector_bytes` bytes hold.
    """

    operand: str
    result: str
    vector_bytes: int
    most: int = 0

    @property
    def name(self) -> str:
        return self.operand if self.operand == self.result else f"{self.operand}_{self.result}"

    @property
    def arith(self) -> Arithmetic:
        return arithmetic_of(self.result)

    @property
    def planes(self) -> int:
        """The number of accumulators per vector."""
        return self.arith.planes

    @property
    def lanes(self) -> int:
        """The number of elements of a vector."""
        return self.most or max(1, self.vector_bytes // self.arith.size)

    @property
    def item(self) -> int:
        """The size in bytes of an operand element in memory."""
        return NUMPY_DTYPES[self.operand].itemsize

    @property
    def result_item(self) -> int:
        """The size in bytes of a result element in memory."""
        return NUMPY_DTYPES[self.result].itemsize

    @property
    def type(self) -> str:
        """The LLVM type of a vector in registers."""
        return vector_type(self.arith.type, self.lanes * self.planes)

    def is_supported(self) -> bool:
        """Return whether operand elements can be widened to the arithmetic of the result."""
        pairs = self.operand in COMPLEX, self.result in COMPLEX
        return pairs[0] == pairs[1] and can_widen(self.operand, self.arith)

    def mask(self, f: LLVMFunction, count: LLVMValue) -> LLVMValue:
        """Return the mask of the first `count` elements."""
        return lane_mask(f, count, self.lanes, self.planes)

    def read(self, f: LLVMFunction, at: LLVMValue, mask: LLVMValue | None = None) -> LLVMValue:
        """Load a vector of operand elements; lanes outside the mask are zero."""
        type, part = (
            vector_type(MEMORY_TYPES[self.operand], self.lanes * self.planes),
            self.item // self.planes,
        )
        loaded = masked_load(f, at, mask, type, part) if mask else f.load(at, type, part)
        return widen(f, loaded, self.operand, self.arith)

    def broadcast_element(self, f: LLVMFunction, at: LLVMValue) -> list[LLVMValue]:
        """Broadcast one element: the real part and, for a complex element, the imaginary part."""
        part, count = self.item // self.planes, self.lanes * self.planes
        parts = [
            f.load(f.offset(at, p * part), MEMORY_TYPES[self.operand]) for p in range(self.planes)
        ]
        return [f.splat(widen(f, each, self.operand, self.arith), count) for each in parts]

    def new_accumulators(self, f: LLVMFunction) -> list[StackVariable]:
        """Return new accumulators, initialized to zero."""
        return [f.variable(self.type, 0) for _ in range(self.planes)]

    def add(
        self, f: LLVMFunction, sums: list[StackVariable], a: list[LLVMValue], b: list[LLVMValue]
    ) -> None:
        """Add the product of each plane to its accumulator."""
        for place, left, right in zip(sums, a, b, strict=True):
            place.set(self.arith.add_product(f, left, right, place.get()))

    def swap_complex_parts(self, f: LLVMFunction, x: LLVMValue) -> LLVMValue:
        """Swap the real and imaginary part of each pair."""
        return f.shuffle(x, x, [lane ^ 1 for lane in range(self.lanes * 2)])

    def combine_accumulators(self, f: LLVMFunction, sums: list[StackVariable]) -> LLVMValue:
        """Combine the accumulators of real and imaginary parts into one vector of results."""
        first, *more = (each.get() for each in sums)
        if not more:
            return first
        other = self.swap_complex_parts(f, more[0])
        plus, minus, count = first + other, first - other, self.lanes * 2
        return f.shuffle(minus, plus, [lane + lane % 2 * count for lane in range(count)])

    def write(
        self, f: LLVMFunction, value: LLVMValue, at: LLVMValue, mask: LLVMValue | None = None
    ) -> None:
        """Store a vector of results, or only the lanes of the mask."""
        new, part = narrow_to_storage(f, value, self.result), self.result_item // self.planes
        if mask:
            masked_store(f, new, at, mask, part)
        else:
            f.store(new, at, part)

    def planes_of(self, f: LLVMFunction, x: LLVMValue) -> list[LLVMValue]:
        """Return the real parts and the imaginary parts of pairs, or the elements themselves."""
        return split_planes(f, x) if self.planes == 2 else [x]
