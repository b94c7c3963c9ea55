"""Lookups in short tables of f32 or f64, one for each lane."""

import struct
from collections.abc import Callable, Sequence

from shardir.backends.cpu.codegen.llvm_text import LLVMValue, element_type, lane_count, vector_type
from shardir.backends.cpu.codegen.target import host_machine

LANES_PER_REGISTER = {"i32": 16, "i64": 8}
"""Lanes of an AVX-512 register, by the type of the index."""
INDEX_KINDS = {"i32": ("float", "f", "i", "ps", "sf"), "i64": ("double", "d", "q", "pd", "df")}
"""By the type of the index: the element type, its `struct` codes, and its names in intrinsics."""


def has_register_tables() -> bool:
    """Return whether tables are in registers, where an instruction looks up all lanes."""
    return "+avx512f" in host_machine().features


def lookup(index: LLVMValue, name: str, numbers: Sequence[float]) -> LLVMValue:
    """Return the table entry at each lane's index, modulo the size of the table.

    An i32 index selects f32 entries, an i64 index f64 entries; a table has one or two registers of
    entries. With AVX-512 the lookup is an instruction on tables in registers, otherwise a load for
    each lane. `name` is the name of the table in the module.
    """
    f, count, size = index.function, lane_count(index.type), len(numbers)
    word = element_type(index.type)
    kind, code, bits, _, _ = INDEX_KINDS[word]
    whole = struct.unpack(f"<{size}{bits}", struct.pack(f"<{size}{code}", *numbers))
    f.module.table(name, word, whole)
    table = LLVMValue(f"@{name}", "ptr", f)
    type, full = vector_type(kind, count), LANES_PER_REGISTER[word]
    if count % full == 0 and has_register_tables():
        step = struct.calcsize(code)
        halves = [
            f.load(f.offset(table, step * at), vector_type(kind, full), 64)
            for at in range(0, size, full)
        ]
        return apply_by_registers(lambda piece: _permute(piece, halves), index)
    inside = index & (size - 1)
    result = LLVMValue("poison", type, f)
    for lane in range(count):
        at = f.emit(f"extractelement {inside.type} {inside}, i64 {lane}", word)
        number = f.load(f.offset(table, at if word == "i64" else at.to("i64", "zext"), kind), kind)
        result = f.emit(f"insertelement {type} {result}, {kind} {number}, i64 {lane}", type)
    return result


def apply_by_registers(of: Callable[[LLVMValue], LLVMValue], x: LLVMValue) -> LLVMValue:
    """Apply `of` to each register of x, which fills one, two, four or more."""
    f, half = x.function, lane_count(x.type) // 2
    if 2 * half <= (
        LANES_PER_REGISTER["i64"]
        if element_type(x.type) in ("i64", "double")
        else LANES_PER_REGISTER["i32"]
    ):
        return of(x)
    low, high = (apply_by_registers(of, f.shuffle(x, x, range(at, at + half))) for at in (0, half))
    return f.shuffle(low, high, range(2 * half))


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
