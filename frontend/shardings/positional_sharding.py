"""PositionalSharding: an array with sets of devices as its elements.

It has a shape, and may be reshaped, transposed and replicated along axes like an array. Applied to
a value whose shape it divides, each of its elements holds the shard at the same position. The
representation is the sub-axes (sub_axes.py) that shard each dimension, and the devices in their
original order: a reshape redistributes the sub-axes, a transpose permutes dimensions, and
replication drops the sub-axes of an axis.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Self, final

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.argument_checks import as_items
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import as_device_array
from shardir.frontend.shardings.sharding import DimensionSharding, Sharding
from shardir.frontend.shardings.sub_axes import (
    SubAxes,
    merge_sub_axes,
    num_shards,
    row_major_sub_axes,
    shard_number,
    split_sub_axes,
)


@final
class PositionalSharding(Sharding):
    """`PositionalSharding(devices)` has one shard for each device, in the shape of `devices`.

    `devices` is an array or nested lists. Two are equal when devices, shape and sets of devices
    are.
    """

    _devices: tuple[Device, ...]
    _dimension_sub_axes: tuple[SubAxes, ...]

    @locate_errors
    def __init__(self, devices: object) -> None:
        array = as_device_array(devices, "a PositionalSharding")
        dims = tuple(merge_sub_axes([digit]) for digit in row_major_sub_axes(array.shape))
        self.__dict__.update(_devices=tuple(array.flat), _dimension_sub_axes=dims)

    @classmethod
    def from_sub_axes(cls, devices: tuple[Device, ...], dims: Sequence[SubAxes]) -> Self:
        """Return the sharding whose dimension i is sharded along `dims[i]`."""
        new = cls.__new__(cls)
        new.__dict__.update(
            _devices=devices, _dimension_sub_axes=tuple(merge_sub_axes(digits) for digits in dims)
        )
        return new

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of shards along each dimension."""
        return tuple(num_shards(digits) for digits in self._dimension_sub_axes)

    @property
    def ndim(self) -> int:
        """The number of dimensions of the array of shards."""
        return len(self._dimension_sub_axes)

    @property
    def size(self) -> int:
        """Number of shards."""
        return prod(self.shape)

    @locate_errors
    def reshape(self, *shape: int | Sequence[int]) -> "PositionalSharding":
        """Return the same shards in row-major order in another shape; one size may be -1."""
        sizes = _as_ints(shape)
        # Infer the size -1 if it occurs once and divides evenly.
        known = prod(size for size in sizes if size != -1)
        if sizes.count(-1) == 1 and known > 0 and self.size % known == 0:
            sizes = tuple(self.size // known if size == -1 else size for size in sizes)
        if prod(sizes) != self.size or any(size < 1 for size in sizes):
            raise ShardingError(
                f"a PositionalSharding of shape {self.shape} has {count_noun(self.size, 'shard')} "
                f"and cannot be reshaped to {sizes}; choose sizes whose product is {self.size}"
            )
        dims = split_sub_axes(
            [digit for digits in self._dimension_sub_axes for digit in digits], sizes
        )
        if dims is None:
            raise ShardingError(
                f"reshaping this PositionalSharding from {self.shape} to {sizes} would split "
                "its dimensions, because it was transposed or replicated before; "
                "reshape first, then transpose and replicate"
            )
        return self.from_sub_axes(self._devices, dims)

    @locate_errors
    def transpose(self, *axes: int | Sequence[int] | None) -> "PositionalSharding":
        """Return the dimensions in the order `axes`, or reversed."""
        if not axes or axes == (None,):
            return self.from_sub_axes(self._devices, self._dimension_sub_axes[::-1])
        order = _as_ints(tuple(axis for axis in axes if axis is not None))
        if sorted(axis + self.ndim if axis < 0 else axis for axis in order) != [*range(self.ndim)]:
            raise ShardingError(
                f"a PositionalSharding of shape {self.shape} cannot be transposed by {order}; "
                f"name each of its {count_noun(self.ndim, 'axis', 'axes')} once"
            )
        return self.from_sub_axes(self._devices, [self._dimension_sub_axes[axis] for axis in order])

    @property
    def T(self) -> "PositionalSharding":
        """The sharding with its dimensions in reverse order; see `transpose`."""
        return self.transpose()

    @locate_errors
    def replicate(
        self, axis: int | Sequence[int] | None = None, keepdims: bool = True
    ) -> "PositionalSharding":
        """Merge the shards along `axis` (by default all axes) on the union of their devices."""
        chosen = range(self.ndim) if axis is None else _as_ints((axis,))
        for each in chosen:
            if not -self.ndim <= each < self.ndim:
                raise ShardingError(
                    f"a PositionalSharding of shape {self.shape} has no axis {each} to replicate; "
                    f"its axes are 0 to {self.ndim - 1}"
                )
        gone = [each % self.ndim for each in chosen]
        dims = [
            () if i in gone else digits
            for i, digits in enumerate(self._dimension_sub_axes)
            if keepdims or i not in gone
        ]
        return self.from_sub_axes(self._devices, dims)

    @property
    def device_assignment(self) -> tuple[Device, ...]:
        return self._devices

    def sub_axes(self, rank: int) -> tuple[DimensionSharding, ...]:
        """Return the sub-axes of each dimension.

        A value of lower rank lacks leading dimensions, which must have one shard. A sharding with
        one shard fits any rank.
        """
        if self.size == 1:
            return ((),) * rank
        extra = self.ndim - rank
        if extra < 0:
            ones = (1,) * -extra
            raise ShardingError(
                f"a PositionalSharding of shape {self.shape} cannot shard a value of rank {rank}; "
                f"add dimensions, as in .reshape{(*self.shape, *ones)}"
            )
        if prod(self.shape[:extra]) != 1:
            raise ShardingError(
                f"a PositionalSharding of shape {self.shape} cannot shard a value of rank {rank}; "
                f"reshape it to {rank} dimension{'s' * (rank != 1)}, "
                f"or call .replicate on the first {extra}"
            )
        return self._dimension_sub_axes[extra:]

    @property
    def natural_rank(self) -> int:
        return self.ndim

    def describe_dimension(self, dimension: int) -> str:
        return f"by a PositionalSharding of shape {self.shape}"

    @cached_property
    def _hash(self) -> int:
        return hash((self._devices, self._dimension_sub_axes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionalSharding):
            return NotImplemented
        return self is other or (self._devices, self._dimension_sub_axes) == (
            other._devices,
            other._dimension_sub_axes,
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return (PositionalSharding.from_sub_axes, (self._devices, self._dimension_sub_axes))

    def __repr__(self) -> str:
        ids: list[list[int]] = [[] for _ in range(self.size)]
        everything = [digit for digits in self._dimension_sub_axes for digit in digits]
        for position, device in enumerate(self._devices):
            ids[shard_number(everything, position)].append(device.id)
        platform = self._devices[0].platform.upper()
        sets = np.empty(self.size, dtype=object)
        sets[:] = [f"{{{platform} {', '.join(map(str, sorted(each)))}}}" for each in ids]
        body = np.array2string(
            sets.reshape(self.shape),
            max_line_width=100,
            prefix="PositionalSharding(",
            suffix=")",
            formatter={"object": str},
            threshold=1000,
            edgeitems=3,
        )
        return f"PositionalSharding({body})"


def _as_ints(arguments: tuple[int | Sequence[int], ...]) -> tuple[int, ...]:
    """Return the integers of `f(4, 2)` or `f((4, 2))`."""
    if len(arguments) == 1 and not isinstance(arguments[0], int | np.integer):
        arguments = tuple(as_items(arguments[0]))
    flat = []
    for each in arguments:
        if not isinstance(each, int | np.integer):
            raise ShardingError(f"sizes and axes are integers, got {each!r}")
        flat.append(int(each))
    return tuple(flat)
