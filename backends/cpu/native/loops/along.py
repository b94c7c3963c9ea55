"""The places of a kernel's arrays at a vector, for reductions in rows and in columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.backends.cpu.native.llvm.hints import prefetch
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.loops.access import Place
from shardir.backends.cpu.native.loops.axes import GENERAL, SPLAT, UNIT
from shardir.backends.cpu.native.loops.evaluation import indices
from shardir.backends.cpu.native.vector.registers import Held, itemsize

LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True, slots=True)
class Along:
    """The arrays along the vector axis: operands, `results`, and `counted` iota indices."""

    f: Function
    kinds: Sequence[tuple[str, str]]
    results: int
    counted: int
    lanes: int
    strides: Sequence[Value]

    def place(self, number: int, at: Sequence[Value], i: Value | None) -> Place:
        """Return the place of array `number` at column `i`."""
        dtype, kind = self.kinds[number]
        address = at[number]
        if i is not None and kind != SPLAT and address.type == "ptr":
            step = self.strides[number] if kind == GENERAL else itemsize(dtype)
            address = self.f.offset(address, i * step)
        return Place(address, dtype, kind, self.strides[number] if kind == GENERAL else None)

    def result(self, number: int, at: Sequence[Value], i: Value | None) -> Place:
        """Return the place of result `number` at column `i`."""
        return self.place(len(self.kinds) - self.counted - self.results + number, at, i)

    def ask(self, at: Sequence[Value], i: Value) -> None:
        """Prefetch the operand vectors at column `i`."""
        for number in range(len(self.kinds) - self.counted - self.results):
            dtype, kind = self.kinds[number]
            if kind == UNIT:
                address = self.place(number, at, i).address
                for line in range(0, self.lanes * itemsize(dtype), LINE):
                    prefetch(self.f, self.f.offset(address, line))

    def index(self, number: int, at: Sequence[Value], i: Value | None) -> Held:
        """Return the values of iota index `number` for the vector at column `i`."""
        where = len(self.kinds) - self.counted + number
        begin, kind = at[where], self.kinds[where][1]
        if i is not None and kind != SPLAT:
            begin = begin + (i * self.strides[where] if kind == GENERAL else i)
        return indices(self.f, self.place(where, at, None), begin, self.lanes)
