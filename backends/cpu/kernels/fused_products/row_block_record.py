"""The record of the kernel of fused products: the parameters of its text, and its words by name."""

from collections.abc import Set
from dataclasses import dataclass

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.kernels.fused_products.amx_product import BLOCK_EXTENT
from shardir.backends.cpu.kernels.fused_products.score_passes import PassPlan, ScoreSteps
from shardir.backends.cpu.kernels.fused_products.visible_columns import VisibleColumns


@dataclass(frozen=True)
class RowBlockShape:
    """The parameters of the text of a kernel.

    `column_sums` states of each sum whether it reduces columns. `dtype` is the type of products and
    sums. `parallel` are the batch loops that tasks are numbered along; a task computes all indices
    of the others. `paired_products` and `paired_sums` state which score products and sums multiply
    pairs of bf16: of adjacent features, columns or rows. `has_tiles` states that they use the tile
    registers of AMX.
    """

    steps: ScoreSteps
    plan: PassPlan
    visible: VisibleColumns | None
    column_sums: tuple[bool, ...]
    row_matrix_dtypes: tuple[str, ...]
    sum_dtypes: tuple[str, ...]
    operand_dtypes: tuple[str, ...]
    batch: int
    parallel: tuple[int, ...]
    dtype: str
    rows_per_tile: int
    lanes: int
    paired_products: tuple[bool, ...]
    paired_sums: tuple[bool, ...]
    has_tiles: bool

    @property
    def paired_steps(self) -> Set[int]:
        """The steps whose scores are stored as pairs of columns, for column sums of pairs."""
        return self._steps_of_pairs(True)

    @property
    def narrow_steps(self) -> Set[int]:
        """The steps whose scores are stored as bf16, for row sums of pairs."""
        return self._steps_of_pairs(False)

    def _steps_of_pairs(self, of_columns: bool) -> Set[int]:
        sums = zip(self.steps.sums, self.paired_sums, self.column_sums, strict=True)
        return {
            step for step, is_paired, is_column in sums if is_paired and is_column == of_columns
        }

    @property
    def column_multiple(self) -> int:
        """The number of columns whose multiples begin chunks: that of a tile, or of a pair."""
        if self.has_tiles:
            return BLOCK_EXTENT
        return 2 if any(self.paired_sums) else 1


def word_names(shape: RowBlockShape) -> tuple[str, ...]:
    """Return the names of the words of a record, in order."""
    loops = ("row", "column", *(f"batch{i}" for i in range(shape.batch)))
    names = [
        "rows",
        "columns",
        "padded_columns",
        "block",
        "blocks",
        "parts",
        "scratch",
        "scratch_bytes",
    ]
    names += [f"extent{i}" for i in range(shape.batch)]
    for array in array_names(shape):
        names += [f"{array}.slot", f"{array}.offset", f"{array}.feature", f"{array}.features"]
        names += [f"{array}.{loop}" for loop in loops]
    names += [f"{place}.at" for place in scratch_names(shape)]
    names += [f"slot{i}.at" for i in range(shape.plan.slots)]
    return tuple(names)


def array_names(shape: RowBlockShape) -> list[str]:
    """Return the names of arrays: matrices of products and sums, operands, results."""
    names = []
    for i in range(shape.steps.products):
        names += [f"rows{i}", f"columns{i}"]
    for i, _ in enumerate(shape.column_sums):
        names += [f"matrix{i}", f"sum{i}"]
    names += [f"operand{i}" for i, _ in enumerate(shape.steps.operands)]
    return names + [f"result{i}" for i, _ in enumerate(shape.steps.returns)]


def scratch_names(shape: RowBlockShape) -> list[str]:
    """Return the names of the parts of scratch memory other than slots of scores."""
    names = [f"rows{i}" for i in range(shape.steps.products)]
    names += [f"matrix{i}" for i, is_column in enumerate(shape.column_sums) if not is_column]
    names += [f"sum{i}" for i, is_column in enumerate(shape.column_sums) if is_column]
    names += [f"operand{i}" for i, _ in enumerate(shape.steps.operands)]
    names += [f"reduced{i}" for i in shape.steps.body.reductions]
    return names + [f"result{i}" for i, _ in enumerate(shape.steps.returns)]


@dataclass
class RecordWords:
    """The words of a record by name."""

    function: LLVMFunction
    record: LLVMValue
    names: tuple[str, ...]

    def __getitem__(self, name: str) -> LLVMValue:
        at = 8 * self.names.index(name)
        return self.function.load(self.function.offset(self.record, at), "i64")
