"""PartitionSpec: which mesh axes cut which dimension, said by name.

`P("data", None)` cuts dimension 0 over the axis data and leaves dimension 1 whole;
`P(("data", "model"))` cuts dimension 0 over both, data major; `P.UNCONSTRAINED` leaves a
dimension to the compiler. Dimensions that are not mentioned are whole.
"""

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Final

from shardir.frontend.errors import ShardingError
from shardir.frontend.locations import pointed


class Unconstrained(Enum):
    """The type of `UNCONSTRAINED`, its only value."""

    UNCONSTRAINED = "UNCONSTRAINED"

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED: Final = Unconstrained.UNCONSTRAINED

Entry = str | tuple[str, ...] | Unconstrained | None


class PartitionSpec(tuple[Entry, ...]):
    """One entry a dimension: `None`, an axis, a tuple of axes (major first) or `UNCONSTRAINED`.

    It behaves as the tuple of its entries, and equals it. `()` is kept as `None` and `("x",)` as
    `"x"`, which mean the same. `P("x")` and `P("x", None)` are different objects, though they
    make equivalent shardings.
    """

    __slots__ = ()

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED

    @pointed
    def __new__(cls, *entries: object) -> "PartitionSpec":
        return super().__new__(cls, (_clean(i, entry) for i, entry in enumerate(entries)))

    def __getnewargs__(self) -> tuple[Entry, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PartitionSpec{tuple.__repr__(self)}"

    def __add__(self, other: object) -> "PartitionSpec":
        return PartitionSpec(*self, *other) if isinstance(other, tuple) else NotImplemented

    def axes(self, dimension: int) -> tuple[str, ...] | Unconstrained:
        """The axes of one dimension, major first; none beyond the last entry."""
        entry = self[dimension] if dimension < len(self) else None
        match entry:
            case None:
                return ()
            case str():
                return (entry,)
            case _:
                return entry

    def mentioned(self) -> Iterator[str]:
        """Every axis in the order of mention."""
        for dimension in range(len(self)):
            axes = self.axes(dimension)
            if axes is not UNCONSTRAINED:
                yield from axes


P = PartitionSpec


def _clean(position: int, entry: object) -> Entry:
    if entry is None or isinstance(entry, str | Unconstrained):
        return entry
    if isinstance(entry, tuple | list) and all(isinstance(axis, str) for axis in entry):
        return entry[0] if len(entry) == 1 else tuple(entry) or None
    raise ShardingError(
        f"entry {position} of a PartitionSpec is {entry!r}; it must be None, the name of a mesh "
        "axis, a tuple of names or PartitionSpec.UNCONSTRAINED"
    )
