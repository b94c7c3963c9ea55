"""Numbers that lanes choose from short tables of f32."""

import struct
from collections.abc import Callable, Sequence

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Value, lanes, vector

FULL = 16
"""Lanes of f32 in a register of AVX-512."""


def has_registers() -> bool:
    """Whether a table lies in registers, where lanes choose from it in an instruction."""
    return "+avx512f" in host().features


def looked_up(index: Value, name: str, numbers: Sequence[float]) -> Value:
    """The number at each lane's index, of which the lower bits count: five of 32 numbers, four
    of 16.

    An instruction with AVX-512, where the table lies in one or two registers; a load for each lane
    elsewhere. `name` is the table's in the module.
    """
    f, count, size = index.function, lanes(index.type), len(numbers)
    f.module.table(name, "i32", struct.unpack(f"<{size}i", struct.pack(f"<{size}f", *numbers)))
    table = Value(f"@{name}", "ptr", f)
    type = vector("float", count)
    if count % FULL == 0 and has_registers():
        full = vector("float", FULL)
        halves = [f.load(f.offset(table, 4 * at), full, 64) for at in range(0, size, FULL)]
        return by_registers(lambda piece: _permuted(piece, halves), index)
    inside = index & (size - 1)
    made = Value("poison", type, f)
    for lane in range(count):
        at = f.emit(f"extractelement {inside.type} {inside}, i64 {lane}", "i32").to("i64", "zext")
        number = f.load(f.offset(table, at, "float"), "float")
        made = f.emit(f"insertelement {type} {made}, float {number}, i64 {lane}", type)
    return made


def by_registers(of: Callable[[Value], Value], x: Value) -> Value:
    """`of` on each register of x, which fills one, two, four or more."""
    f, half = x.function, lanes(x.type) // 2
    if half < FULL:
        return of(x)
    low, high = (by_registers(of, f.shuffle(x, x, range(at, at + half))) for at in (0, half))
    return f.shuffle(low, high, range(2 * half))


def _permuted(index: Value, halves: Sequence[Value]) -> Value:
    f, type = index.function, halves[0].type
    if len(halves) == 1:
        intrinsic = "llvm.x86.avx512.permvar.sf.512"
        f.module.declare(intrinsic, type, [type, index.type])
        return f.call(intrinsic, [halves[0], index], type)
    intrinsic = "llvm.x86.avx512.vpermi2var.ps.512"
    f.module.declare(intrinsic, type, [type, index.type, type])
    return f.call(intrinsic, [halves[0], index, halves[1]], type)
