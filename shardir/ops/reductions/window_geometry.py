"""Geometry of sliding windows: sizes, padding and strided views.

Along each dimension an array is dilated, then padded or trimmed at both ends; windows, which can be
dilated too, start every `stride` elements while they fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from shardir.ir.attributes import Attributes
from shardir.ir.types import NumpyArray
from shardir.ops.type_checks import Ints, check_integers, format_list

Array = NumpyArray
Padding = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class WindowAttributes(Attributes):
    """The attributes of a window reduction; sequences have one entry per dimension."""

    op: str
    window: Ints
    strides: Ints
    padding: Padding
    base_dilation: Ints
    window_dilation: Ints

    def is_trivial(self, dim: int) -> bool:
        """Return whether the windows along a dimension are its single elements."""
        steps = self.window[dim], self.strides[dim], self.base_dilation[dim]
        return steps == (1, 1, 1) and self.padding[dim] == (0, 0)


def dilated_size(size: int, dilation: int) -> int:
    """Return the extent of `size` elements with the given dilation."""
    return (size - 1) * dilation + 1 if size else 0


def count_windows(size: int, window: int, stride: int) -> int:
    """Return the number of windows that fit into `size` elements."""
    return (size - window) // stride + 1 if size > 0 and window <= size else 0


def check_positive(rank: int, what: str, **attrs: Sequence[int]) -> None:
    """Check that each attribute has `rank` positive integers, one for each `what`."""
    for name, numbers in attrs.items():
        check_integers(name, numbers)
        if len(numbers) != rank:
            raise TypeError(f"{name}={format_list(numbers)} must have one number a {what} ({rank})")
        if any(number < 1 for number in numbers):
            raise TypeError(f"{name}={format_list(numbers)} must be at least 1 everywhere")


def check_padding(rank: int, what: str, padding: Padding) -> None:
    """Raise `TypeError` unless there is one (low, high) pair for each `what`."""
    if not isinstance(padding, tuple | list):
        raise TypeError(f"padding={padding!r} must be a sequence of pairs [low, high]")
    for pair in padding:
        check_integers("a pair of padding", pair)
    if len(padding) != rank or any(len(pair) != 2 for pair in padding):
        pairs = format_list([format_list(pair) for pair in padding])
        raise TypeError(f"padding={pairs} must have one pair [low, high] a {what} ({rank})")


def dilate_and_pad(x: Array, fill: object, padding: Padding, dilation: Ints) -> Array:
    """Return `x` dilated and padded with `fill`; negative padding trims."""
    if not any(lo or hi for lo, hi in padding) and all(step == 1 for step in dilation):
        return x
    reach = [dilated_size(n, step) for n, step in zip(x.shape, dilation, strict=True)]
    shape = [max(n + lo + hi, 0) for n, (lo, hi) in zip(reach, padding, strict=True)]
    out = np.full(shape, fill, x.dtype)
    source, target = [], []
    for n, step, (lo, _), extent in zip(x.shape, dilation, padding, shape, strict=True):
        first = max(-(lo // step), 0)  # The first element that is not trimmed
        last = min(n, -((lo - extent) // step))  # One past the last
        source.append(slice(first, max(first, last)))
        start = lo + first * step
        target.append(slice(start, start + max(last - first, 0) * step, step))
    out[tuple(target)] = x[tuple(source)]
    return out


def window_views(x: Array, window: Ints, strides: Ints, dilation: Ints) -> Array:
    """Return a view of every window of `x`: the dimensions of window positions, then of windows."""
    places = tuple(
        count_windows(n, dilated_size(w, d), s)
        for n, w, s, d in zip(x.shape, window, strides, dilation, strict=True)
    )
    if not all(places):
        return np.empty((*places, *window), x.dtype)
    steps = (
        *(step * s for step, s in zip(x.strides, strides, strict=True)),
        *(step * d for step, d in zip(x.strides, dilation, strict=True)),
    )
    return as_strided(x, (*places, *window), steps, writeable=False)
