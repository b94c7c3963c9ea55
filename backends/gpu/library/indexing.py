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


def take_along(x: Tensor, places: Tensor, dim: int) -> Tensor:
    """The elements of `x` at places along `dim`, the nearest one where there is none."""
    index = whole_numbers(places).clamp(0, x.shape[dim] - 1)
    return as_words(x).gather(dim, index).view(x.dtype)


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
    whole = [
        window
        for window, dim in windows.items()
        if updates.shape[window] == x.shape[dim] and dim not in index_map
    ]
    led = [d for d in range(updates.dim()) if d not in whole]
    rest = [windows[window] for window in whole]
    lead = [d for d in range(x.dim()) if d not in rest]
    slices = [1 if d in whole else size for d, size in enumerate(updates.shape)]
    places = window_places(list(x.shape), indices, slices, windows, index_map, batching, False)
    extents = [x.shape[d] for d in lead]
    row = torch.zeros(slices, dtype=torch.int64, device=x.device)
    inside = torch.ones(slices, dtype=torch.bool, device=x.device)
    for dim, extent in zip(lead, extents, strict=True):
        inside = inside & (places[dim] >= 0) & (places[dim] < extent)
        row = row * extent + places[dim].clamp(0, extent - 1)
    count = math.prod(extents)
    row = torch.where(inside, row, count).reshape(-1)
    order = lead + rest
    rows = x.permute(order).reshape(count, -1)
    news = updates.permute(led + whole).reshape(row.numel(), -1)
    made = combine_rows(rows, row, news, op).reshape([x.shape[d] for d in order])
    return made.permute([order.index(d) for d in range(x.dim())])


def combine_rows(x: Tensor, row: Tensor, updates: Tensor, op: str) -> Tensor:
    """Rows of `updates` combined into those of `x` that `row` names, if there are such."""
    narrow = x.dtype in (torch.float16, torch.bfloat16) and op in ("add", "mul")
    if narrow:
        return combine_rows(x.float(), row, updates.float(), op).to(x.dtype)
    every = row[:, None].expand_as(updates)
    if op in ("min", "max") or (op == "add" and x.dtype == torch.bool):
        words = in_order(x)
        words = torch.cat([words, words[:1]])
        made = words.scatter_reduce(0, every, in_order(updates), "amin" if op == "min" else "amax")
        return out_of_order(made[:-1], x.dtype)
    words, news = as_words(x), as_words(updates)
    words = torch.cat([words, words[:1]])
    if op == "add":
        return words.index_put([row], news, accumulate=True)[:-1].view(x.dtype)
    if op == "mul":
        return words.scatter_reduce(0, every, news, "prod")[:-1].view(x.dtype)
    order = torch.arange(row.numel(), device=row.device)
    last = row.new_full([words.shape[0]], -1).scatter_reduce(0, row, order, "amax")
    chosen = torch.where((last < 0)[:, None], words, news[last.clamp(min=0)])
    return chosen[:-1].view(x.dtype)
