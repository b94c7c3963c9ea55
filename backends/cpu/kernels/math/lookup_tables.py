"""Lookups in short tables of f32 or f64, one for each lane, and piecewise polynomials of f32.

Each lane of a piecewise polynomial selects the polynomial of its argument's interval. Few steps
suffice if tables in registers are available (AVX-512), somewhat more if registers are permuted
(AVX2).
"""

import struct
from collections.abc import Callable, Sequence

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type, lane_count, vector_type
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.math.coefficients import POLYNOMIALS
from shardir.backends.cpu.kernels.math.vector_arithmetic import fma, where

LANES_PER_REGISTER = {"i32": 16, "i64": 8}
"""Lanes of an AVX-512 register, by the type of the index."""
PERMUTED_LANES = 8
"""Lanes of an AVX2 register of f32."""
INDEX_KINDS = {"i32": ("float", "f", "i", "ps", "sf"), "i64": ("double", "d", "q", "pd", "df")}
"""By the type of the index: the element type, its `struct` codes, and its names in intrinsics."""


def has_register_tables(machine: HostDescription) -> bool:
    """Return whether tables are in registers, where an instruction looks up all lanes."""
    return machine.has("avx512f")


def has_permutations(machine: HostDescription) -> bool:
    """Return whether f32 numbers in registers are looked up by instructions: one for each table
    (AVX-512), or one for each eight entries (AVX2)."""
    return has_register_tables(machine) or machine.has("avx2")


def lookup(index: LLVMValue, name: str, numbers: Sequence[float]) -> LLVMValue:
    """Return the table entry at each lane's index, modulo the size of the table.

    An i32 index selects f32 entries, an i64 index f64 entries; a table has one or two registers of
    entries. With AVX-512 the lookup is an instruction on tables in registers, with AVX2 some
    instructions for f32 entries, otherwise a load for each lane. `name` is the name of the table in
    the module.
    """
    f, count, size = index.function, lane_count(index.type), len(numbers)
    word = element_type(index.type)
    kind, code, bits, _, _ = INDEX_KINDS[word]
    whole = struct.unpack(f"<{size}{bits}", struct.pack(f"<{size}{code}", *numbers))
    f.module.table(name, word, whole)
    table = LLVMValue(f"@{name}", "ptr", f)
    type, full = vector_type(kind, count), LANES_PER_REGISTER[word]
    if count % full == 0 and has_register_tables(f.machine):
        step = struct.calcsize(code)
        halves = [
            f.load(f.offset(table, step * at), vector_type(kind, full), 64)
            for at in range(0, size, full)
        ]
        return apply_by_registers(lambda piece: _permute(piece, halves), index)
    if count % PERMUTED_LANES == 0 and word == "i32" and f.machine.has("avx2"):
        parts = [
            f.load(f.offset(table, 4 * at), vector_type(kind, PERMUTED_LANES), 32)
            for at in range(0, size, PERMUTED_LANES)
        ]
        return apply_by_registers(
            lambda piece: _select_permuted(piece, parts), index, PERMUTED_LANES
        )
    inside = index & (size - 1)
    result = LLVMValue("poison", type, f)
    for lane in range(count):
        at = f.emit(f"extractelement {inside.type} {inside}, i64 {lane}", word)
        number = f.load(f.offset(table, at if word == "i64" else at.to("i64", "zext"), kind), kind)
        result = f.emit(f"insertelement {type} {result}, {kind} {number}, i64 {lane}", type)
    return result


def apply_by_registers(
    of: Callable[[LLVMValue], LLVMValue], x: LLVMValue, lanes: int | None = None
) -> LLVMValue:
    """Apply `of` to each register of x, which fills one, two, four or more; a register has `lanes`
    lanes, by default those of AVX-512."""
    f, half = x.function, lane_count(x.type) // 2
    if lanes is None:
        is_double = element_type(x.type) in ("i64", "double")
        lanes = LANES_PER_REGISTER["i64" if is_double else "i32"]
    if 2 * half <= lanes:
        return of(x)
    low, high = (
        apply_by_registers(of, f.shuffle(x, x, range(at, at + half)), lanes) for at in (0, half)
    )
    return f.shuffle(low, high, range(2 * half))


