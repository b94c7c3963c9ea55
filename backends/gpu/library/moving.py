"""Parts of tensors cut out and put in, at places that may be known only on the device."""

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words


def pad_with(
    x: Tensor, value: Tensor, low: list[int], high: list[int], interior: list[int]
) -> Tensor:
    """`low` values before, `high` after, `interior` between elements; less than 0 takes away."""
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
    """The `size` places from `start` on, moved inside of `whole` where they would reach out."""
    first = as_words(start).to(torch.int64)
    if start.dtype == torch.uint64:
        first = torch.where(first < 0, whole, first)
    elif start.dtype in (torch.uint16, torch.uint32):
        first = start.to(torch.int64)
    return first.clamp(0, whole - size) + torch.arange(size, device=start.device)


def slice_at(x: Tensor, starts: list[Tensor], sizes: list[int]) -> Tensor:
    """The part of `x` at starts that are known on the device, moved inside."""
    words = as_words(x)
    for dim, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size != x.shape[dim]:
            words = words.index_select(dim, places_at(start, size, x.shape[dim]))
    return words.view(x.dtype)


def update_at(x: Tensor, update: Tensor, starts: list[Tensor]) -> Tensor:
    """`x` with the part at starts that are known on the device replaced."""
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
    """The parts of each element, lowest first, as a new last dimension of narrower elements."""
    return x.contiguous().unsqueeze(-1).view(dtype)


def grow_bits(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Elements that the last dimension holds the parts of, lowest first."""
    return x.clone(memory_format=torch.contiguous_format).view(dtype).squeeze(-1)
