"""The two sides of a tile, and the numbers that count along them.

A program of a kernel works on a tile: `row` counts down, `column` to the right, and neighbours in
a row are neighbours in memory. One of the sides is kept, the other is ended by reductions. A side
of several axes is counted by one number, from which those of the axes follow.
"""

from dataclasses import dataclass, field

from shardir.backends.gpu.kernels.layout import Layout, Run


@dataclass(frozen=True, slots=True)
class Side:
    """A side of a tile.

    `number` is the variable that counts along it, `block` the constant of the kernel that says how
    long it is, and `slot` what gives its line of numbers their place among the dimensions.
    """

    number: str
    axes: tuple[int, ...]
    size: int
    length: int
    """How many numbers the tile has; 1 where `number` is a scalar."""
    block: str
    slot: str = ""
    mask: str = ""
    """The variable that says which numbers exist; empty where all do."""
    is_wide: bool = False
    """Whether `line` has 64 bits; so has a number that is made of a program's."""

    @property
    def line(self) -> str:
        """As many numbers as the tile has, from 0, in the place of the side."""
        return f"tl.arange(0, {self.block}){self.slot}{'.to(tl.int64)' if self.is_wide else ''}"

    def bound(self) -> list[str]:
        """The line that says which numbers exist, if not all do."""
        return [f"{self.mask} = {self.number} < {self.size}"] if self.mask else []

    @property
    def spans(self) -> frozenset[str]:
        """What has elements along it; a side of one number has one for all."""
        return frozenset() if self.length == 1 else frozenset((self.number,))


@dataclass(eq=False)
class Counting:
    """The variables that count along axes, each made where it is first needed."""

    layout: Layout
    letters: list[str]
    """Free names, used one after the other."""
    known: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    """The variables that have been made where the next line stands."""
    given: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)
    """Their names, which are the same in every loop."""

    def number(self, side: Side, run: Run, lines: list[str]) -> str:
        """The variable that counts along a run of axes; its line is appended if it is new."""
        if run.axes == side.axes:
            return side.number
        key = (side.number, run.axes)
        if key not in self.known:
            inner = side.axes[side.axes.index(run.axes[-1]) + 1 :]
            text = side.number
            if inner:
                text = f"{text} // {self.layout.size(inner)}"
            if run.axes[0] != side.axes[0]:
                text = f"{text} % {self.layout.size(run.axes)}"
            if key not in self.given:
                self.given[key] = self.letters.pop(0)
            self.known[key] = self.given[key]
            lines.append(f"{self.known[key]} = {text}")
        return self.known[key]
