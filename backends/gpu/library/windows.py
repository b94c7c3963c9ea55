"""Sliding windows: reductions, the gradient of window maximum and minimum, convolutions.

Along each dimension a tensor is first dilated, then padded or cropped at both ends; then windows,
themselves dilated, start every `stride` elements while they fit.
"""

import itertools
import math

import torch
from torch import Tensor

from shardir.backends.gpu.library.contraction import multiply_exactly
from shardir.backends.gpu.library.integers import as_words, in_order
from shardir.backends.gpu.library.moving import pad_with


def spread_out(x: Tensor, fill: float, padding: list[list[int]], dilation: list[int]) -> Tensor:
    """Return `x` dilated and padded with `fill`; negative padding crops."""
    value = torch.full((), fill, dtype=x.dtype, device=x.device)
    low, high = [lo for lo, _ in padding], [hi for _, hi in padding]
    return pad_with(x, value, low, high, [step - 1 for step in dilation])


def sliding(x: Tensor, dim: int, window: int, stride: int, dilation: int) -> Tensor:
    """Return a view of every window along a dimension; the window is the new last dimension."""
    reach = (window - 1) * dilation + 1
    return x.unfold(dim, reach, stride)[..., ::dilation]


def reduce_windows(
    x: Tensor,
    op: str,
    fill: float,
    window: list[int],
    strides: list[int],
    padding: list[list[int]],
    base_dilation: list[int],
    window_dilation: list[int],
) -> Tensor:
    """Reduce each window, one dimension after the other."""
    x = spread_out(x, fill, padding, base_dilation)
    for dim in range(x.dim()):
        if (window[dim], strides[dim]) != (1, 1):
            parts = sliding(x, dim, window[dim], strides[dim], window_dilation[dim])
            if op in ("max", "min"):
                x = parts.amax(-1) if op == "max" else parts.amin(-1)
            else:
                x = (parts.sum if op == "add" else parts.prod)(-1, dtype=x.dtype)
    return x


def scatter_to_chosen(
    x: Tensor,
    source: Tensor,
    op: str,
    window: list[int],
    strides: list[int],
    padding: list[list[int]],
    base_dilation: list[int],
    window_dilation: list[int],
) -> Tensor:
    """Add each element of `source` to the element of `x` that its window's `op` selects.

    The first of equal elements in a window is selected, and a NaN before all others.
    """
    if not source.numel():
        return torch.zeros_like(x)
    news = as_words(source)
    inner = spread_out(in_order(x), 0, padding, base_dilation)
    real = spread_out(torch.ones_like(x, dtype=torch.bool), 0, padding, base_dilation)
    places = list(itertools.product(*map(range, window)))

    def seen(place: tuple[int, ...]) -> tuple[slice, ...]:
        """Return the slices that select one offset within all windows."""
        starts = [p * step for p, step in zip(place, window_dilation, strict=True)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, source.shape, strides, strict=True)]
        return tuple(map(slice, starts, ends, strides))

    best = torch.zeros_like(source, dtype=inner.dtype)
    choice = torch.full_like(source, -1, dtype=torch.int64)
    for number, place in enumerate(places):
        here, exists = inner[seen(place)], real[seen(place)]
        better = here > best if op == "max" else here < best
        better = better | ((here != here) & (best == best))
        better = exists & (better | (choice < 0))
        best = torch.where(better, here, best)
        choice = torch.where(better, number, choice)
    wide = torch.float32 if x.is_floating_point() and x.element_size() < 4 else news.dtype
    total = torch.zeros_like(inner, dtype=wide)
    for number, place in enumerate(places):
        total[seen(place)] += torch.where(choice == number, news, 0).to(wide)
    low, high = [-lo for lo, _ in padding], [-hi for _, hi in padding]
    nothing = torch.zeros((), dtype=wide, device=x.device)
    dense = pad_with(total, nothing, low, high, [0] * x.dim())
    kept = dense[tuple(slice(None, None, step) for step in base_dilation)]
    return kept.to(news.dtype).view(x.dtype)


def batch_as_features(x: Tensor, groups: int) -> Tensor:
    """Move groups of the batch dimension to groups of features."""
    batch, features, *places = x.shape
    x = x.reshape(groups, batch // groups, features, *places).transpose(0, 1)
    return x.reshape(batch // groups, groups * features, *places)


def convolve_windows(
    x: Tensor,
    w: Tensor,
    strides: list[int],
    padding: list[list[int]],
    lhs_dilation: list[int],
    rhs_dilation: list[int],
    groups: int,
) -> Tensor:
    """Return a convolution of any rank and type: [batch, features, spatial] with [outputs, inputs,
    window].

    Windows are rows of a matrix, which is multiplied with the filter, group by group.
    """
    rank = len(strides)
    x = spread_out(x, 0, [[0, 0], [0, 0], *padding], [1, 1, *lhs_dilation])
    for i, (size, stride, step) in enumerate(zip(w.shape[2:], strides, rhs_dilation, strict=True)):
        x = sliding(x, 2 + i, size, stride, step)
    batch, features, places = x.shape[0], x.shape[1], x.shape[2 : 2 + rank]
    inner = features // groups * math.prod(w.shape[2:])
    x = x.reshape(batch, groups, features // groups, *x.shape[2:])
    x = x.permute(1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    x = x.reshape(groups, batch * math.prod(places), inner)
    filters = w.reshape(groups, w.shape[0] // groups, inner).transpose(1, 2)
    made = multiply_exactly(x, filters) if not x.is_floating_point() else x @ filters
    made = made.reshape(groups, batch, *places, -1)
    made = made.permute(1, 0, 2 + rank, *range(2, 2 + rank))
    return made.reshape(batch, w.shape[0], *places)
