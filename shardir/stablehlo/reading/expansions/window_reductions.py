"""Reading of window reductions with any computation, initial value and number of tensors.

The windows of one dimension after the other are combined. Along a dimension, windows of twice the
size are the combination of two windows, so that a window of n elements takes about 2 log2(n)
computations on tensors. The order of the elements is kept: a computation only has to be
associative, which StableHLO requires.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shardir.errors import count_noun
from shardir.stablehlo.reading.call import OperationReader
from shardir.stablehlo.reading.expansions.arithmetic import Tensor

Ints = tuple[int, ...]
Combine = Callable[[list[Tensor], list[Tensor]], list[Tensor]]
"""Combines tensors of one shape with as many other ones, element by element."""


@dataclass(frozen=True)
class Windows:
    """The windows of a reduction, with one entry for each dimension."""

    sizes: Ints
    strides: Ints
    padding: tuple[tuple[int, int], ...]
    base_dilation: Ints
    window_dilation: Ints

    @staticmethod
    def of(call: OperationReader, rank: int) -> "Windows":
        """Return the windows that an operation on tensors of this rank states."""
        ones = (1,) * rank
        windows = Windows(
            call.integers("window_dimensions"),
            call.integers("window_strides", default=ones),
            call.pairs_of("padding", ((0, 0),) * rank),
            call.integers("base_dilations", default=ones),
            call.integers("window_dilations", default=ones),
        )
        for key, entries in windows.attrs.items():
            if len(entries) != rank:
                raise call.fail(
                    f"{call.name} has {count_noun(len(entries), 'entry', 'entries')} "
                    f"of {key}, not {rank}"
                )
        numbers = (windows.sizes, windows.strides, windows.base_dilation, windows.window_dilation)
        if any(number < 1 for each in numbers for number in each):
            raise call.fail(f"the windows, strides and dilations of {call.name} are at least 1")
        return windows

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the IR operation `reduce_window`."""
        return {
            "window": self.sizes,
            "strides": self.strides,
            "padding": self.padding,
            "base_dilation": self.base_dilation,
            "window_dilation": self.window_dilation,
        }

    @property
    def has_padding(self) -> bool:
        """Return whether windows contain elements that the operand does not have."""
        return any(pad != (0, 0) for pad in self.padding) or set(self.base_dilation) != {1}

    def pad(self, x: Tensor, init: Tensor) -> Tensor:
        """Return a tensor with the padding and the base dilation of the windows."""
        if not self.has_padding:
            return x
        return x.apply(
            "pad",
            init,
            low=tuple(low for low, _ in self.padding),
            high=tuple(high for _, high in self.padding),
            interior=tuple(dilation - 1 for dilation in self.base_dilation),
        )


def combine_windows(
    xs: Sequence[Tensor], inits: Sequence[Tensor], windows: Windows, combine: Combine
) -> list[Tensor]:
    """Return the combination of each window, from its initial value on."""
    reduced = [windows.pad(x, init) for x, init in zip(xs, inits, strict=True)]
    for dim in reversed(range(len(windows.sizes))):  # The last dimension varies fastest.
        reduced = _combine_dim(reduced, windows, dim, combine)
    starts = [init.broadcast(x.type.shape, ()) for init, x in zip(inits, reduced, strict=True)]
    return combine(starts, reduced) if 0 not in reduced[0].type.shape else starts


def _combine_dim(xs: list[Tensor], windows: Windows, dim: int, combine: Combine) -> list[Tensor]:
    """Return the combinations of the windows of one dimension."""
    size, stride = windows.sizes[dim], windows.strides[dim]
    dilation = windows.window_dilation[dim]
    length = xs[0].type.shape[dim]
    count = max((length - (size - 1) * dilation - 1) // stride + 1, 0)
    if not count:
        return [_take(x, dim, 0, 0) for x in xs]

    def join(left: list[Tensor], width: int, right: list[Tensor]) -> list[Tensor]:
        """Return the windows of a left part of `width` elements and a right part."""
        offset = width * dilation
        kept = min(right[0].type.shape[dim] - offset, left[0].type.shape[dim])
        return combine(
            [_take(x, dim, 0, kept) for x in left], [_take(x, dim, offset, kept) for x in right]
        )

    powers, width = xs, 1
    joined: list[Tensor] | None = None
    joined_width = 0
    while True:
        if size & width:
            joined = powers if joined is None else join(joined, joined_width, powers)
            joined_width += width
        if 2 * width > size:
            break
        powers = join(powers, width, powers)
        width *= 2
    assert joined is not None
    return [_take(x, dim, 0, count, stride) for x in joined]


def _take(x: Tensor, dim: int, start: int, count: int, stride: int = 1) -> Tensor:
    """Return `count` elements of a dimension."""
    shape = x.type.shape
    if (start, count, stride) == (0, shape[dim], 1):
        return x
    starts = tuple(start if d == dim else 0 for d in range(len(shape)))
    strides = tuple(stride if d == dim else 1 for d in range(len(shape)))
    taken = x.type.with_shape((*shape[:dim], count, *shape[dim + 1 :]))
    return x.apply("slice", starts=starts, strides=strides, result=taken)
