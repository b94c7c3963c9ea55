"""The product of two matrices that are in a cache, which kernels of fused products call.

Each element of a few rows of the left matrix is multiplied by a vector of the right matrix, and the
sums stay in registers (K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix
Multiplication, 2008). The right matrix is contiguous along its columns; the left one has any
strides.

An element may also be a pair of bf16 of adjacent steps, whose products one instruction adds.
"""

from collections.abc import Sequence

from shardir.backends.cpu.codegen.dot_product_instructions import DotProductInstruction
from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.math.registers import TYPE_BYTES

STEPS_PER_ITERATION = 2
"""Steps of a sum that are unrolled."""


def tile_shape(dtype: str, machine: HostDescription) -> tuple[int, int]:
    """Return the rows and columns of a tile whose sums fit the registers."""
    item = TYPE_BYTES[MEMORY_TYPES[dtype]]
    vectors = 4 if machine.vector_bytes == 16 else 2
    rows = 12 if machine.vector_bytes == 64 else 6
    if machine.vector_bytes == 16 and not machine.has_many_registers:
        vectors, rows = 2, 5
    return rows, vectors * machine.vector_bytes // item


class TileProduct:
    """The function `left @ right` of a module, for `columns` columns; `pairs` is the instruction if
    elements are pairs."""

    def __init__(
        self,
        module: LLVMModule,
        dtype: str,
        rows: int,
        columns: int,
        pairs: DotProductInstruction | None = None,
    ) -> None:
        self.dtype, self.rows, self.pairs = MEMORY_TYPES[dtype], rows, pairs
        self.item = TYPE_BYTES[self.dtype]
        self.lanes = module.machine.lanes(self.item)
        self.vectors = columns // self.lanes
        self.name = f"tile_product_{columns}_{pairs.name if pairs else dtype}"
        self.vector = vector_type(self.dtype, self.lanes)
        params = ["ptr", "i64", "i64", "ptr", "i64", "i64", "ptr", "i64", "i64", "i64"]
        f = add_outlined_function(module, self.name, params)
        self.emit(f)

    def call(
        self,
        f: LLVMFunction,
        left: tuple[LLVMValue, LLVMValue | int, LLVMValue | int],
        right: tuple[LLVMValue, LLVMValue | int],
        result: tuple[LLVMValue, LLVMValue | int],
        rows: LLVMValue,
        steps: LLVMValue,
        adds: bool,
    ) -> None:
        """Emit a call; `left` has strides of rows and of steps, `right` of steps, `result` of rows.

        With `adds` the product is added to the result.
        """
        given: Sequence[LLVMValue | int] = (*left, *right, steps, *result, rows, int(adds))
        f.call(self.name, [f.value(each, "i64") for each in given])

    def emit(self, f: LLVMFunction) -> None:
        left, left_row, _, _, _, _, result, result_row, rows, _ = f.params
        blocks = (rows + (self.rows - 1)) // self.rows
        each = rows // blocks
        longer = rows - each * blocks
        left_at, result_at = f.variable("ptr", left), f.variable("ptr", result)
        with f.loop(0, blocks) as block:
            count = each + block.is_("slt", longer).to("i64", "zext")
            for number in range(1, self.rows + 1):
                with f.when(count.is_("eq", number)):
                    self.emit_rows(f, left_at.get(), result_at.get(), number)
            left_at.set(f.offset(left_at.get(), count * left_row))
            result_at.set(f.offset(result_at.get(), count * result_row))
        f.ret()

    def emit_rows(self, f: LLVMFunction, left: LLVMValue, result: LLVMValue, count: int) -> None:
        """Emit the product of `count` rows."""
        _, left_row, left_step, right, right_step, steps, _, result_row, _, adds = f.params
        sums = [
            [f.variable(self.vector, f.value(0.0, self.vector)) for _ in range(self.vectors)]
            for _ in range(count)
        ]
        places = [left_row * number for number in range(count)]
        left_at, right_at = f.variable("ptr", left), f.variable("ptr", right)

        def step() -> None:
            here, vectors = left_at.get(), self.load(f, right_at.get())
            for place, totals in zip(places, sums, strict=True):
                element = f.load(f.offset(here, place), self.dtype, 2 if self.pairs else self.item)
                many = f.splat(element, self.lanes)
                for vector, total in zip(vectors, totals, strict=True):
                    total.set(self.add_product(f, many, vector, total.get()))
            left_at.set(f.offset(here, left_step))
            right_at.set(f.offset(right_at.get(), right_step))

        whole = steps // STEPS_PER_ITERATION
        with f.loop(0, whole):
            for _ in range(STEPS_PER_ITERATION):
                step()
        with f.loop(whole * STEPS_PER_ITERATION, steps):
            step()
        rows = [f.offset(result, result_row * number) for number in range(count)]
        with f.when(adds.is_("ne", 0)):
            for row, totals in zip(rows, sums, strict=True):
                for before, total in zip(self.load(f, row), totals, strict=True):
                    total.set(before + total.get())
        for row, totals in zip(rows, sums, strict=True):
            for number, total in enumerate(totals):
                f.store(total.get(), f.offset(row, number * self.lanes * self.item), 4)

    def load(self, f: LLVMFunction, row: LLVMValue) -> list[LLVMValue]:
        """Load the vectors of a row."""
        step = self.lanes * self.item
        return [f.load(f.offset(row, i * step), self.vector, 4) for i in range(self.vectors)]

    def add_product(
        self, f: LLVMFunction, left: LLVMValue, right: LLVMValue, total: LLVMValue
    ) -> LLVMValue:
        """Return `total + left * right`."""
        if self.pairs is not None:
            return self.pairs.emit(f, left, right, total)
        return f.fma(left, right, total)
