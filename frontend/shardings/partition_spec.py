"""PartitionSpec: the mesh axes that shard each dimension, by name.

`P("data", None)` shards dimension 0 over the axis data and replicates dimension 1; `P(("data",
"model"))` shards dimension 0 over both axes, data major; `P.UNCONSTRAINED` leaves a dimension to
the compiler. Dimensions that are not mentioned are replicated.
"""

from collections.abc import Iterable, Iterator
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
    equivalent shardings. `unreduced` names axes along which the devices hold partial sums of the
    value.
    """

    __slots__ = ()

    UNCONSTRAINED: ClassVar[Unconstrained] = UNCONSTRAINED
    """The entry of a dimension whose sharding the compiler determines."""

    def __init_subclass__(cls, is_internal: bool = False) -> None:
        if is_internal:
            return
        raise ArgumentError(
            with_location(
                f"{cls.__name__} subclasses PartitionSpec, which does not support it; write a "
                "function that returns a PartitionSpec"
            )
        )

    @locate_errors
    def __new__(cls, *entries: object, unreduced: Iterable[str] = ()) -> "PartitionSpec":
        normalized = tuple(_normalize_entry(i, entry) for i, entry in enumerate(entries))
        if unreduced:
            return _intern_unreduced_spec(normalized, _check_unreduced(normalized, unreduced))
        return _intern_spec(normalized)

    @property
    def unreduced(self) -> frozenset[str]:
        """The axes along which the devices hold partial sums."""
        return frozenset()

    def __getnewargs__(self) -> tuple[SpecEntry, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"PartitionSpec{tuple.__repr__(self)}"

    def __add__(self, other: object) -> "PartitionSpec":
        if not isinstance(other, tuple):
            return NotImplemented
        return PartitionSpec(*self, *other, unreduced=self.unreduced)

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


def format_axes(axes: tuple[str, ...]) -> str:
    """Return `x` for one axis, and `(x,y)` for several."""
    return axes[0] if len(axes) == 1 else f"({','.join(axes)})"


class UnreducedSpec(PartitionSpec, is_internal=True):
    """A spec with unreduced axes. It equals specs with the same entries and unreduced axes only.

    The class is separate so that specs without such axes compare as tuples.
    """

    _unreduced: frozenset[str]

    @property
    def unreduced(self) -> frozenset[str]:
        return self._unreduced

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UnreducedSpec):
            return False
        return tuple.__eq__(self, other) and self._unreduced == other._unreduced

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self._unreduced))

    def __getnewargs_ex__(self) -> tuple[tuple[SpecEntry, ...], dict[str, frozenset[str]]]:
        return tuple(self), {"unreduced": self._unreduced}

    def __repr__(self) -> str:
        axes = ", ".join(map(repr, sorted(self._unreduced)))
        entries = "".join(f"{entry!r}, " for entry in self)
        return f"PartitionSpec({entries}unreduced={{{axes}}})"


@lru_cache(maxsize=4096)
def _intern_unreduced_spec(
    entries: tuple[SpecEntry, ...], unreduced: frozenset[str]
) -> PartitionSpec:
    spec = tuple.__new__(UnreducedSpec, entries)
    spec._unreduced = unreduced
    return spec


def _check_unreduced(entries: tuple[SpecEntry, ...], unreduced: Iterable[str]) -> frozenset[str]:
    axes = (unreduced,) if isinstance(unreduced, str) else tuple(unreduced)
    sharded = {axis for entry in entries for axis in (entry if type(entry) is tuple else (entry,))}
    for axis in axes:
        if not isinstance(axis, str):
            raise ShardingError(
                f"unreduced of a PartitionSpec has {axis!r}; it must be the names of mesh axes"
            )
        if axis in sharded:
            raise ShardingError(
                f"a PartitionSpec names {axis!r} in an entry and in unreduced; an axis can shard "
                "a value or hold its partial sums, not both"
            )
    return frozenset(axes)


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
