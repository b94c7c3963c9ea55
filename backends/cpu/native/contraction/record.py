"""The record of a product: what the host writes and the kernel reads, by name."""

from collections.abc import Sequence
from typing import final

from shardir.backends.cpu.native.llvm.text import Function, Value

FIELDS = (
    "packing",  # whether this phase packs the right operand for a later one
    "lhs_slot", "lhs_offset", "rhs_slot", "rhs_offset", "out_slot", "out_offset",
    "packed_slot",  # where the right operand lies packed; 0: every task packs its part
    "staged",  # whether results are summed in scratch memory, and stored at the end
    "rows", "columns", "inner",
    "block_rows", "block_columns", "row_blocks", "column_blocks",
)  # fmt: skip
LISTS = (
    "batch",  # of (extent, lhs, rhs, out, packed)
    "rows_lhs", "rows_out", "columns_rhs", "columns_out", "inner_lhs", "inner_rhs",
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

    def loops(self, name: str) -> tuple[Value, Value]:
        """Where a list begins, and how many entries it has."""
        return self._f.offset(self._record, self[f"{name}_at"], "i64"), self[f"{name}_count"]

    def address(self, bases: Value, name: str) -> Value:
        """Where an operand begins."""
        f = self._f
        base = f.load(f.offset(bases, self[f"{name}_slot"], "ptr"), "ptr")
        return f.offset(base, self[f"{name}_offset"])
