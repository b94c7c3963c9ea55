"""The attributes of operations along mesh axes.

`axes` are major to minor: the device at position p along them holds shard p.
"""

from dataclasses import dataclass

from shardir.ir.attributes import Attributes
from shardir.ir.sharding import Axes

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CollectiveAttributes(Attributes):
    """The base class of the attributes of collectives."""

    @property
    def changed_dims(self) -> tuple[int, ...]:
        """The dimensions whose size the collective changes."""
        return ()


@dataclass(frozen=True, slots=True)
class AxesAttributes(CollectiveAttributes):
    """Attributes of an operation that names only mesh axes."""

    axes: Axes


@dataclass(frozen=True, slots=True)
class AllReduceAttributes(CollectiveAttributes):
    """The attributes of an all-reduce; `shared` affects only gradients."""

    axes: Axes
    op: str
    shared: bool = False


@dataclass(frozen=True, slots=True)
class ShardedDimAttributes(CollectiveAttributes):
    """The attributes of an all-gather or an all-slice along the dimension `dim`."""

    dim: int
    axes: Axes

    @property
    def changed_dims(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True, slots=True)
class ReduceScatterAttributes(CollectiveAttributes):
    """The attributes of a reduce-scatter, which splits the dimension `dim`."""

    dim: int
    axes: Axes
    op: str

    @property
    def changed_dims(self) -> tuple[int, ...]:
        return (self.dim,)


@dataclass(frozen=True, slots=True)
class AllToAllAttributes(CollectiveAttributes):
    """The attributes of an all-to-all, which moves the sharding from `concat` to `split`."""

    split: int
    concat: int
    axes: Axes

    @property
    def changed_dims(self) -> tuple[int, ...]:
        return self.split, self.concat


@dataclass(frozen=True, slots=True)
class CollectivePermuteAttributes(CollectiveAttributes):
    """The attributes of a collective permute: either `source` and `target`, or `axes` and `pairs`
    of positions along them.
    """

    source: Axes = ()
    target: Axes = ()
    axes: Axes = ()
    pairs: Pairs = ()
