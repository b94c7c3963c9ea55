"""A block of rows in a kernel of fused products: addresses, scratch memory, and copies of rows."""

from collections.abc import Sequence

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
)
from shardir.backends.cpu.kernels.fused_products.row_block_record import (
    RecordWords,
    RowBlockShape,
    scratch_names,
    word_names,
)
from shardir.backends.cpu.kernels.math import registers

MatrixPlace = tuple[LLVMValue, LLVMValue, LLVMValue]
"""The address of a matrix, and its strides along outer and along inner elements."""


class RowBlock:
    """The rows that a kernel computes: `count` rows from `first` at some indices of the batch
    loops, in scratch memory for `size` rows."""

    def __init__(self, shape: RowBlockShape, f: LLVMFunction) -> None:
        self.shape, self.f = shape, f
        self.bases, record, self.task, worker = f.params
        self.words = w = RecordWords(f, record, word_names(shape))
        self.item = registers.itemsize(shape.dtype)
        self.rows, self.columns, self.size = w["rows"], w["columns"], w["block"]
        self.row_bytes = self.size * self.item
        """Bytes of the scores of one column."""
        scratch = f.load(f.offset(self.bases, w["scratch"], "ptr"), "ptr")
        scratch = f.offset(scratch, worker * w["scratch_bytes"])
        self.scratch = {name: f.offset(scratch, w[f"{name}.at"]) for name in scratch_names(shape)}
        self.slots = [f.offset(scratch, w[f"slot{i}.at"]) for i in range(shape.plan.slots)]
        self.indices: dict[int, LLVMValue] = {}
        """The current index of each batch loop."""
        self.copies: dict[tuple[str, str], str] = {}

    def begin(self, number: LLVMValue) -> None:
        """Set the rows to those of a block."""
        self.first = number * self.size
        self.count = self.f.umin(self.rows - self.first, self.size)

    def set_indices(self, number: LLVMValue, loops: Sequence[int]) -> None:
        """Set the indices of batch loops from a number along all of them."""
        for loop in reversed(loops):
            extent = self.words[f"extent{loop}"]
            rest = number // extent
            self.indices[loop] = number - rest * extent
            number = rest

    def address(self, array: str) -> LLVMValue:
        """Return the address of an array at the indices of the batch loops."""
        f, w = self.f, self.words
        base = f.load(f.offset(self.bases, w[f"{array}.slot"], "ptr"), "ptr")
        at = w[f"{array}.offset"]
        for loop in range(self.shape.batch):
            at = at + self.indices[loop] * w[f"{array}.batch{loop}"]
        return f.offset(base, at)

    def row_sum_address(self, number: int) -> LLVMValue:
        """Return the memory in which the task accumulates a row sum."""
        f, w = self.f, self.words
        name = f"sum{number}"
        base = f.load(f.offset(self.bases, w[f"{name}.slot"], "ptr"), "ptr")
        return f.offset(base, w[f"{name}.offset"] + self.task * self.row_sum_bytes(number))

    def row_sum_bytes(self, number: int) -> LLVMValue:
        """Return the bytes of a row sum of a task."""
        return self.words["padded_columns"] * self.words[f"sum{number}.column"]

    def score_address(self, slot: int, column: LLVMValue) -> LLVMValue:
        """Return the address of the scores of a column."""
        return self.f.offset(self.slots[slot], column * self.row_bytes)

    def pair_address(self, slot: int, column: LLVMValue) -> LLVMValue:
        """Return the address of the scores of a pair of columns, from the first of them."""
        return self.f.offset(self.slots[slot], column // 2 * self.row_bytes)

    def reduced_place(self, step: int, lane: LLVMValue) -> LLVMValue:
        """Return the address of the values of a reduction, from that of a row."""
        size = registers.itemsize(self.shape.steps.body.steps[step].dtype)
        return self.f.offset(self.scratch[f"reduced{step}"], lane * size)

    def operand_loops(self, number: int) -> frozenset[int]:
        """Return the loops of an operand."""
        return self.shape.steps.loops[self.shape.steps.products + number]

    def clear(self, address: LLVMValue, nbytes: LLVMValue) -> None:
        """Set memory to zero."""
        f = self.f
        f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
        f.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {nbytes}, i1 false)")

    def feature_row_bytes(self, features: LLVMValue) -> LLVMValue:
        """Return the bytes of a row of features that is padded to full vectors."""
        lanes = self.shape.lanes
        return (features + (lanes - 1)) // lanes * (lanes * self.item)

    def first_row_address(self, array: str) -> LLVMValue:
        """Return the address of the first row of the block in an array."""
        return self.f.offset(self.address(array), self.first * self.words[f"{array}.row"])

    def load_rows(
        self, array: str, source: str, target: str, to: MatrixPlace, features: LLVMValue
    ) -> None:
        """Copy rows to scratch memory; rows after the last one of the array repeat it."""
        w = self.words
        start = self.first_row_address(array), w[f"{array}.row"], w[f"{array}.feature"]
        self.copy(source, target, start, to, (self.size, features))

    def load_tile(
        self, array: str, dtype: str, start: LLVMValue, width: LLVMValue, to: MatrixPlace
    ) -> None:
        """Copy the rows of some columns to scratch memory, as `load_rows`."""
        w = self.words
        address = self.f.offset(self.first_row_address(array), start * w[f"{array}.column"])
        strides = w[f"{array}.row"], w[f"{array}.column"]
        self.copy(dtype, dtype, (address, *strides), to, (self.size, width))

    def store_rows(self, array: str, source: str, target: str, from_: MatrixPlace) -> None:
        """Copy rows from scratch memory."""
        w = self.words
        to = self.first_row_address(array), w[f"{array}.row"], w[f"{array}.feature"]
        self.copy(source, target, from_, to, (self.count, w[f"{array}.features"]))

    def copy(
        self,
        source: str,
        target: str,
        from_: MatrixPlace,
        to: MatrixPlace,
        extents: tuple[LLVMValue, LLVMValue],
    ) -> None:
        """Copy a matrix, and convert its elements; outer elements after `count` repeat the last."""
        if (source, target) not in self.copies:
            self.copies[source, target] = _emit_copy(self.f.module, source, target)
        self.f.call(self.copies[source, target], [*from_, *to, *extents, self.count])


def _emit_copy(module: LLVMModule, source: str, target: str) -> str:
    """Emit a function that copies a strided matrix and converts it between floats; return its
    name."""
    name = f"copy_{source}_{target}"
    params = ["ptr", "i64", "i64", "ptr", "i64", "i64", "i64", "i64", "i64"]
    f = add_outlined_function(module, name, params)
    start, outer_step, step, to, to_outer_step, to_step, outer, inner, limit = f.params
    with f.loop(0, outer) as i:
        last = limit - 1
        row = f.select(i.is_("slt", last), i, last)
        here = f.variable("ptr", f.offset(start, row * outer_step))
        there = f.variable("ptr", f.offset(to, i * to_outer_step))
        with f.loop(0, inner):
            value = registers.load_elements(f, here.get(), source, 1)
            registers.store_elements(f, value, there.get(), target)
            here.set(f.offset(here.get(), step))
            there.set(f.offset(there.get(), to_step))
    f.ret()
    return name
