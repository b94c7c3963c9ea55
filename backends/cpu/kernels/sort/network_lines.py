"""Moves lines to scratch memory for the sorting network, and back.

Each lane of a vector has a line; a row of scratch memory is a step of all lines: integers that
compare in element order, or such integers above their indices.
"""

from collections.abc import Callable, Sequence
from functools import partial

from shardir.backends.cpu.codegen.dtypes import MEMORY_TYPES
from shardir.backends.cpu.codegen.llvm_text import (
    FLOAT_TYPES,
    LLVMFunction,
    LLVMValue,
    lane_count as lanes_of,
    vector_type,
)
from shardir.backends.cpu.kernels.data_movement import element_values, transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import GridBlock
from shardir.backends.cpu.kernels.data_movement.element_cast import fits_before
from shardir.backends.cpu.kernels.sort.sort_keys import LARGEST_BITS, NAN_BITS
from shardir.ir.dtypes import FLOATS, UNSIGNED

BIT_KEYS = frozenset(name for name in FLOATS if element_values.ELEMENT_BYTES[name] == 2)
"""Types whose keys are made from the bits of the elements, without a conversion to f32."""


def largest_word(word: str) -> int:
    return (1 << int(word[1:]) - 1) - 1


def key_type(dtype: str, places: str) -> str:
    """Return the LLVM type of keys. Floats of one byte are computed in f32, and so are all short
    floats whose indices are sorted with them."""
    size = element_values.ELEMENT_BYTES[dtype]
    if not places and (dtype in BIT_KEYS or (size <= 2 and dtype not in FLOATS)):
        return "i16"
    return "i32" if size <= 4 else "i64"


def word_type(dtype: str, places: str) -> str:
    """Return the LLVM type of words: keys, or with `places` keys above indices."""
    return "i64" if places else key_type(dtype, places)


