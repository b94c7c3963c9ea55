"""Numbers that lanes choose from a table of 32 of f32."""

import struct
from collections.abc import Sequence

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Value, lanes, vector

COUNT = 32


def looked_up(index: Value, name: str, numbers: Sequence[float]) -> Value:
    """The number at each lane's index, of which the lower five bits count.

    An instruction with AVX-512, where the table lies in two registers; a load for each lane
    elsewhere. `name` is the table's in the module.
    """
    f, count = index.function, lanes(index.type)
    f.module.table(name, "i32", struct.unpack(f"<{COUNT}i", struct.pack(f"<{COUNT}f", *numbers)))
    table = Value(f"@{name}", "ptr", f)
    type = vector("float", count)
    if count == 16 and "+avx512f" in host().features:
        intrinsic = "llvm.x86.avx512.vpermi2var.ps.512"
        f.module.declare(intrinsic, type, [type, index.type, type])
        halves = [f.load(f.offset(table, 64 * i), type, 64) for i in (0, 1)]
        return f.call(intrinsic, [halves[0], index, halves[1]], type)
    inside = index & (COUNT - 1)
    made = Value("poison", type, f)
    for lane in range(count):
        at = f.emit(f"extractelement {inside.type} {inside}, i64 {lane}", "i32").to("i64", "zext")
        number = f.load(f.offset(table, at, "float"), "float")
        made = f.emit(f"insertelement {type} {made}, float {number}, i64 {lane}", type)
    return made
