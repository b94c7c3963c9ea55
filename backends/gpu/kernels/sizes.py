"""How large the tiles of kernels are: a table, so that every run computes the same.

The numbers are for GPUs of the last generations (A100, H100, B200): 108 to 148 processors of 64 Ki
registers, which fetch 16 bytes a thread at once.
"""

from dataclasses import dataclass

WARP = 32


@dataclass(frozen=True, slots=True)
class Sizes:
    """What tiles are chosen by."""

    flat: int = 1024
    """Elements of a tile of a chain without reductions, of 4 bytes."""
    row: int = 16384
    """The longest row that is held at once, if one tensor of it is; of more, less."""
    piece: int = 4096
    """How much of longer rows a loop takes at once."""
    short: int = 128
    """The longest row that shares a tile with others; longer ones have their own threads."""
    small: int = 1024
    """Elements of the tile of short rows."""
    columns: int = 64
    """How many columns a program reduces side by side."""
    narrow: int = 64
    """Bytes of the fewest columns that neighbouring threads load together."""
    depth: int = 32
    """How many of their rows it takes at once."""
    column: int = 128
    """The longest column that is held at once."""
    programs: int = 264
    """Fewer programs than that leave processors idle: long reductions are then cut in parts."""
    share: int = 4
    """Pieces that a part of a cut reduction has at least."""
    alone: int = 1 << 20
    """Elements that a program may take one after the other, if there are few programs."""


def above(number: int) -> int:
    """The power of two that is not below."""
    return 1 << max(number - 1, 0).bit_length()


def ceil(number: int, by: int) -> int:
    return -(-number // by)


def warps(elements: int, each: int = 8) -> int:
    """Threads for a tile, in warps, with so many elements for each thread."""
    return min(max(elements // (each * WARP), 1), 16)
