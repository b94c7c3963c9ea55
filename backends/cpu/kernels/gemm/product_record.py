"""The parameter record of a product: the host writes it, the kernel reads its fields by name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, StackVariable

RECORD_FIELDS = (
    "packing",  # 1 if this phase packs the right operand for a later phase
    "lhs_slot", "lhs_offset", "rhs_slot", "rhs_offset", "out_slot", "out_offset",
    # the packed right operand; slot 0: each task packs its own part
    "packed_slot", "packed_offset",
    "staged",  # 1 if results are accumulated in scratch memory and stored at the end
    "rows", "columns", "inner",
    # K steps, rows and columns of a block that are packed at a time
    "steps", "packed_rows", "packed_columns",
    "panel_columns",  # columns, padded to whole panels
    "products", "block_products", "block_rows", "block_columns", "row_blocks", "column_blocks",
)  # fmt: skip
RECORD_LISTS = (
    "batch",  # (extent, lhs, rhs, out, packed)
    # `rows_staged`: strides in the result, or in the staging buffer
    "rows_lhs", "rows_out", "rows_staged",
    "columns_rhs", "columns_out", "inner_lhs", "inner_rhs",
    "positions_0", "positions_1", "positions_2",  # of lines of patches, along checked dimensions
    "bounds",  # (start, size) of each checked dimension, then (run dimension, pitch)
    "image_layout",  # layout of patches: see `conv.nchw_layout`
)  # fmt: skip
"""Loops, innermost first: (extent, stride) unless stated otherwise."""

_NAMES = (*RECORD_FIELDS, *(f"{name}_{what}" for name in RECORD_LISTS for what in ("at", "count")))
_FIELD_INDEX = {name: i for i, name in enumerate(_NAMES)}


def encode_record(
    fields: dict[str, int], lists: dict[str, Sequence[tuple[int, ...]]]
) -> tuple[int, ...]:
    """Return the record as words; every field and every list must be given."""
    head = [0] * len(_NAMES)
    tail: list[int] = []
    for name in RECORD_FIELDS:
        head[_FIELD_INDEX[name]] = fields[name]
    for name in RECORD_LISTS:
        head[_FIELD_INDEX[f"{name}_at"]] = len(_NAMES) + len(tail)
        head[_FIELD_INDEX[f"{name}_count"]] = len(lists[name])
        for entry in lists[name]:
            tail += entry
    return (*head, *tail)


@final
class RecordReader:
    """Emits loads of the fields of a record in a kernel."""

    def __init__(self, f: LLVMFunction, record: LLVMValue) -> None:
        self._f, self._record = f, record

    def __getitem__(self, name: str) -> LLVMValue:
        """Return the value of a field."""
        return self._f.load(self._f.offset(self._record, 8 * _FIELD_INDEX[name]), "i64")

    def list_header(self, name: str) -> LLVMValue:
        """Return the address of the two words that hold the start and the length of a list."""
        return self._f.offset(self._record, 8 * _FIELD_INDEX[f"{name}_at"])

    def loops(self, name: str) -> tuple[LLVMValue, LLVMValue]:
        """Return the address of a list and its number of entries."""
        return load_list(self._f, self._record, self.list_header(name))

    def address(self, bases: LLVMValue, name: str) -> LLVMValue:
        """Return the start address of an operand."""
        f = self._f
        base = f.load(f.offset(bases, self[f"{name}_slot"], "ptr"), "ptr")
        return f.offset(base, self[f"{name}_offset"])


def load_list(f: LLVMFunction, record: LLVMValue, list: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return the address of a list of a record and its number of entries."""
    start, number = (f.load(f.offset(list, 8 * i), "i64") for i in range(2))
    return f.offset(record, start, "i64"), number


@final
class OutputBlock:
    """The block of the result that a task computes: rows, columns and products of the batch."""

    def __init__(self, f: LLVMFunction, record: RecordReader, task: LLVMValue) -> None:
        self._f, self._record = f, record
        column_blocks, row_blocks = record["column_blocks"], record["row_blocks"]
        rest = task // column_blocks
        self.first_column = task % column_blocks * record["block_columns"]
        self.first_row = rest % row_blocks * record["block_rows"]
        self.rows = f.umin(record["rows"] - self.first_row, record["block_rows"])
        self.columns = f.umin(record["columns"] - self.first_column, record["block_columns"])
        self._first = rest // row_blocks * record["block_products"]
        self._last = f.umin(self._first + record["block_products"], record["products"])

    @contextmanager
    def products(
        self, bases: LLVMValue
    ) -> Iterator[tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]]:
        """Emit the body once in a loop over the products of the block; yield the start addresses of
        the operands, the result and the packed right operand."""
        f, r = self._f, self._record
        starts = [r.address(bases, name) for name in ("lhs", "rhs", "out", "packed")]
        loops, number = r.loops("batch")
        extent = f.select(number.is_("ne", 0), f.load(loops, "i64"), 1)
        strides = [f.load(f.offset(loops, 8 + 8 * i), "i64") for i in range(4)]
        done = f.variable("i64", self._first)
        with f.while_(lambda: done.get().is_("slt", self._last)):
            # Iterate over runs of the innermost loop, since divisions are slow.
            now = done.get()
            inside, rest = now % extent, f.variable("i64", now // extent)
            places = [
                f.variable("ptr", f.offset(start, inside * stride))
                for start, stride in zip(starts, strides, strict=True)
            ]
            with f.loop(1, number) as level:
                entry = f.offset(loops, level * 40)
                size, index = f.load(entry, "i64"), rest.get()
                rest.set(index // size)
                for i, place in enumerate(places):
                    distance = index % size * f.load(f.offset(entry, 8 + 8 * i), "i64")
                    place.set(f.offset(place.get(), distance))
            end = f.umin(now + (extent - inside), self._last)
            with f.loop(now, end):
                lhs, rhs, out, packed = (place.get() for place in places)
                yield lhs, rhs, out, packed
                for place, stride in zip(places, strides, strict=True):
                    place.set(f.offset(place.get(), stride))
            done.set(end)


@contextmanager
def emit_while_fits(
    f: LLVMFunction, place: StackVariable, size: int, stop: LLVMValue
) -> Iterator[LLVMValue]:
    """Emit the body in a loop that runs while `size` more fit between the variable and `stop`."""
    with f.while_(lambda: (place.get() + size).is_("sle", stop)):
        now = place.get()
        yield now
        place.set(now + size)
