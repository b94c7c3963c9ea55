"""Neighbouring numbers as the kernels that pack nothing read, multiply and write them.

Half precision is widened when it is read. Complex numbers stay the pairs that they are in memory:
products with the real and with the imaginary part of a number are summed apart, and come together
in the end, so that a step turns no pairs around.
"""

from typing import NamedTuple

from shardir.backends.cpu.native.contraction.elements import (
    Arithmetic,
    arithmetic,
    converts,
    narrowed,
    split,
    stored,
    widened,
)
from shardir.backends.cpu.native.contraction.tile import masked_load, masked_store, within
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value, Variable, vector
from shardir.types import COMPLEX, NUMPY_DTYPES


class Vectors(NamedTuple):
    """Vectors of `operand`s, multiplied and summed for results of type `result`.

    They have `most` numbers, or as many as registers of `vector_bytes` bytes hold.
    """

    operand: str
    result: str
    vector_bytes: int
    most: int = 0

    @property
    def name(self) -> str:
        return self.operand if self.operand == self.result else f"{self.operand}_{self.result}"

    @property
    def numbers(self) -> Arithmetic:
        return arithmetic(self.result)

    @property
    def planes(self) -> int:
        """How many sums a vector needs."""
        return self.numbers.planes

    @property
    def lanes(self) -> int:
        """How many numbers a vector has."""
        return self.most or max(1, self.vector_bytes // self.numbers.size)

    @property
    def item(self) -> int:
        """Bytes of an operand's number in memory."""
        return NUMPY_DTYPES[self.operand].itemsize

    @property
    def made(self) -> int:
        """Bytes of a result's number in memory."""
        return NUMPY_DTYPES[self.result].itemsize

    @property
    def type(self) -> str:
        """The type of a vector in registers."""
        return vector(self.numbers.type, self.lanes * self.planes)

    def possible(self) -> bool:
        """Whether operands can be widened so."""
        pairs = self.operand in COMPLEX, self.result in COMPLEX
        return pairs[0] == pairs[1] and converts(self.operand, self.numbers)

    def mask(self, f: Function, count: Value) -> Value:
        """The first `count` numbers."""
        return within(f, count, self.lanes, self.planes)

    def read(self, f: Function, at: Value, mask: Value | None = None) -> Value:
        """A vector of operands, or those of the mask and zeros."""
        type, part = (
            vector(stored(self.operand), self.lanes * self.planes),
            self.item // self.planes,
        )
        loaded = masked_load(f, at, mask, type, part) if mask else f.load(at, type, part)
        return widened(f, loaded, self.operand, self.numbers)

    def number(self, f: Function, at: Value) -> list[Value]:
        """A number in all lanes: the real part and, of a pair, the imaginary one."""
        part, count = self.item // self.planes, self.lanes * self.planes
        parts = [f.load(f.offset(at, p * part), stored(self.operand)) for p in range(self.planes)]
        return [f.splat(widened(f, each, self.operand, self.numbers), count) for each in parts]

    def sums(self, f: Function) -> list[Variable]:
        """No sums yet."""
        return [f.variable(self.type, 0) for _ in range(self.planes)]

    def add(self, f: Function, sums: list[Variable], a: list[Value], b: list[Value]) -> None:
        """Add products, of each plane to its sum."""
        for place, left, right in zip(sums, a, b, strict=True):
            place.set(self.numbers.add_product(f, host(), left, right, place.get()))

    def swapped(self, f: Function, x: Value) -> Value:
        """Real and imaginary parts in each other's place."""
        return f.shuffle(x, x, [lane ^ 1 for lane in range(self.lanes * 2)])

    def joined(self, f: Function, sums: list[Variable]) -> Value:
        """The sum of products of numbers' parts with vectors of pairs."""
        first, *more = (each.get() for each in sums)
        if not more:
            return first
        other = self.swapped(f, more[0])
        plus, minus, count = first + other, first - other, self.lanes * 2
        return f.shuffle(minus, plus, [lane + lane % 2 * count for lane in range(count)])

    def write(self, f: Function, value: Value, at: Value, mask: Value | None = None) -> None:
        """Store a vector of results, or the lanes of the mask."""
        new, part = narrowed(f, value, self.result), self.made // self.planes
        if mask:
            masked_store(f, new, at, mask, part)
        else:
            f.store(new, at, part)

    def planes_of(self, f: Function, x: Value) -> list[Value]:
        """The real parts of pairs and the imaginary ones, or the numbers themselves."""
        return split(f, x) if self.planes == 2 else [x]
