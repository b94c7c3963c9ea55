"""Parameters of the text of the packed GEMM kernel that describe an operand made of patches."""

from typing import NamedTuple


class PatchAccess(NamedTuple):
    """The operand that is patches of an image ("lhs", "rhs" or ""), and its checked dimensions.

    `is_in_place`: the left operand is read in place rather than packed (`implicit_gemm_lhs`); K
    steps then run along the dimension `run_dim` (-1: none). `position_pitch`: the distance in
    elements of adjacent output positions in an image of the NCHW layout, 0 for other layouts.
    `selects_rows`: a part of the K steps is multiplied by the rows that are inside of the image
    (`row_selection`). `has_pairs`: packing loads pairs of K steps, which are contiguous
    (`pair_packing`). `is_indirect`: adjacent rows of the left operand are read in place, at the
    address of each K step (`indirect_lhs`).
    """

    side: str = ""
    dims: int = 0
    is_in_place: bool = False
    run_dim: int = -1
    position_pitch: int = 0
    has_pairs: bool = False
    selects_rows: bool = False
    is_indirect: bool = False

    @property
    def name(self) -> str:
        """The part of the kernel's name that depends on the access."""
        if not self.side:
            return ""
        if self.position_pitch:
            return f"_planes{self.position_pitch}"
        more = f"_straight{self.run_dim + 1}" * self.is_in_place + "_pairs" * self.has_pairs
        more += "_selected" * self.selects_rows + "_indirect" * self.is_indirect
        return f"_{self.side}{self.dims}{more}"

    def is_patches(self, side: str) -> bool:
        """Return whether an operand is read as patches rather than packed as lines."""
        return side == self.side

    def checked_dims_of(self, side: str) -> int:
        """Return the number of checked dimensions of an operand."""
        return self.dims if side == self.side else 0
