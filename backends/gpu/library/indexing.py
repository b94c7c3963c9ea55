"""Gather and scatter: reading and writing windows at places that tensors hold.

A window starts at an index vector, the last dimension of `indices`. `windows` says which dimension
of the operand each window dimension of the slices runs along, `index_map` along which dimension of
the operand each component of an index vector counts, and `batching` which dimensions of the
operand run along dimensions of the indices.
"""

import math

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words, in_order, out_of_order


def whole_numbers(indices: Tensor) -> Tensor:
    """Indices in i64, cut off far outside."""
    far = 1 << 62
    if indices.dtype == torch.uint64:
        word = indices.view(torch.int64)
        return torch.where((word < 0) | (word > far), far, word)
    return indices.to(torch.int64).clamp(-far, far)


def window_places(
    shape: list[int],
    indices: Tensor,
    slices: list[int],
    windows: dict[int, int],
    index_map: list[int],
    batching: dict[int, int],
    clamp: bool,
) -> list[Tensor]:
    """For each dimension of an operand of `shape`, where each element of the slices lies in it.

    Each place broadcasts to the shape `slices`. `clamp` moves windows that reach outside back in.
    """
    vectors = whole_numbers(indices)
    batch = [d for d in range(len(slices)) if d not in windows]
    along = {operand: window for window, operand in windows.items()}

    def spread(places: Tensor, dims: list[int]) -> Tensor:
        sizes = dict(zip(dims, places.shape, strict=True))
        return places.reshape([sizes.get(d, 1) for d in range(len(slices))])

    found = []
    for dim, extent in enumerate(shape):
        if dim in batching:
            counted = torch.arange(extent, device=indices.device)
            found.append(spread(counted, [batch[batching[dim]]]))
            continue
        start = vectors.new_zeros([1] * len(slices))
        size = slices[along[dim]] if dim in along else 1
        if dim in index_map:
            start = spread(vectors[..., index_map.index(dim)], batch)
            if clamp:
                start = start.clamp(0, max(extent - size, 0))
        if dim in along:
            start = start + spread(torch.arange(size, device=indices.device), [along[dim]])
        found.append(start)
    return found


def gather_windows(
    x: Tensor,
    indices: Tensor,
    shape: list[int],
    windows: dict[int, int],
    index_map: list[int],
    batching: dict[int, int],
) -> Tensor:
    """The windows of `x` at the index vectors, moved inside where they would reach out."""
    if not math.prod(shape):
        return x.new_empty(shape)
    if not x.dim():
        return x.expand(shape)
    places = window_places(list(x.shape), indices, shape, windows, index_map, batching, clamp=True)
    return as_words(x)[tuple(places)].expand(shape).view(x.dtype)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """The rows of `x` that `rows` names, the nearest one where there is none."""
    places = whole_numbers(rows).clamp(0, x.shape[0] - 1)
    return as_words(x)[places].view(x.dtype)


def scatter_windows(
    x: Tensor,
    indices: Tensor,
    updates: Tensor,
    op: str,
    windows: dict[int, int],
    index_map: list[int],
    batching: dict[int, int],
) -> Tensor:
    """Updates combined into a copy of `x`; elements that fall outside are dropped.

    With `set` the last of several updates of one element stays.
    """
    if not updates.numel() or not x.numel():
        return x
    slices = list(updates.shape)
    places = window_places(list(x.shape), indices, slices, windows, index_map, batching, False)
    spare = x.numel()
    row = torch.zeros(slices, dtype=torch.int64, device=x.device)
    inside = torch.ones(slices, dtype=torch.bool, device=x.device)
    for place, extent in zip(places, x.shape, strict=True):
        inside = inside & (place >= 0) & (place < extent)
        row = row * extent + place.clamp(0, extent - 1)
    row = torch.where(inside, row, spare).reshape(-1)
    return combine_rows(x.reshape(-1), row, updates.reshape(-1), op).reshape(x.shape)


def combine_rows(x: Tensor, row: Tensor, updates: Tensor, op: str) -> Tensor:
    """Elements of `updates` combined into those of `x` that `row` names, if there are such."""
    narrow = x.dtype in (torch.float16, torch.bfloat16) and op in ("add", "mul")
    if narrow:
        x, updates, made = x.float(), updates.float(), x.dtype
        return combine_rows(x, row, updates, op).to(made)
    if op in ("min", "max") or (op == "add" and x.dtype == torch.bool):
        reduce = "amin" if op == "min" else "amax"
        words = torch.cat([in_order(x), in_order(x[:1])])
        made = words.scatter_reduce(0, row, in_order(updates), reduce)
        return out_of_order(made[:-1], x.dtype)
    words, news = as_words(x), as_words(updates)
    words = torch.cat([words, words[:1]])
    if op == "add":
        return words.index_put([row], news, accumulate=True)[:-1].view(x.dtype)
    if op == "mul":
        return words.scatter_reduce(0, row, news, "prod")[:-1].view(x.dtype)
    order = torch.arange(row.numel(), device=row.device)
    last = row.new_full([words.numel()], -1).scatter_reduce(0, row, order, "amax")
    return torch.where(last < 0, words, news[last.clamp(min=0)])[:-1].view(x.dtype)
