"""PartitionSpec: the mesh axes that shard each dimension, by name.

`P("data", None)` shards dimension 0 over the axis data and replicates dimension 1; `P(("data",
"model"))` shards dimension 0 over both axes, data major; `P.UNCONSTRAINED` leaves a dimension to
the compiler. Dimensions that are not mentioned are replicated.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Final

from shardir.frontend.absent_members import WithAbsentMembers
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import ArgumentError, ShardingError
from shardir.frontend.source_locations import with_location


class Unconstrained(Enum):
    """The type of `UNCONSTRAINED`, its only value."""

    UNCONSTRAINED = "UNCONSTRAINED"

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    __str__ = __repr__


UNCONSTRAINED: Final = Unconstrained.UNCONSTRAINED

SpecEntry = str | tuple[str, ...] | Unconstrained | None


class PartitionSpec(WithAbsentMembers, tuple[SpecEntry, ...]):
    """One entry per dimension: `None`, an axis, a tuple of axes (major first) or `UNCONSTRAINED`.

    It behaves as the tuple of its entries, and equals it. The entry `()` is normalized to `None`
    and `("x",)` to `"x"`. `P("x")` and `P("x", None)` are different objects, though they make
    equivalent shardings. `unreduced` names axes along which the devices hold partial sums of the
    value. `reduced` names axes along which a value is replicated and its gradient is unreduced, so
    that the program states where the gradient is summed.
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
    def __new__(
        cls, *entries: object, unreduced: Iterable[str] = (), reduced: Iterable[str] = ()
    ) -> "PartitionSpec":
        normalized = tuple(_normalize_entry(i, entry) for i, entry in enumerate(entries))
        if not unreduced and not reduced:
            return _intern_spec(normalized)
        sums = _check_axes("unreduced", unreduced, normalized, "hold its partial sums")
        copies = _check_axes("reduced", reduced, normalized, "hold copies of it")
        for axis in sorted(sums & copies):
            raise ShardingError(
                f"a PartitionSpec names {axis!r} in unreduced and in reduced; devices hold partial "
                "sums of a value or copies of it, not both"
            )
        return _intern_summed_spec(normalized, sums, copies)

    @property
    def unreduced(self) -> frozenset[str]:
        """The axes along which the devices hold partial sums."""
        return frozenset()

    @property
    def reduced(self) -> frozenset[str]:
        """The axes along which the devices hold copies, and the gradient is unreduced."""
        return frozenset()

    @property
    def partitions(self) -> tuple[SpecEntry, ...]:
        """The entries as a tuple."""
        return tuple(self)

    @locate_errors
    def update(
        self,
        partitions: Iterable[object] | None = None,
        unreduced: Iterable[str] | None = None,
        reduced: Iterable[str] | None = None,
    ) -> "PartitionSpec":
        """Return a spec with other entries, unreduced axes or reduced axes."""
        return PartitionSpec(
            *(self if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def with_entries(self, *entries: object) -> "PartitionSpec":
        """Return a spec with other entries, and the unreduced and reduced axes of this one."""
        return self.update(entries)

    def __getnewargs__(self) -> tuple[SpecEntry, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"P{tuple.__repr__(self)}"  # As in JAX.

    def __add__(self, other: object) -> "PartitionSpec":
        if not isinstance(other, tuple):
            return NotImplemented
        return self.with_entries(*self, *other)

    def __radd__(self, other: object) -> "PartitionSpec":
        if not isinstance(other, tuple):
            return NotImplemented
        return self.with_entries(*other, *self)

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


def format_axes(axes: Sequence[str]) -> str:
    """Return `x` for one axis, and `(x,y)` for several."""
    return axes[0] if len(axes) == 1 else f"({','.join(axes)})"


def format_summed_axes(unreduced: Iterable[str], reduced: Iterable[str]) -> str:
    """Return the suffix of a type with these axes, such as `{U:x}` or `{R:(x,y)}`."""
    named = {"U": sorted(unreduced), "R": sorted(reduced)}
    parts = [f"{letter}:{format_axes(axes)}" for letter, axes in named.items() if axes]
    return f"{{{', '.join(parts)}}}" if parts else ""


class SummedSpec(PartitionSpec, is_internal=True):
    """A spec with unreduced or reduced axes. It equals specs with the same entries and axes only.

    The class is separate so that specs without such axes compare as tuples.
    """

    _unreduced: frozenset[str]
    _reduced: frozenset[str]

    @property
    def unreduced(self) -> frozenset[str]:
        return self._unreduced

    @property
    def reduced(self) -> frozenset[str]:
        return self._reduced

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SummedSpec):
            return False
        return (tuple(self), self._unreduced, self._reduced) == (
            tuple(other),
            other._unreduced,
            other._reduced,
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((tuple(self), self._unreduced, self._reduced))

    def __getnewargs_ex__(self) -> tuple[tuple[SpecEntry, ...], dict[str, frozenset[str]]]:
        return tuple(self), {"unreduced": self._unreduced, "reduced": self._reduced}

    def __repr__(self) -> str:
        parts = [repr(entry) for entry in self]
        for name, axes in (("unreduced", self._unreduced), ("reduced", self._reduced)):
            if axes:
                parts.append(f"{name}={{{', '.join(map(repr, sorted(axes)))}}}")
        return f"P({', '.join(parts)})"


@lru_cache(maxsize=4096)
def _intern_summed_spec(
    entries: tuple[SpecEntry, ...], unreduced: frozenset[str], reduced: frozenset[str]
) -> PartitionSpec:
    spec = tuple.__new__(SummedSpec, entries)
    spec._unreduced, spec._reduced = unreduced, reduced
    return spec


def _check_axes(
    option: str, given: Iterable[str], entries: tuple[SpecEntry, ...], meaning: str
) -> frozenset[str]:
    """Return the axes that an option names; raise `ShardingError` for other objects, and for axes
    that shard a dimension."""
    is_set = isinstance(given, Iterable) and not isinstance(given, str)
    axes: tuple[Any, ...] = tuple(given) if is_set else (given,)
    sharded = {axis for entry in entries for axis in (entry if type(entry) is tuple else (entry,))}
    for axis in axes:
        if not isinstance(axis, str):
            raise ShardingError(
                f"{option} of a PartitionSpec has {axis!r}; it must be the names of mesh axes"
            )
        if axis in sharded:
            raise ShardingError(
                f"a PartitionSpec names {axis!r} in an entry and in {option}; an axis can shard "
                f"a value or {meaning}, not both"
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
