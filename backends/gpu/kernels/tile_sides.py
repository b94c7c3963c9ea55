"""The two sides of a tile, and the index variables along them.

A program of a kernel processes a tile: `row` indexes rows, `column` columns, and elements of a row
are contiguous in memory. One side is kept, the other is reduced. A side of several axes has one
flattened index, from which the indices of the axes are computed.
"""

from dataclasses import dataclass, field

from shardir.backends.gpu.kernels.group_layout import AxisRun, GroupLayout


@dataclass(frozen=True, slots=True)
class TileSide:
    """A side of a tile.

    `index` is the index variable along it, `block` the kernel's constant with its length, and
    `expansion` the indexing that puts its range into the tile's dimension.
    """

    index: str
    axes: tuple[int, ...]
    size: int
    length: int
    """Length of the side in the tile; 1 if `index` is a scalar."""
    block: str
    expansion: str = ""
    mask: str = ""
    """The variable with the bounds mask; empty if all elements are in bounds."""
    is_wide: bool = False
    """True if `index` is 64-bit, as indices computed from the program id are."""

    @property
    def offsets_text(self) -> str:
        """Return the range of offsets along the side, in its dimension of the tile."""
        return (
            f"tl.arange(0, {self.block}){self.expansion}{'.to(tl.int64)' if self.is_wide else ''}"
        )

    def mask_lines(self) -> list[str]:
        """Return the line that computes the bounds mask, if one is needed."""
        return [f"{self.mask} = {self.index} < {self.size}"] if self.mask else []

    @property
    def spans(self) -> frozenset[str]:
        """Return the sides that the index varies along; none if the length is 1."""
        return frozenset() if self.length == 1 else frozenset((self.index,))


@dataclass(eq=False)
class IndexVariables:
    """Index variables along axes, each defined where it is first needed."""

    layout: GroupLayout
    letters: list[str]
    """Unused names, taken in order."""
    defined: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    """Variables that are defined at the current line."""
    names: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    """Names of the variables, the same in every loop."""

    def index_variable(self, side: TileSide, run: AxisRun, lines: list[str]) -> str:
        """Return the index variable of a run of axes; append its line if it is new."""
        if run.axes == side.axes:
            return side.index
        key = (side.index, run.axes)
        if key not in self.defined:
            inner = side.axes[side.axes.index(run.axes[-1]) + 1 :]
            text = side.index
            if inner:
                text = f"{text} // {self.layout.size(inner)}"
            if run.axes[0] != side.axes[0]:
                text = f"{text} % {self.layout.size(run.axes)}"
            if key not in self.names:
                self.names[key] = self.letters.pop(0)
            self.defined[key] = self.names[key]
            lines.append(f"{self.defined[key]} = {text}")
        return self.defined[key]