def _select_permuted(index: LLVMValue, parts: Sequence[LLVMValue]) -> LLVMValue:
    """Return table entries of f32 from registers of eight, whose number is a power of two, with
    AVX2: each is permuted by the lowest three bits of the index, and the next ones select."""
    f, type, intrinsic = index.function, parts[0].type, "llvm.x86.avx2.permps"
    f.module.declare(intrinsic, type, [type, index.type])
    found = [f.call(intrinsic, [part, index], type) for part in parts]
    bit = PERMUTED_LANES
    while len(found) > 1:
        is_high = (index & bit).is_("ne", 0)
        found = [where(is_high, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        bit *= 2
    return found[0]


def _permute(index: LLVMValue, halves: Sequence[LLVMValue]) -> LLVMValue:
    f, type = index.function, halves[0].type
    packed, permuted = INDEX_KINDS[element_type(index.type)][-2:]
    if len(halves) == 1:
        intrinsic = f"llvm.x86.avx512.permvar.{permuted}.512"
        f.module.declare(intrinsic, type, [type, index.type])
        return f.call(intrinsic, [halves[0], index], type)
    intrinsic = f"llvm.x86.avx512.vpermi2var.{packed}.512"
    f.module.declare(intrinsic, type, [type, index.type, type])
    return f.call(intrinsic, [halves[0], index, halves[1]], type)


PIECE_COUNT = 16
GETMANT_FROM_3_4, GETMANT_NAN_OF_NEGATIVE = 3, 8
"""The controls of `getmant`: m from 3/4 to 3/2, NaN for negative numbers."""


def piecewise_polynomial(
    x: LLVMValue, index: LLVMValue, name: str, in_pairs: bool = False
) -> LLVMValue:
    """Evaluate the polynomial that the four lowest bits of each lane's index select, by Horner's
    rule, or as a sum of pairs of terms (G. Estrin, 1960), whose rounding errors are larger."""
    each = [POLYNOMIALS[f"{name}_{place}.f32"] for place in range(PIECE_COUNT)]
    columns = list(enumerate(zip(*each, strict=True)))

    def select(degree: int, column: Sequence[float]) -> LLVMValue:
        return lookup(index, f"shardir_{name}_{degree}", column)

    if in_pairs:
        return _add_pairs(x, [select(*entry) for entry in columns])
    total = select(*columns.pop())
    while columns:
        # LLVM keeps the order of lookups and products: all lookups first would need more registers.
        coefficient = select(*columns.pop())
        total = fma(total, x, coefficient)
    return total


def _add_pairs(x: LLVMValue, coefficients: Sequence[LLVMValue]) -> LLVMValue:
    """Return c0 + c1 x + c2 x^2 + ... by pairs of terms, then by pairs of pairs."""
    if len(coefficients) == 1:
        return coefficients[0]
    pairs = [fma(b, x, a) for a, b in zip(coefficients[::2], coefficients[1::2], strict=False)]
    return _add_pairs(x * x, [*pairs, *coefficients[2 * len(pairs) :]])


def split_with_avx512(x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """Return m and k of x = m 2^k with m from 3/4 to 3/2, by AVX-512 instructions.

    Subnormal numbers are supported; for 0 and infinity k is infinite, for negative numbers m is
    NaN.
    """
    m = apply_by_registers(
        lambda part: _instruction("getmant", part, GETMANT_FROM_3_4 + GETMANT_NAN_OF_NEGATIVE), x
    )
    return m, apply_by_registers(_get_exponent, x) - apply_by_registers(_get_exponent, m)


def _get_exponent(x: LLVMValue) -> LLVMValue:
    return _instruction("getexp", x)


def _instruction(name: str, x: LLVMValue, *choice: int) -> LLVMValue:
    """Emit an instruction with the default rounding mode on all lanes of a register."""
    f, type = x.function, x.type
    full = f"llvm.x86.avx512.mask.{name}.ps.512"
    given = ["i32 immarg"] * len(choice)
    f.module.declare(full, type, [type, *given, type, "i16", "i32 immarg"])
    controls = "".join(f"i32 {number}, " for number in choice)
    return f.emit(f"call {type} @{full}({type} {x}, {controls}{type} poison, i16 -1, i32 4)", type)
