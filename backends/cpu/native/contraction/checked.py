"""How the kernel of products reads its operands, as far as that shapes its machine code."""

from typing import NamedTuple

from shardir.backends.cpu.native.contraction.tile import Tile, parts_of


class Checked(NamedTuple):
    """The operand that is patches of an image ("lhs", "rhs" or ""), and its checked dimensions.

    `straight`: it is read where it lies rather than packed (`straight` says how of the left one,
    `windows` of the right one); steps go along the dimension `walked` then (-1: none). `pace`: how
    many numbers further on the next place is in an image that is laid out in `planes`, 0 elsewhere.
    """

    side: str = ""
    dims: int = 0
    straight: bool = False
    walked: int = -1
    pace: int = 0

    @property
    def name(self) -> str:
        """What of it is a part of the kernel's name."""
        if not self.side:
            return ""
        if self.pace:
            return f"_planes{self.pace}"
        return f"_{self.side}{self.dims}" + f"_straight{self.walked + 1}" * self.straight

    def parts_of(self, tile: Tile) -> tuple[Tile, ...]:
        """The tiles there are: those that read columns where they lie are of whole panels."""
        whole = self.straight and self.side == "rhs"
        return tuple(part for part in parts_of(tile) if not whole or part.lanes == tile.lanes)

    def gathers(self, side: str) -> bool:
        """Whether an operand is read as patches, rather than packed as lines."""
        return side == self.side

    def of(self, side: str) -> int:
        """How many dimensions of an operand are checked."""
        return self.dims if side == self.side else 0
