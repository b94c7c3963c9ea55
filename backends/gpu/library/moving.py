"""Copies in another dimension order, and slices, slice updates and padding at positions that may be
known only on the device."""

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words


def pad_with(
    x: Tensor, value: Tensor, low: list[int], high: list[int], interior: list[int]
) -> Tensor:
    """Pad with `low` values before, `high` after, `interior` between elements; negative values
    crop.
    """
    spaced = [n + max(n - 1, 0) * gap for n, gap in zip(x.shape, interior, strict=True)]
    shape = [n + before + after for n, before, after in zip(spaced, low, high, strict=True)]
    made = value.expand(shape).clone()
    if not x.numel() or not made.numel():
        return made
    source, target = [], []
    for n, before, gap, extent in zip(x.shape, low, interior, shape, strict=True):
        step = gap + 1
        first = max(-(before // step), 0)
        last = max(min(n, -((before - extent) // step)), first)
        source.append(slice(first, last))
        start = before + first * step
        target.append(slice(start, start + (last - first) * step, step))
    made[tuple(target)] = x[tuple(source)]
    return made


def places_at(start: Tensor, size: int, whole: int) -> Tensor:
    """Return `size` indices from `start` on, moved inside a dimension of size `whole`."""
    first = as_words(start).to(torch.int64)
    if start.dtype == torch.uint64:
        first = torch.where(first < 0, whole, first)
    elif start.dtype in (torch.uint16, torch.uint32):
        first = start.to(torch.int64)
    return first.clamp(0, whole - size) + torch.arange(size, device=start.device)


def slice_at(x: Tensor, starts: list[Tensor], sizes: list[int]) -> Tensor:
    """Return the slice of `x` at starts that are tensors, moved inside."""
    words = as_words(x)
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size != x.shape[dim]:
            words = words.index_select(dim, places_at(start, size, x.shape[dim]))
    return words.view(x.dtype)


def update_at(x: Tensor, update: Tensor, starts: list[Tensor]) -> Tensor:
    """Return `x` with the slice at starts that are tensors replaced."""
    if update.shape == x.shape:
        return update
    if not update.numel():
        return x
    index = []
    for dim, (start, size) in enumerate(zip(starts, update.shape, strict=True)):
        shape = [-1 if d == dim else 1 for d in range(x.dim())]
        index.append(places_at(start, size, x.shape[dim]).reshape(shape))
    return as_words(x).index_put(index, as_words(update)).view(x.dtype)


def shrink_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Split each element into narrower elements, lowest bits first, along a new last dimension."""
    return x.contiguous().unsqueeze(-1).view(dtype)


def grow_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Join the narrower elements of the last dimension, lowest bits first, into wider ones."""
    return x.clone(memory_format=torch.contiguous_format).view(dtype).squeeze(-1)


def copy_permuted(x: Tensor, perm: list[int]) -> Tensor:
    """Return a copy of `x.permute(perm)` whose last two dimensions are matrices without gaps.

    torch copies single elements, which takes a multiple of the time for elements of two bytes; rows
    are therefore copied in words of 16 bytes. If the contiguous dimension of `x` becomes the second
    to last, the copy is a view of transposed matrices, which products read directly.
    """
    if perm[-2] == x.dim() - 1:
        return copy_permuted(x, [*perm[:-2], perm[-1], perm[-2]]).mT
    y = x.permute(perm)
    elements = 16 // x.element_size()
    steps = [*y.stride()[:-1], y.shape[-1], y.storage_offset()]
    fits = y.stride(-1) == 1 and not any(step % elements for step in steps)
    if not fits or y.is_conj() or y.is_neg() or not y.numel():
        return y.contiguous()
    return y.view(torch.complex128).contiguous().view(x.dtype)
