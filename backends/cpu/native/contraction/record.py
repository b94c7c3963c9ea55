"""The record of a product: what the host writes and the kernel reads, by name."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import final

from shardir.backends.cpu.native.llvm.text import Function, Value, Variable

FIELDS = (
    "packing",  # whether this phase packs the right operand for a later one
    "lhs_slot", "lhs_offset", "rhs_slot", "rhs_offset", "out_slot", "out_offset",
    "packed_slot",  # where the right operand lies packed; 0: every task packs its part
    "staged",  # whether results are summed in scratch memory, and stored at the end
    "rows", "columns", "inner",
    "steps", "held_rows", "together",  # of the sum, of a block's rows and columns: packed at a time
    "panel_columns",  # columns with the missing ones of the last panel
    "products", "block_products", "block_rows", "block_columns", "row_blocks", "column_blocks",
)  # fmt: skip
LISTS = (
    "batch",  # of (extent, lhs, rhs, out, packed)
    "rows_lhs", "rows_out", "rows_made",  # made: in the result, or where it is staged
    "columns_rhs", "columns_out", "inner_lhs", "inner_rhs",
    "positions_0", "positions_1", "positions_2",  # of lines of patches, along checked dimensions
    "bounds",  # of (start, size) of each of these, then (walked, pace)
    "laid",  # how patches are laid out: see `planes`
)  # fmt: skip
"""Loops, innermost first; where not said otherwise, of (extent, stride)."""

_NAMES = (*FIELDS, *(f"{name}_{what}" for name in LISTS for what in ("at", "count")))
_PLACE = {name: i for i, name in enumerate(_NAMES)}


def written(fields: dict[str, int], lists: dict[str, Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """The record; every field and every list must be given."""
    head = [0] * len(_NAMES)
    tail: list[int] = []
    for name in FIELDS:
        head[_PLACE[name]] = fields[name]
    for name in LISTS:
        head[_PLACE[f"{name}_at"]] = len(_NAMES) + len(tail)
        head[_PLACE[f"{name}_count"]] = len(lists[name])
        for entry in lists[name]:
            tail += entry
    return (*head, *tail)


@final
class Reader:
    """Reads fields of a record in a kernel."""

    def __init__(self, f: Function, record: Value) -> None:
        self._f, self._record = f, record

    def __getitem__(self, name: str) -> Value:
        """A field."""
        return self._f.load(self._f.offset(self._record, 8 * _PLACE[name]), "i64")

    def list(self, name: str) -> Value:
        """Where the record says how a list lies."""
        return self._f.offset(self._record, 8 * _PLACE[f"{name}_at"])

    def loops(self, name: str) -> tuple[Value, Value]:
        """Where a list begins, and how many entries it has."""
        return loops_of(self._f, self._record, self.list(name))

    def address(self, bases: Value, name: str) -> Value:
        """Where an operand begins."""
        f = self._f
        base = f.load(f.offset(bases, self[f"{name}_slot"], "ptr"), "ptr")
        return f.offset(base, self[f"{name}_offset"])


def loops_of(f: Function, record: Value, list: Value) -> tuple[Value, Value]:
    """Where a list of a record begins, and how many entries it has."""
    start, number = (f.load(f.offset(list, 8 * i), "i64") for i in range(2))
    return f.offset(record, start, "i64"), number


@final
class Block:
    """What a task makes: rows and columns, of some of the products of a batch."""

    def __init__(self, f: Function, record: Reader, task: Value) -> None:
        self._f, self._record = f, record
        column_blocks, row_blocks = record["column_blocks"], record["row_blocks"]
        rest = task // column_blocks
        self.first_column = task % column_blocks * record["block_columns"]
        self.first_row = rest % row_blocks * record["block_rows"]
        self.rows = f.least(record["rows"] - self.first_row, record["block_rows"])
        self.columns = f.least(record["columns"] - self.first_column, record["block_columns"])
        self._first = rest // row_blocks * record["block_products"]
        self._last = f.least(self._first + record["block_products"], record["products"])

    @contextmanager
    def products(self, bases: Value) -> Iterator[tuple[Value, Value, Value, Value]]:
        """Do what follows for each product: where its operands, its result and its packed right
        operand begin."""
        f, r = self._f, self._record
        starts = [r.address(bases, name) for name in ("lhs", "rhs", "out")]
        starts.append(f.load(f.offset(bases, r["packed_slot"], "ptr"), "ptr"))
        loops, number = r.loops("batch")
        extent = f.select(number.is_("ne", 0), f.load(loops, "i64"), 1)
        strides = [f.load(f.offset(loops, 8 + 8 * i), "i64") for i in range(4)]
        done = f.variable("i64", self._first)
        with f.while_(lambda: done.get().is_("slt", self._last)):
            # A run of the innermost loop at a time, since divisions are slow.
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
                    far = index % size * f.load(f.offset(entry, 8 + 8 * i), "i64")
                    place.set(f.offset(place.get(), far))
            end = f.least(now + (extent - inside), self._last)
            with f.loop(now, end):
                lhs, rhs, out, packed = (place.get() for place in places)
                yield lhs, rhs, out, packed
                for place, stride in zip(places, strides, strict=True):
                    place.set(f.offset(place.get(), stride))
            done.set(end)


@contextmanager
def fitting_in(f: Function, place: Variable, size: int, stop: Value) -> Iterator[Value]:
    """Do what follows as long as `size` more fit between the place and `stop`, and move on."""
    with f.while_(lambda: (place.get() + size).is_("sle", stop)):
        now = place.get()
        yield now
        place.set(now + size)
