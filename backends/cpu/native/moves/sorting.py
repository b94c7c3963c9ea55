"""Sorting many lines at once: a lane of a vector for each, so that nothing is ever shuffled.

Lines are laid side by side in scratch memory, as integers in the order of their elements; a network
of comparisons (`network`) sorts the rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from shardir.backends.cpu.native.data import (
    SCRATCH_BYTES,
    Context,
    Phase,
    Rule,
    View,
    packed,
)
from shardir.backends.cpu.native.llvm.text import (
    FLOATS,
    Function,
    Value,
    lanes as lanes_of,
    vector,
)
from shardir.backends.cpu.native.moves import numbers, tiles
from shardir.backends.cpu.native.moves.casting import fits
from shardir.backends.cpu.native.moves.copying import copy_phases
from shardir.backends.cpu.native.moves.grid import Block, Form, grid_kernel, grid_of
from shardir.backends.cpu.native.moves.lookup import gather_phase
from shardir.backends.cpu.native.moves.loops import nest
from shardir.backends.cpu.native.moves.network import RUN, sort_rows
from shardir.backends.cpu.native.moves.views import part
from shardir.backends.cpu.native.schedule.views import order_of
from shardir.ir import Op
from shardir.types import TensorType

FEW = 4
"""Fewer lines than these leave too many lanes empty."""


def sort_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """By one operand of real numbers, in lines that scratch memory holds."""
    x, dim = operands[0], op.attrs["dim"]
    if op.attrs.get("keys", 1) > 1 or x.dtype in (*numbers.PARTS, "key"):
        return None
    if x.size == 0:
        return []
    if len(operands) == 1:
        return _lines_phases(x, results[0], dim, "", context)
    order = _places(x, context)
    phases = _lines_phases(x, order, dim, "places", context)
    if phases is None:
        return None
    taken = [
        _taken(source, order, target, dim, context)
        for source, target in zip(operands, results, strict=True)
    ]
    return [*phases, *taken]


def top_k_rule(
    op: Op, operands: Sequence[View], results: Sequence[View], context: Context
) -> list[Phase] | None:
    """All places in falling order of their elements, of which the first are taken."""
    (x,), (values, indices) = operands, results
    if values.size == 0:
        return []
    dim = len(x.shape) - 1
    order = _places(x, context)
    phases = _lines_phases(x, order, dim, "largest", context)
    if phases is None:
        return None
    first = part(order, dim, 0, values.shape[dim])
    still = replace(x, shape=values.shape)
    return [
        *phases,
        _taken(still, first, values, dim, context, x.shape[dim]),
        *copy_phases(first, indices, context),
    ]


def _places(x: View, context: Context) -> View:
    """A temporary for the place of each element in its line."""
    type = TensorType(x.shape, "i32")
    slot = context.temporary(type.nbytes)
    return View(slot, 0, type.shape, packed(type, order_of(x)), type.dtype)


def _taken(
    source: View, order: View, target: View, dim: int, context: Context, extent: int = 0
) -> Phase:
    """Elements of `source`, of which `order` says where along a dimension of `extent` they are."""
    start = replace(
        source, strides=tuple(0 if d == dim else stride for d, stride in enumerate(source.strides))
    )
    component = ((extent or source.shape[dim]) - 1, source.strides[dim])
    return gather_phase(order, start, target, [component], 0, context)


def _lines_phases(x: View, y: View, dim: int, places: str, context: Context) -> list[Phase] | None:
    """The lines of `x` in order, or with `places` where their elements were."""
    steps, size = x.shape[dim], x.itemsize
    side, word = tiles.side(size), 4 if size <= 4 and not places else 8
    found = nest([x, y], [dim])
    column = max(found.loops, key=lambda loop: loop.extent, default=None)
    if column is None or column.extent < FEW or (steps + RUN) * side * word > SCRATCH_BYTES:
        return None
    rows = [loop for loop in found.loops if loop is not column]
    if (x.strides[dim], y.strides[dim]) == (size, y.itemsize) == (size, size) and steps >= side:
        way = "tiles"
    elif column.strides == (size, y.itemsize):
        way = "beside"
    else:
        way = "items"
    each = max(1, -(-column.extent // side) // (4 * context.workers))
    grid = grid_of([x, y], found, rows[-1] if rows else None, column, 1, side * each)
    name = f"{places or 'sort'}_{way}_{x.dtype}"
    kernel = grid_kernel(name, Form(2, extras=3), partial(_sort, way, x.dtype, places))
    levels = steps.bit_length()
    cost = x.size * (1.0 + 0.02 * levels * levels) * (2.5 if places else 1.0)
    extra = (steps, x.strides[dim], y.strides[dim])
    return [grid.phase(kernel, cost, context.workers, "sort", extra)]


def _sort(way: str, dtype: str, places: str, f: Function, block: Block) -> None:
    side = tiles.side(numbers.SIZES[dtype])
    word = "i32" if numbers.SIZES[dtype] <= 4 and not places else "i64"
    steps = block.extra(0)
    last = block.columns - 1
    kept = vector(word, side)
    padded = (steps + (RUN - 1)) & -RUN
    with f.loop(0, block.columns, side) as first:
        ends = [
            [f.offset(end, f.least(first + lane, last) * stride) for lane in range(side)]
            for end, stride in zip(block.addresses, block.column_strides, strict=True)
        ]
        together = (first + side).is_("sle", block.columns)
        lines = _Lines(way, dtype, places, f, block, ends, together)
        lines.read()
        with f.loop(steps, padded) as i:
            f.store(f.value(_largest(word), kept), f.offset(block.scratch, i, kept), 1)
        sort_rows(f, block.scratch, padded, kept)
        if numbers.kind_of(dtype).type in FLOATS and not places:
            flags = lines.signs.get().is_("ne", 0).to(f"i{side}", "bitcast")
            with f.when(flags.is_("ne", 0) | lines.sign.get()):
                lines.restore_zeros()
        lines.write()


def _largest(word: str) -> int:
    return (1 << int(word[1:]) - 1) - 1


class _Lines:
    """Lines of a block on their way to scratch memory and back."""

    def __init__(
        self,
        way: str,
        dtype: str,
        places: str,
        f: Function,
        block: Block,
        ends: Sequence[Sequence[Value]],
        together: Value,
    ) -> None:
        self.way, self.f, self.block = way, f, block
        self.kind, self.size = numbers.kind_of(dtype), numbers.SIZES[dtype]
        self.side = tiles.side(self.size)
        self.key = "i32" if self.size <= 4 else "i64"
        self.places, self.word = places, "i64" if places else self.key
        self.made = numbers.kind_of("i32") if places else self.kind
        self.sources, self.targets = ends
        self.together = together
        self.tables = []
        for addresses in ends:
            table = f.variable(f"[{self.side} x ptr]")
            for lane, address in enumerate(addresses):
                f.store(address, f.offset(table.address, lane, "ptr"))
            self.tables.append(table.address)
        # Whether lines have zeros with a sign: those read as vectors, and those read one by one.
        self.signs = f.variable(vector(self.word, self.side), 0)
        self.sign = f.variable("i1", 0)

    def _row(self, step: Value) -> Value:
        return self.f.offset(self.block.scratch, step, vector(self.word, self.side))

    def read(self) -> None:
        """All lines as words, step by step."""
        self._through(self._read_tile, self._read_vector, self._read_one)

    def write(self) -> None:
        """All words back as elements."""
        self._through(self._write_tile, self._write_vector, self._write_one)

    def _through(
        self,
        tile: Callable[[Value], None],
        whole: Callable[[Value], None],
        one: Callable[[Value, Value], None],
    ) -> None:
        f, steps = self.f, self.block.extra(0)
        done = f.variable("i64", 0)
        if self.way == "tiles":
            with f.while_(partial(fits, done, steps, self.side)):
                tile(done.get())
                done.set(done.get() + self.side)
        if self.way == "beside":
            with f.while_(lambda: self.together & done.get().is_("slt", steps)):
                whole(done.get())
                done.set(done.get() + 1)
        with f.while_(lambda: done.get().is_("slt", steps)):
            with f.loop(0, self.side) as lane:
                one(done.get(), lane)
            done.set(done.get() + 1)

    def _read_tile(self, step: Value) -> None:
        f, type = self.f, tiles.vector_type(self.size)
        stored = vector(numbers.MEMORY[self.kind.dtype], self.side)
        tile = [f.load(f.offset(line, step * self.size), type, 1) for line in self.sources]
        for i, row in enumerate(tiles.turned(f, tile, self.size)):
            value = numbers.widened(f, row.to(stored, "bitcast"), self.kind)
            f.store(self._to_word(value, step + i), self._row(step + i), 1)

    def _read_vector(self, step: Value) -> None:
        place = self.f.offset(self.sources[0], step * self.block.extra(1))
        value = numbers.load(self.f, place, self.kind, self.side)
        self.f.store(self._to_word(value, step), self._row(step), 1)

    def _line(self, end: int, lane: Value) -> Value:
        return self.f.load(self.f.offset(self.tables[end], lane, "ptr"), "ptr")

    def _read_one(self, step: Value, lane: Value) -> None:
        place = self.f.offset(self._line(0, lane), step * self.block.extra(1))
        word = self._to_word(numbers.load(self.f, place, self.kind, 1), step)
        self.f.store(word, self.f.offset(self._row(step), lane, self.word), 1)

    def _write_tile(self, step: Value) -> None:
        f, type = self.f, tiles.vector_type(self.size)
        kept = vector(self.word, self.side)
        tile = []
        for i in range(self.side):
            value = self._from_word(f.load(self._row(step + i), kept, 1))
            tile.append(numbers.narrowed(f, value, self.made).to(type, "bitcast"))
        for line, row in zip(self.targets, tiles.turned(f, tile, self.size), strict=True):
            f.store(row, f.offset(line, step * self.size), 1)

    def _write_vector(self, step: Value) -> None:
        words = self.f.load(self._row(step), vector(self.word, self.side), 1)
        place = self.f.offset(self.targets[0], step * self.block.extra(2))
        numbers.store(self.f, self._from_word(words), place, self.made)

    def _write_one(self, step: Value, lane: Value) -> None:
        word = self.f.load(self.f.offset(self._row(step), lane, self.word), self.word)
        place = self.f.offset(self._line(1, lane), step * self.block.extra(2))
        numbers.store(self.f, self._from_word(word), place, self.made)

    # Elements as integers in the same order, before their places if those are wanted.

    def _to_word(self, value: Value, step: Value) -> Value:
        key = self._to_key(value)
        if not self.places:
            return key
        count = lanes_of(key.type)
        return (key.to(vector("i64", count), "sext") << 32) | self.f.splat(step, count)

    def _to_key(self, value: Value) -> Value:
        f, count = self.f, lanes_of(value.type)
        whole, width = vector(self.key, count), int(self.key[1:])
        if self.places == "largest":
            if self.kind.type in FLOATS:
                return self._mirrored(value.to(whole, "bitcast")) ^ -1
            return self._whole(value, whole) ^ -1
        if self.kind.type in FLOATS:
            bits = value.to(whole, "bitcast")
            negative_zero = bits.is_("eq", -(1 << width - 1))
            if self.places:
                bits = f.select(negative_zero, 0, bits)
            elif count == 1:
                self.sign.set(self.sign.get() | negative_zero)
            else:
                self.signs.set(self.signs.get() | negative_zero.to(whole, "zext"))
            nan = 0x7FC00000 if width == 32 else 0x7FF8 << 48
            return self._mirrored(f.select(value.is_("uno", value), nan, bits))
        return self._whole(value, whole)

    def _whole(self, value: Value, type: str) -> Value:
        """Integers and bools as signed integers of the keys' width."""
        width = int(self.key[1:])
        unsigned = self.kind.dtype == "bool" or self.kind.dtype[0] == "u"
        if self.size * 8 < width:
            return value.to(type, "zext" if unsigned else "sext")
        return value ^ (-(1 << width - 1)) if unsigned else value

    def _from_word(self, word: Value) -> Value:
        count, width = lanes_of(word.type), int(self.word[1:])
        if self.places:
            return word.to(vector("i32", count), "trunc")
        if self.kind.type in FLOATS:
            return self._mirrored(word).to(vector(self.kind.type, count), "bitcast")
        unsigned = self.kind.dtype == "bool" or self.kind.dtype[0] == "u"
        if self.size * 8 < width:
            return word.to(vector(self.kind.type, count), "trunc")
        return word ^ (-(1 << width - 1)) if unsigned else word

    def _mirrored(self, bits: Value) -> Value:
        """Negative floats turned around, so that integers compare as they do; and back."""
        width = int(self.key[1:])
        sign = self.f.emit(
            f"ashr {bits.type} {bits}, {self.f.value(width - 1, bits.type)}", bits.type
        )
        return bits ^ (sign & _largest(self.key))

    def restore_zeros(self) -> None:
        """Zeros are equal whatever their signs: those of a line in the order they came in."""
        f, steps = self.f, self.block.extra(0)
        bits = f"i{8 * self.size}"
        with f.loop(0, self.side) as lane:
            source = self._line(0, lane)
            place = f.variable("i64", 0)
            with f.loop(0, steps) as i:
                word = f.load(f.offset(self._row(i), lane, self.word), self.word)
                place.set(place.get() + word.is_("slt", -1).to("i64", "zext"))
            with f.loop(0, steps) as i:
                found = f.load(f.offset(source, i * self.block.extra(1)), bits, 1)
                with f.when((found << 1).is_("eq", 0)):
                    negative = f.value(-1, self.word)
                    word = f.select(found.is_("eq", 0), 0, negative)
                    f.store(word, f.offset(self._row(place.get()), lane, self.word))
                    place.set(place.get() + 1)


RULES: dict[str, Rule] = {"sort": sort_rule, "top_k": top_k_rule}
"""No phases for several keys, for complex ones, nor for few or very long lines."""
