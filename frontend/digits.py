"""Digits: the one language all shardings speak to the tracer and the lowering.

Number the devices of a sharding 0, 1, 2, ... in the order of its `device_assignment`. A digit
reads one coordinate off that number, as the tens digit is read off a decimal: device i has the
coordinate (i // stride) % size. A dimension cut by several digits, major to minor, counts its
pieces in that mixed radix. The axes of a mesh are digits, and so is what is left of them after
reshapes and transposes of a PositionalSharding; what no digit of a dimension reads is replicated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Digit:
    """The device at position i has coordinate `(i // stride) % size` along it."""

    stride: int
    size: int

    @property
    def span(self) -> int:
        """The stride of the digit that comes next above it."""
        return self.stride * self.size

    def read(self, position: int) -> int:
        return position // self.stride % self.size


Digits = tuple[Digit, ...]


def row_major(shape: Sequence[int]) -> Digits:
    """One digit a dimension, for devices numbered row by row."""
    return tuple(Digit(prod(shape[i + 1 :]), size) for i, size in enumerate(shape))


def pieces(digits: Iterable[Digit]) -> int:
    """Into how many pieces the digits cut."""
    return prod(digit.size for digit in digits)


def read(digits: Iterable[Digit], position: int) -> int:
    """Which piece the device at `position` holds."""
    index = 0
    for digit in digits:
        index = index * digit.size + digit.read(position)
    return index


def merge(digits: Iterable[Digit]) -> Digits:
    """The same count said with the fewest digits: the canonical form."""
    merged: list[Digit] = []
    for digit in digits:
        if digit.size == 1:
            continue
        if merged and merged[-1].stride == digit.span:
            digit = Digit(digit.stride, merged.pop().size * digit.size)
        merged.append(digit)
    return tuple(merged)


def split(digits: Iterable[Digit], shape: Sequence[int]) -> tuple[Digits, ...] | None:
    """`digits` dealt out to dimensions of the sizes `shape`, or `None` when they do not nest.

    The product of `shape` must be the number of pieces.
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
