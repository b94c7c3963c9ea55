"""The lattice of shardings of one tensor: common axes of two shardings, and the states between
them.

`shardir.passes.resharding.lattice_moves` defines the transitions between states, and
`shardir.passes.resharding.lattice_search` finds the cheapest path.

Shardings are sequences of sub-axes: complete mesh axes, or the sub-axes in which both ends of the
path can be expressed. The common prefix of both ends in a dimension is excluded.

A dimension of n positions in p shards has shards of ceil(n / p) positions, and the last of them
ends at p * ceil(n / p). Adding an axis to others, or removing the last one, is valid only if that
end does not change, because otherwise the shards have other bounds: 5 positions in two shards are
012 34, in four 01 23 4. An unsharded dimension can be sharded by any axes, and any dimension can be
gathered completely. A dimension that some axes do not divide is therefore left alone or gathered
completely.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import combinations
from math import prod

from shardir.ir.device_groups import merge_axes, refine_axes
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import can_coexist
from shardir.ir.types import TensorType

DimSubAxes = tuple[tuple[int, ...], ...]
"""For each dimension, the sub-axes that shard it."""
LatticeState = tuple[DimSubAxes, frozenset[int]]
"""The sub-axes of each dimension, and the sub-axes over which the tensor is unreduced."""

MAX_PRIME_SUB_AXES = 4
"""Maximum number of prime sub-axes up to which sub-axes of different sizes are factored, so that
they can be exchanged."""
MAX_SUB_AXES_FOR_FULL_SEARCH = 4
"""Maximum number of sub-axes up to which every transition is tried; with more, only those towards
the goal."""


class StepKind(StrEnum):
    """The steps of plans: collectives, and `unreduce`, which stands for several operations."""

    ALL_SLICE = "all-slice"
    ALL_GATHER = "all-gather"
    ALL_TO_ALL = "all-to-all"
    COLLECTIVE_PERMUTE = "collective-permute"
    ALL_REDUCE = "all-reduce"
    REDUCE_SCATTER = "reduce-scatter"
    UNREDUCE = "unreduce"


class ReshardProblem:
    """Source and target shardings as sub-axes, without their common prefixes."""

    def __init__(self, source: Sharding, target: Sharding, type: TensorType) -> None:
        self.source, self.target, self.type = source, target, type
        everything = (
            *source.used_axes(),
            *target.used_axes(),
            *source.unreduced,
            *target.unreduced,
        )
        self.solvable = all(can_coexist(a, b) for a, b in combinations(everything, 2))
        parts = refine_axes(everything) if self.solvable else {axis: (axis,) for axis in everything}

        def split(axes: Axes) -> Axes:
            return tuple(part for axis in axes for part in parts[axis])

        old, new = tuple(map(split, source.axes)), tuple(map(split, target.axes))
        shared = [
            _common_prefix_length(a, b, size)
            for a, b, size in zip(old, new, type.shape, strict=True)
        ]
        self.uneven = tuple(
            any(size % count_positions(dim_axes) for dim_axes in both)
            if both[0] != both[1]
            else False
            for size, *both in zip(type.shape, old, new, strict=True)
        )
        self.prefix = tuple(a[:n] for a, n in zip(old, shared, strict=True))
        old = tuple(a[n:] for a, n in zip(old, shared, strict=True))
        new = tuple(a[n:] for a, n in zip(new, shared, strict=True))
        waiting, end = split(source.unreduced), split(target.unreduced)
        shared_axes = end if source.reduction == target.reduction else ()
        sub_axes = tuple(dict.fromkeys(a for axes in (*old, *new, waiting) for a in axes))
        fine = (
            _prime_parts(sub_axes)
            if self.solvable
            else {sub_axis: (sub_axis,) for sub_axis in sub_axes}
        )
        self.sub_axes = tuple(part for sub_axis in sub_axes for part in fine[sub_axis])
        number = {sub_axis: i for i, sub_axis in enumerate(self.sub_axes)}

        def number_sub_axes(axes: Axes) -> tuple[int, ...]:
            return tuple(number[part] for sub_axis in axes for part in fine[sub_axis])

        self.sizes = tuple(sub_axis.size for sub_axis in self.sub_axes)
        self.start: LatticeState = (
            tuple(map(number_sub_axes, old)),
            frozenset(number_sub_axes(waiting)),
        )
        keep = frozenset(number_sub_axes(tuple(a for a in waiting if a in shared_axes)))
        self.goal: LatticeState = tuple(map(number_sub_axes, new)), keep
        self.goal_sub_axes = tuple(a for dim_axes in self.goal[0] for a in dim_axes)
        self.goal_dim = {a: dim for dim, dim_axes in enumerate(self.goal[0]) for a in dim_axes}
        self.is_full_search = len(self.sub_axes) <= MAX_SUB_AXES_FOR_FULL_SEARCH
        self.room = tuple(
            -(-size // count_positions(axes))
            for size, axes in zip(type.shape, self.prefix, strict=True)
        )
        self.itemsize = type.numpy.itemsize
        self.begins_unreduced = merge_axes(
            [a for a in end if a not in shared_axes or a not in waiting]
        )
        # A search requests the same few transitions repeatedly.
        self._pieces: dict[tuple[int, ...], int] = {}
        self._held: dict[DimSubAxes, int] = {}
        self._held_at_end = self.local_bytes(self.goal[0])

    def shard_count(self, sub_axes: tuple[int, ...]) -> int:
        result = self._pieces.get(sub_axes)
        if result is None:
            result = self._pieces[sub_axes] = prod([self.sizes[a] for a in sub_axes])
        return result

    def local_size(self, dim: int, dim_axes: tuple[int, ...]) -> int:
        """Return the number of positions of a dimension on one device."""
        return -(-self.room[dim] // self.shard_count(dim_axes))

    def local_bytes(self, dim_sub_axes: DimSubAxes) -> int:
        """Bytes that a device holds."""
        result = self._held.get(dim_sub_axes)
        if result is None:
            local = map(self.local_size, range(len(dim_sub_axes)), dim_sub_axes)
            result = self._held[dim_sub_axes] = prod(local, start=self.itemsize)
        return result

    def remaining_bytes(self, state: LatticeState) -> int:
        """Bytes that a device must at least still receive."""
        return max(0, self._held_at_end - self.local_bytes(state[0]))

    def can_shard(self, dim_sub_axes: DimSubAxes, dim: int, sub_axes: tuple[int, ...]) -> bool:
        """Return whether a dimension can be sharded further by `sub_axes`, or be gathered back from
        that."""
        before = self.shard_count(dim_sub_axes[dim])
        after, room = before * self.shard_count(sub_axes), self.room[dim]
        if not self.uneven[dim]:
            return room % after == 0
        is_unsharded = before == 1 and not self.prefix[dim]
        return is_unsharded or before * -(-room // before) == after * -(-room // after)

    def distributed_bytes(
        self, dim_sub_axes: DimSubAxes, dim: int, sub_axes: tuple[int, ...]
    ) -> int:
        """Return the bytes of the shard for each device when a dimension is distributed over
        `sub_axes`."""
        local_bytes, after = (
            self.local_bytes(dim_sub_axes),
            self.local_size(dim, (*dim_sub_axes[dim], *sub_axes)),
        )
        return local_bytes // max(self.local_size(dim, dim_sub_axes[dim]), 1) * after

    def sharding(self, state: LatticeState) -> Sharding:
        """Return a state as a sharding, including the common prefixes."""
        dim_sub_axes, pending = state
        axes = (
            merge_axes((*front, *(self.sub_axes[a] for a in dim_axes)))
            for front, dim_axes in zip(self.prefix, dim_sub_axes, strict=True)
        )
        return Sharding(
            self.source.mesh,
            tuple(DimSharding(a, open=False) for a in axes),
            unreduced=merge_axes([a for i, a in enumerate(self.sub_axes) if i in pending]),
            reduction=self.source.reduction if pending else "add",
        )


def _common_prefix_length(a: Axes, b: Axes, size: int) -> int:
    """Return the length of the common prefix of axes that does not change the shard bounds."""
    shorter = min(len(a), len(b))
    same = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    ends = _end_of_last_shard(size, a), _end_of_last_shard(size, b)
    return next(
        (n for n in range(same, 0, -1) if ends == (_end_of_last_shard(size, a[:n]),) * 2), 0
    )


def _end_of_last_shard(size: int, axes: Axes) -> int:
    """Return the end of the last shard."""
    count = count_positions(axes)
    return -(-size // count) * count


def _prime_parts(sub_axes: Axes) -> dict[Axis, Axes]:
    """Return the prime sub-axes of each sub-axis if sizes differ and there are few; else the
    sub-axis itself."""
    parts = {sub_axis: tuple(_factor_axis(sub_axis)) for sub_axis in sub_axes}
    few = sum(map(len, parts.values())) <= MAX_PRIME_SUB_AXES
    mixed = len({sub_axis.size for sub_axis in sub_axes}) > 1
    return parts if few and mixed else {sub_axis: (sub_axis,) for sub_axis in sub_axes}


def _factor_axis(axis: Axis) -> Iterator[Axis]:
    pre, rest, prime = axis.pre, axis.size, 2
    while rest > 1:
        while rest % prime == 0:
            yield Axis(axis.name, pre, prime)
            pre, rest = pre * prime, rest // prime
        prime += 1
