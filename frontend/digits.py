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
class Digit:
    """The device at position i has coordinate `(i // stride) % size` along the sub-axis."""

    stride: int
    size: int

    @property
    def span(self) -> int:
        """The stride of the next more significant sub-axis."""
        return self.stride * self.size

    def read(self, position: int) -> int:
        return position // self.stride % self.size


Digits = tuple[Digit, ...]


def row_major(shape: Sequence[int]) -> Digits:
    """Return one sub-axis per dimension, for devices numbered in row-major order."""
    return tuple(Digit(prod(shape[i + 1 :]), size) for i, size in enumerate(shape))


def pieces(digits: Iterable[Digit]) -> int:
    """Return the number of shards along a dimension with these sub-axes."""
    return prod(digit.size for digit in digits)


def read(digits: Iterable[Digit], position: int) -> int:
    """Return the shard number of the device at `position`."""
    index = 0
    for digit in digits:
        index = index * digit.size + digit.read(position)
    return index


def merge(digits: Iterable[Digit]) -> Digits:
    """Return the equivalent list with the fewest sub-axes, which is the canonical form."""
    merged: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if merged and merged[-1].stride == digit.span:
            digit = Digit(digit.stride, merged.pop().size * digit.size)
        merged.append(digit)
    return tuple(merged)


def split(digits: Iterable[Digit], shape: Sequence[int]) -> tuple[Digits, ...] | None:
    """Return `digits` distributed over dimensions of the sizes `shape`, or `None` if they do not
    nest.

    The product of `shape` must be the number of shards.
    """
    rest = list(reversed(merge(digits)))
    dims = []
    for size in shape:
        taken: list[Digit] = []
        while size > 1:
            digit = rest.pop()
            if size % digit.size == 0:
                taken.append(digit)
                size //= digit.size
            elif digit.size % size == 0:
                minor = digit.size // size
                taken.append(Digit(digit.stride * minor, size))
                rest.append(Digit(digit.stride, minor))
                size = 1
            else:
                return None
        dims.append(tuple(taken))
    return tuple(dims)
