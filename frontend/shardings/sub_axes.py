"""Sub-axes: the common representation of all shardings for tracing and lowering.

Number the devices of a sharding 0, 1, 2, ... in the order of its `device_assignment`. A sub-axis
reads one coordinate off that number, like a digit of a mixed-radix number: device i has the
coordinate (i // stride) % size. The shard number of a dimension with several sub-axes, major to
minor, is the mixed-radix number of their coordinates. The axes of a mesh are sub-axes, and so are
the results of reshapes and transposes of a PositionalSharding. A value is replicated along all
sub-axes that no dimension uses.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class SubAxis:
    """The device at position i has coordinate `(i // stride) % size` along the sub-axis."""

    stride: int
    size: int

    @property
    def span(self) -> int:
        """The stride of the next more significant sub-axis."""
        return self.stride * self.size

    def coordinate(self, position: int) -> int:
        return position // self.stride % self.size


SubAxes = tuple[SubAxis, ...]


def row_major_sub_axes(shape: Sequence[int]) -> SubAxes:
    """Return one sub-axis per dimension, for devices numbered in row-major order."""
    return tuple(SubAxis(prod(shape[i + 1 :]), size) for i, size in enumerate(shape))


def num_shards(digits: Iterable[SubAxis]) -> int:
    """Return the number of shards along a dimension with these sub-axes."""
    return prod(digit.size for digit in digits)


def shard_number(digits: Iterable[SubAxis], position: int) -> int:
    """Return the shard number of the device at `position`."""
    index = 0
    for digit in digits:
        index = index * digit.size + digit.coordinate(position)
    return index


def merge_sub_axes(digits: Iterable[SubAxis]) -> SubAxes:
    """Return the equivalent list with the fewest sub-axes, which is the canonical form."""
    merged: list[SubAxis] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if merged and merged[-1].stride == digit.span:
            digit = SubAxis(digit.stride, merged.pop().size * digit.size)
        merged.append(digit)
    return tuple(merged)


def split_sub_axes(digits: Iterable[SubAxis], shape: Sequence[int]) -> tuple[SubAxes, ...] | None:
    """Return `digits` distributed over dimensions of the sizes `shape`, or `None` if they do not
    nest.

    The product of `shape` must be the number of shards.
    """
    rest = list(reversed(merge_sub_axes(digits)))
    dims = []
    for size in shape:
        taken: list[SubAxis] = []
        while size > 1:
            digit = rest.pop()
            if size % digit.size == 0:
                taken.append(digit)
                size //= digit.size
            elif digit.size % size == 0:
                minor = digit.size // size
                taken.append(SubAxis(digit.stride * minor, size))
                rest.append(SubAxis(digit.stride, minor))
                size = 1
            else:
                return None
        dims.append(tuple(taken))
    return tuple(dims)