class NetworkLines:
    """The lines of a block, their addresses, and their representation in scratch memory."""

    def __init__(
        self,
        way: str,
        dtype: str,
        places: str,
        f: LLVMFunction,
        block: GridBlock,
        ends: Sequence[Sequence[LLVMValue]],
        together: LLVMValue,
    ) -> None:
        self.way, self.f, self.block = way, f, block
        self.size = element_values.ELEMENT_BYTES[dtype]
        self.dtype, self.has_bit_keys = dtype, dtype in BIT_KEYS and not places
        self.kind = element_values.kind_of("i16" if self.has_bit_keys else dtype)
        self.is_float = element_values.kind_of(dtype).type in FLOAT_TYPES
        self.side = transpose_tiles.tile_side(self.size, f.machine)
        self.key = key_type(dtype, places)
        self.places, self.word = places, word_type(dtype, places)
        self.made = element_values.kind_of("i32") if places else self.kind
        self.sources, self.targets = ends
        self.together = together
        self.tables = []
        for addresses in ends:
            table = f.variable(f"[{self.side} x ptr]")
            for lane, address in enumerate(addresses):
                f.store(address, f.offset(table.address, lane, "ptr"))
            self.tables.append(table.address)
        # Nonzero if lines have negative zeros: those loaded as vectors, and those loaded one by
        # one.
        self.signs = f.variable(vector_type(self.word, self.side), 0)
        self.sign = f.variable("i1", 0)

    def _row(self, step: LLVMValue) -> LLVMValue:
        return self.f.offset(self.block.scratch, step, vector_type(self.word, self.side))

    def read(self) -> None:
        """Convert all lines to words, step by step."""
        self._for_each_step(self._read_tile, self._read_vector, self._read_one)

    def write(self) -> None:
        """Convert all words back to elements."""
        self._for_each_step(self._write_tile, self._write_vector, self._write_one)

    def _for_each_step(
        self,
        tile: Callable[[LLVMValue], None],
        whole: Callable[[LLVMValue], None],
        one: Callable[[LLVMValue, LLVMValue], None],
    ) -> None:
        f, steps = self.f, self.block.extra(0)
        done = f.variable("i64", 0)
        if self.way == "tiles":
            with f.while_(partial(fits_before, done, steps, self.side)):
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

    def _read_tile(self, step: LLVMValue) -> None:
        f, type = self.f, transpose_tiles.vector_type(self.size, self.side)
        stored = vector_type(MEMORY_TYPES[self.kind.dtype], self.side)
        tile = [f.load(f.offset(line, step * self.size), type, 1) for line in self.sources]
        for i, row in enumerate(transpose_tiles.transpose_tile(f, tile, self.size)):
            value = element_values.widen_elements(f, row.to(stored, "bitcast"), self.kind)
            f.store(self._to_word(value, step + i), self._row(step + i), 1)

    def _read_vector(self, step: LLVMValue) -> None:
        place = self.f.offset(self.sources[0], step * self.block.extra(1))
        value = element_values.load(self.f, place, self.kind, self.side)
        self.f.store(self._to_word(value, step), self._row(step), 1)

    def _line(self, end: int, lane: LLVMValue) -> LLVMValue:
        return self.f.load(self.f.offset(self.tables[end], lane, "ptr"), "ptr")

    def _read_one(self, step: LLVMValue, lane: LLVMValue) -> None:
        place = self.f.offset(self._line(0, lane), step * self.block.extra(1))
        word = self._to_word(element_values.load(self.f, place, self.kind, 1), step)
        self.f.store(word, self.f.offset(self._row(step), lane, self.word), 1)

    def _write_tile(self, step: LLVMValue) -> None:
        f, type = self.f, transpose_tiles.vector_type(self.size, self.side)
        kept = vector_type(self.word, self.side)
        tile = []
        for i in range(self.side):
            value = self._from_word(f.load(self._row(step + i), kept, 1))
            tile.append(element_values.narrow_elements(f, value, self.made).to(type, "bitcast"))
        for line, row in zip(
            self.targets, transpose_tiles.transpose_tile(f, tile, self.size), strict=True
        ):
            f.store(row, f.offset(line, step * self.size), 1)

    def _write_vector(self, step: LLVMValue) -> None:
        words = self.f.load(self._row(step), vector_type(self.word, self.side), 1)
        place = self.f.offset(self.targets[0], step * self.block.extra(2))
        element_values.store(self.f, self._from_word(words), place, self.made)

    def _write_one(self, step: LLVMValue, lane: LLVMValue) -> None:
        word = self.f.load(self.f.offset(self._row(step), lane, self.word), self.word)
        place = self.f.offset(self._line(1, lane), step * self.block.extra(2))
        element_values.store(self.f, self._from_word(word), place, self.made)

    def _to_word(self, value: LLVMValue, step: LLVMValue) -> LLVMValue:
        key = self._to_key(value)
        if not self.places:
            return key
        count = lanes_of(key.type)
        return (key.to(vector_type("i64", count), "sext") << 32) | self.f.splat(step, count)

    def _to_key(self, value: LLVMValue) -> LLVMValue:
        f, count = self.f, lanes_of(value.type)
        whole, width = vector_type(self.key, count), int(self.key[1:])
        if self.places == "largest":
            if self.is_float:
                return self._flip_negative(value.to(whole, "bitcast")) ^ -1
            return self._to_integer(value, whole) ^ -1
        if self.is_float:
            bits = value.to(whole, "bitcast")
            negative_zero = bits.is_("eq", -(1 << width - 1))
            if self.places:
                bits = f.select(negative_zero, 0, bits)
            elif count == 1:
                self.sign.set(self.sign.get() | negative_zero)
            else:
                self.signs.set(self.signs.get() | negative_zero.to(whole, "zext"))
            if self.has_bit_keys:
                is_nan = (bits & largest_word(self.key)).is_("sgt", LARGEST_BITS[self.dtype])
                return self._flip_negative(f.select(is_nan, NAN_BITS[self.dtype], bits))
            nan = 0x7FC00000 if width == 32 else 0x7FF8 << 48
            return self._flip_negative(f.select(value.is_("uno", value), nan, bits))
        return self._to_integer(value, whole)

    def _to_integer(self, value: LLVMValue, type: str) -> LLVMValue:
        """Convert integers and bools to signed integers of the keys' width."""
        width = int(self.key[1:])
        unsigned = self.kind.dtype in ("bool", *UNSIGNED)
        if self.size * 8 < width:
            return value.to(type, "zext" if unsigned else "sext")
        return value ^ (-(1 << width - 1)) if unsigned else value

    def _from_word(self, word: LLVMValue) -> LLVMValue:
        count, width = lanes_of(word.type), int(self.word[1:])
        if self.places:
            return word.to(vector_type("i32", count), "trunc")
        if self.is_float:
            return self._flip_negative(word).to(vector_type(self.kind.type, count), "bitcast")
        unsigned = self.kind.dtype in ("bool", *UNSIGNED)
        if self.size * 8 < width:
            return word.to(vector_type(self.kind.type, count), "trunc")
        return word ^ (-(1 << width - 1)) if unsigned else word

    def _flip_negative(self, bits: LLVMValue) -> LLVMValue:
        """Invert the bits of negative floats except the sign, so that integers compare as they do;
        the conversion is its own inverse."""
        width = int(self.key[1:])
        sign = self.f.emit(
            f"ashr {bits.type} {bits}, {self.f.value(width - 1, bits.type)}", bits.type
        )
        return bits ^ (sign & largest_word(self.key))

    def restore_zeros(self) -> None:
        """Write the zeros of each line in source order: they are equal whatever their signs."""
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
                # If another thread has modified the source, there may be more zeros than rows.
                with f.when((found << 1).is_("eq", 0) & place.get().is_("slt", steps)):
                    negative = f.value(-1, self.word)
                    word = f.select(found.is_("eq", 0), 0, negative)
                    f.store(word, f.offset(self._row(place.get()), lane, self.word))
                    place.set(place.get() + 1)
