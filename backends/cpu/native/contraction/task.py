"""The state of a task of the packed GEMM kernel: scratch memory, offset tables, packed operands."""

from shardir.backends.cpu.native.contraction.checked import Checked
from shardir.backends.cpu.native.contraction.copied_lines import LAY
from shardir.backends.cpu.native.contraction.elements import Arithmetic
from shardir.backends.cpu.native.contraction.packing import SEGMENT, panels_of
from shardir.backends.cpu.native.contraction.record import Block, Reader
from shardir.backends.cpu.native.contraction.sizes import LEFT, LINES, RIGHT, STAGE, Sizes
from shardir.backends.cpu.native.contraction.soon import Soon
from shardir.backends.cpu.native.contraction.tables import OFFSETS
from shardir.backends.cpu.native.contraction.tile import LINE
from shardir.backends.cpu.native.data import SCRATCH_BYTES
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.types import NUMPY_DTYPES

TABLES = {"lhs": "rows_lhs", "rhs": "columns_rhs"}
"""The offset table of the lines of each operand."""


class Task:
    """A task in the function `f`; the operands have the element types `dtypes`."""

    def __init__(
        self, f: Function, dtypes: dict[str, str], sizes: Sizes, arith: Arithmetic,
        checked: Checked,
    ) -> None:  # fmt: skip
        self.f, self.sizes, self.arith, self.checked = f, sizes, arith, checked
        self.dtypes = dtypes
        self.bases, self.words, task, worker = f.params
        self.record = Reader(f, self.words)
        self.block = Block(f, self.record, task)
        at = f.offset(f.load(self.bases, "ptr"), worker * SCRATCH_BYTES)
        table = 8 * LINES
        segments = (SEGMENT + 8 * checked.dims) * sizes.steps
        self.places = {}
        for name, size in (
            ("rows_lhs", table), ("rows_staged", table), ("rows_out", table),
            ("columns_rhs", table), ("columns_out", table), ("lhs_segments", segments),
            ("rhs_segments", segments), ("lhs", LEFT + 4096), ("rhs", RIGHT), ("stage", STAGE),
            ("positions", table * checked.dims),
        ):  # fmt: skip
            self.places[name] = at
            at = f.offset(at, size)

    def lines(self, name: str, first: Value, count: Value) -> Value:
        """Fill the table of line offsets; for patches, also the tables of their positions."""
        f, lists = self.f, {name: self.places[name]}
        for d in range(self.checked.of(name.rpartition("_")[2])):
            lists[f"positions_{d}"] = f.offset(self.places["positions"], d * 8 * LINES)
        for each, table in lists.items():
            f.call(OFFSETS, [self.words, self.record.list(each), table, first, count])
        return self.places[name]

    def packed(
        self, side: str, base: Value, skipped: Value, lines: Value, first: Value, steps: Value,
        to: Value,
    ) -> Value:  # fmt: skip
        """Pack `lines` lines of an operand after the first `skipped` lines, for `steps` K steps
        from `first`, or record their addresses if the operand is read in place. Return the number
        of segments."""
        f, dims, tile = self.f, self.checked.of(side), self.sizes.tile
        if self.checked.pace and side == "rhs":
            words, table = self.record.loops("image_layout")[0], self.places["rhs_segments"]
            column = self.block.first_column + skipped
            f.call(LAY, [to, base, words, table, first, steps, column, lines])
            return f.value(0, "i64")
        name, segments = f"inner_{side}", self.places[f"{side}_segments"]
        args = [self.words, self.record.list(name), segments, first, steps]
        parts = f.call(f"segments_{dims}", args, "i64")
        table = f.offset(self.places[TABLES[side]], skipped, "i64")
        args = [to, base, table, lines, segments, parts]
        straight = self.checked.straight and side == self.checked.side
        if not straight:
            args += [steps, self.stride(name)]
        if self.checked.gathers(side):
            args.append(f.offset(self.places["positions"], skipped, "i64"))
            args.append(self.record.loops("bounds")[0])
            f.call(f"starts_{side}" if straight else f"pack_{side}", args)
            return parts
        dtype, high = self.dtypes[side], tile.height if side == "lhs" else tile.columns
        several = panels_of(high * NUMPY_DTYPES[dtype].itemsize)
        args += [
            f.value(high, "i64"),
            f.value(several, "i64"),
            Value(f"@pack_contiguous_{side}", "ptr", f),
        ]
        f.call(f"pack_{dtype}", args)
        return parts

    def find(self, stream: Soon, side: str, base: Value, line: Value, step_count: Value) -> None:
        """Point the prefetch stream at line `line` of an operand, `step_count` steps after the
        steps that were packed last."""
        f, item = self.f, NUMPY_DTYPES[self.dtypes[side]].itemsize
        start = f.load(f.offset(self.places[TABLES[side]], line, "i64"), "i64")
        first = f.load(self.places[f"{side}_segments"], "i64")
        step = self.stride(f"inner_{side}")
        at = f.offset(f.offset(base, start), first + step_count * step)
        stream.lying(at, step, self.stride(TABLES[side]), item, self.arith.size)

    def stride(self, name: str) -> Value:
        """Return the stride in bytes of the innermost loop of a list."""
        return self.f.load(self.f.offset(self.record.loops(name)[0], 8), "i64")

    def asks_of(self, columns: Value) -> Value:
        """Return how many tiles it takes to prefetch `columns` packed columns."""
        return columns * self.arith.size // LINE
