"""PartitionSpec: the mesh axes that shard each dimension, by name.

`P("data", None)` shards dimension 0 over the axis data and replicates dimension 1; `P(("data",
"model"))` shards dimension 0 over both axes, data major; `P.UNCONSTRAINED` leaves a dimension to
the compiler. Dimensions that are not mentioned are replicated.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import ClassVar, Final

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.source_locations import with_location


class Unconstrained(Enum):
    """The type of `UNCONSTRAINED`, its only value."""

    UNCONSTRAINED = "UNCONSTRAINED"

    def __repr__(self) -> str:
        return "UNCONSTRAINED"


UNCONSTRAINED: Final = Unconstrained.UNCONSTRAINED

SpecEntry = str | tuple[str, ...] | Unconstrained | None


class PartitionSpec(tuple[SpecEntry, ...]):
    """One entry per dimension: `None`, an axis, a tuple of axes (major first) or `UNCONSTRAINED`.

    It behaves as the tuple of its entries, and equals it. The entry `()` is normalized to `None`
    and `("x",)` to `"x"`. `P("x")` and `P("x", None)` are different objects, though they make
    equivalent shardings.
    """

    __slots__ = ()

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    """The entry of a dimension whose sharding the compiler determines."""

    def __init_subclass__(cls) -> None:
        raise ArgumentError(
            with_location(
                f"{cls.__name__} subclasses PartitionSpec, which does not support it; write a "
                "function that returns a PartitionSpec"
            )
        )

    @locate_errors
    def __new__(cls, *entries: object) -> "PartitionSpec":
        return _intern_spec(tuple(_normalize_entry(i, entry) for i, entry in enumerate(entries)))

    def __getnewargs__(self) -> tuple[SpecEntry, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PartitionSpec{tuple.__repr__(self)}"

    def __add__(self, other: object) -> "PartitionSpec":
        return PartitionSpec(*self, *other) if isinstance(other, tuple) else NotImplemented

    def axes(self, dimension: int) -> tuple[str, ...] | Unconstrained:
        """Return the axes of one dimension, major first; none beyond the last entry."""
        entry = self[dimension] if dimension < len(self) else None
        match entry:
            case None:
                return ()
            case str():
                return (entry,)
            case _:
                return entry

    def mentioned_axes(self) -> Iterator[str]:
        """Yield every axis in order of mention."""
        for dimension in range(len(self)):
            axes = self.axes(dimension)
            if axes is not UNCONSTRAINED:
                yield from axes


P = PartitionSpec


@lru_cache(maxsize=4096)
def _intern_spec(entries: tuple[SpecEntry, ...]) -> PartitionSpec:
    """Return the unique object for equal entries, so that comparing specs is cheap."""
    return tuple.__new__(PartitionSpec, entries)


def _normalize_entry(position: int, entry: object) -> SpecEntry:
    if entry is None or isinstance(entry, str | Unconstrained):
        return entry
    if isinstance(entry, tuple | list) and all(isinstance(axis, str) for axis in entry):
        return entry[0] if len(entry) == 1 else tuple(entry) or None
    raise ShardingError(
        f"entry {position} of a PartitionSpec is {entry!r}; it must be None, the name of a mesh "
        "axis, a tuple of names or PartitionSpec.UNCONSTRAINED"
    )
