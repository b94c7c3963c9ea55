"""The instructions of AMX (x86) that multiply tiles of matrices.

A tile is a register of 16 rows of 64 bytes. A row of the left operand holds 16 groups of values of
adjacent K steps; row k of the right operand holds group k of 16 columns. An instruction adds the
products of all values of these groups to the 16 by 16 sums of a third tile.

LLVM's intrinsics name tiles by number. Code has to configure the tiles before it uses them, and to
release them at its end, so that the system does not save their contents.
"""

from typing import NamedTuple

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue, Operand
from shardir.backends.cpu.codegen.target import HostDescription

TILE_COUNT = 8
"""The number of tile registers."""
TILE_ROWS = 16
"""Rows of a tile; for 4-byte sums also its columns, and the groups of a row."""
TILE_ROW_BYTES = 64
"""Bytes of a row of a tile."""
TILE_GROUP_BYTES = 4
"""Bytes of a group of values, and of a sum."""
_CONFIGURATION_BYTES, _ROW_BYTES_AT, _ROWS_AT = 64, 16, 48
"""Bytes of a tile configuration, and the places of its tables of 16-bit row sizes and of 8-bit row
counts."""


class TileInstruction(NamedTuple):
    """An instruction for values of type `dtype`: the processor feature, LLVM's name, the LLVM type
    of a sum, and the number of values in a group of 4 bytes."""

    dtype: str
    feature: str
    intrinsic: str
    sum: str
    steps: int
    is_lhs_unsigned: bool = False

    @property
    def name(self) -> str:
        """The part of a kernel's name that states the instruction."""
        return f"{self.dtype}_amx"

    def is_fast_on(self, machine: HostDescription) -> bool:
        """Return whether the machine has the instruction."""
        return machine.has("amx-tile") and machine.has(self.feature)

    def emit(self, f: LLVMFunction, sums: int, lhs: int, rhs: int) -> None:
        """Add the product of two tiles to the tile `sums`."""
        call_tile_intrinsic(f, self.intrinsic, f"i8 {sums}", f"i8 {lhs}", f"i8 {rhs}")


TILE_INSTRUCTIONS = {
    "bf16": TileInstruction("bf16", "amx-bf16", "tdpbf16ps", "float", 2),
    "i8": TileInstruction("i8", "amx-int8", "tdpbssd", "i32", 4),
    "u8": TileInstruction("u8", "amx-int8", "tdpbuud", "i32", 4),
}
"""The instruction for each type of values. All sums of integers wrap around."""


def configure_tiles(f: LLVMFunction) -> None:
    """Make all tiles available, with their full size."""
    content = bytearray(_CONFIGURATION_BYTES)
    content[0] = 1  # The only palette.
    for tile in range(TILE_COUNT):
        content[_ROW_BYTES_AT + 2 * tile] = TILE_ROW_BYTES
        content[_ROWS_AT + tile] = TILE_ROWS
    f.module.table("tile_configuration", "i8", list(content))
    call_tile_intrinsic(f, "ldtilecfg", "ptr @tile_configuration")


def release_tiles(f: LLVMFunction) -> None:
    """Clear all tiles and their configuration."""
    call_tile_intrinsic(f, "tilerelease")


def zero_tile(f: LLVMFunction, tile: int) -> None:
    """Set all elements of a tile to zero."""
    call_tile_intrinsic(f, "tilezero", f"i8 {tile}")


def load_tile(f: LLVMFunction, tile: int, address: LLVMValue, stride: Operand) -> None:
    """Load the rows of a tile, which are `stride` bytes apart."""
    call_tile_intrinsic(
        f, "tileloadd64", f"i8 {tile}", f"ptr {address}", f"i64 {f.text_of(stride, 'i64')}"
    )


def store_tile(f: LLVMFunction, tile: int, address: LLVMValue, stride: Operand) -> None:
    """Store the rows of a tile `stride` bytes apart."""
    call_tile_intrinsic(
        f, "tilestored64", f"i8 {tile}", f"ptr {address}", f"i64 {f.text_of(stride, 'i64')}"
    )


def call_tile_intrinsic(f: LLVMFunction, name: str, *args: str) -> None:
    """Call an intrinsic of AMX; `args` are its arguments with their types."""
    f.module.declare(f"llvm.x86.{name}", "void", [each.split(" ")[0] for each in args])
    f.do(f"call void @llvm.x86.{name}({', '.join(args)})")
