"""An emulation of the tile registers of AMX, for hosts without them.

Functions of the module of a kernel replace the intrinsics. The tiles and their configuration are
memory of the module, so that only one thread at a time may run a kernel. Tiles have no rows before
they are configured and after they are released: loads and products leave bits of NaN then.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from shardir.backends.cpu.codegen import tile_instructions
from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    add_outlined_function,
    vector_type,
)
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.codegen.tile_instructions import TILE_INSTRUCTIONS, TILE_ROW_BYTES
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS

TILE_BYTES, TILES, ROWS = 1024, 8, 16
ROW_BYTES_AT, ROWS_AT = 16, 48
UNCONFIGURED = 0xFF
"""Bytes of a tile that is not configured: NaN as bf16 and f32."""
SMALLEST_NORMAL = 2.0**-126
FEATURES = "+amx-tile,+amx-bf16,+amx-int8"


def machine_with_tiles(monkeypatch: pytest.MonkeyPatch) -> HostDescription:
    """Return this host if it has tile registers, and otherwise its description with emulated
    ones."""
    host = host_machine()
    if TILE_INSTRUCTIONS["bf16"].is_fast_on(host):
        return host
    return machine_with_emulated_tiles(monkeypatch)


def machine_with_emulated_tiles(monkeypatch: pytest.MonkeyPatch) -> HostDescription:
    """Replace the instructions of tiles by their emulation, and return the machine that has them:
    this host, with the sizes of registers and caches of a processor with AMX."""
    monkeypatch.setattr(tile_instructions, "call_tile_intrinsic", call_emulation)
    host, real = host_machine(), SAPPHIRE_RAPIDS
    # The name of a kernel determines its code in other tests.
    return replace(
        real, triple=host.triple, cpu=host.cpu, features=f"{host.features},{FEATURES}",
        fma=host.fma, version="emulated tiles",
    )  # fmt: skip


def call_emulation(f: LLVMFunction, name: str, *args: str) -> None:
    """Call the function that replaces an intrinsic."""
    symbol = f"emulated_{name}"
    if symbol not in [each.name for each in f.module.functions]:
        for variable, nbytes in (("tiles", TILES * TILE_BYTES), ("configuration", 64)):
            text = f"@{variable} = internal global [{nbytes} x i8] zeroinitializer, align 64"
            f.module.tables.setdefault(variable, text)
        EMULATIONS[name](f.module, symbol)
    f.do(f"call void @{symbol}({', '.join(args)})")


class Tile:
    """A tile of the emulation, whose number is a parameter of a function."""

    def __init__(self, f: LLVMFunction, number: LLVMValue) -> None:
        self.f, wide = f, number.to("i64", "zext")
        self.address = f.offset(LLVMValue("@tiles", "ptr", f), wide * TILE_BYTES)
        configuration = LLVMValue("@configuration", "ptr", f)
        rows = f.load(f.offset(configuration, wide + ROWS_AT), "i8")
        nbytes = f.load(f.offset(configuration, wide * 2 + ROW_BYTES_AT), "i16")
        self.rows, self.row_bytes = rows.to("i64", "zext"), nbytes.to("i64", "zext")

    def clear(self) -> None:
        """Set the tile to zero, or to NaN if it is not configured."""
        f = self.f
        byte = f.select(self.rows.is_("eq", 0), f.value(UNCONFIGURED - 256, "i8"), 0)
        set_memory(f, self.address, byte, TILE_BYTES)

    def row(self, number: LLVMValue) -> LLVMValue:
        """Return the address of a row."""
        return self.f.offset(self.address, number * TILE_ROW_BYTES)


def set_memory(f: LLVMFunction, address: LLVMValue, byte: LLVMValue, nbytes: int) -> None:
    f.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1 immarg"])
    f.do(f"call void @llvm.memset.p0.i64(ptr {address}, i8 {byte}, i64 {nbytes}, i1 false)")


def copy_memory(f: LLVMFunction, to: LLVMValue, source: LLVMValue, nbytes: LLVMValue) -> None:
    f.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1 immarg"])
    f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {nbytes}, i1 false)")


def emit_configure(module: LLVMModule, name: str) -> None:
    f = add_outlined_function(module, name, ["ptr"])
    (content,) = f.params
    copy_memory(f, LLVMValue("@configuration", "ptr", f), content, f.value(64, "i64"))
    set_memory(f, LLVMValue("@tiles", "ptr", f), f.value(0, "i8"), TILES * TILE_BYTES)
    f.ret()


def emit_release(module: LLVMModule, name: str) -> None:
    f = add_outlined_function(module, name, [])
    set_memory(f, LLVMValue("@configuration", "ptr", f), f.value(0, "i8"), 64)
    f.ret()


def emit_zero(module: LLVMModule, name: str) -> None:
    f = add_outlined_function(module, name, ["i8"])
    Tile(f, f.params[0]).clear()
    f.ret()


def emit_load(module: LLVMModule, name: str) -> None:
    f = add_outlined_function(module, name, ["i8", "ptr", "i64"])
    number, address, stride = f.params
    tile = Tile(f, number)
    tile.clear()
    with f.loop(0, tile.rows) as row:
        copy_memory(f, tile.row(row), f.offset(address, row * stride), tile.row_bytes)
    f.ret()


def emit_store(module: LLVMModule, name: str) -> None:
    f = add_outlined_function(module, name, ["i8", "ptr", "i64"])
    number, address, stride = f.params
    tile = Tile(f, number)
    with f.loop(0, tile.rows) as row:
        copy_memory(f, f.offset(address, row * stride), tile.row(row), tile.row_bytes)
    f.ret()


def emit_product(
    module: LLVMModule,
    name: str,
    sum: str,
    products: Callable[[LLVMFunction, LLVMValue, LLVMValue, list[LLVMValue]], list[LLVMValue]],
) -> None:
    """Emit the product of two tiles; `products` adds those of the vectors of two groups of values
    to two vectors of sums."""
    f = add_outlined_function(module, name, ["i8", "i8", "i8"])
    out, left, right = (Tile(f, number) for number in f.params)
    type, groups = vector_type(sum, ROWS), vector_type("i32", ROWS)
    with f.loop(0, ROWS) as m:
        totals = [f.variable(type, f.value(0, type)) for _ in range(2)]
        with f.loop(0, ROWS) as k:
            value = f.load(f.offset(left.row(m), k * 4), "i32")
            row = f.load(right.row(k), groups)
            added = products(f, f.splat(value, ROWS), row, [total.get() for total in totals])
            for total, each in zip(totals, added, strict=True):
                total.set(each)
        first, second = (total.get() for total in totals)
        both = flush(f, first + second)
        f.store(flush(f, flush(f, f.load(out.row(m), type)) + both), out.row(m))
    with f.when(out.rows.is_("eq", 0)):
        out.clear()
    f.ret()


def flush(f: LLVMFunction, value: LLVMValue) -> LLVMValue:
    """Replace subnormal floats by zero."""
    if "float" not in value.type:
        return value
    size = f.intrinsic("fabs", value)
    return f.select(size.is_("olt", SMALLEST_NORMAL), f.value(0.0, value.type), value)


def add_bf16_products(
    f: LLVMFunction, left: LLVMValue, right: LLVMValue, totals: list[LLVMValue]
) -> list[LLVMValue]:
    """Add the products of the even and of the odd values to sums of their own. The products of bf16
    are exact in f32."""
    halves = [[flush(f, each) for each in _split_pair(x)] for x in (left, right)]
    return [flush(f, total + x * y) for total, x, y in zip(totals, *halves, strict=True)]


def _split_pair(pair: LLVMValue) -> list[LLVMValue]:
    type = vector_type("float", ROWS)
    return [bits.to(type, "bitcast") for bits in (pair << 16, pair & -65536)]


def add_byte_products(
    how: str, f: LLVMFunction, left: LLVMValue, right: LLVMValue, totals: list[LLVMValue]
) -> list[LLVMValue]:
    """Add the products of four bytes; `how` is the shift that extends them."""
    first, second = totals
    for byte in range(4):
        x, y = (
            f.emit(f"{how} {each.type} {each << 24 - 8 * byte}, {f.text_of(24, each.type)}",
                   each.type)
            for each in (left, right)
        )  # fmt: skip
        first = first + x * y
    return [first, second]


EMULATIONS: dict[str, Callable[[LLVMModule, str], None]] = {
    "ldtilecfg": emit_configure,
    "tilerelease": emit_release,
    "tilezero": emit_zero,
    "tileloadd64": emit_load,
    "tilestored64": emit_store,
    "tdpbf16ps": lambda module, name: emit_product(module, name, "float", add_bf16_products),
    "tdpbssd": lambda module, name: emit_product(
        module, name, "i32", lambda *args: add_byte_products("ashr", *args)
    ),
    "tdpbuud": lambda module, name: emit_product(
        module, name, "i32", lambda *args: add_byte_products("lshr", *args)
    ),
}
"""The functions that emit the emulation of each intrinsic."""
