"""Gather and scatter: read and write windows at positions given by tensors.

A window starts at an index vector, the last dimension of `indices`. `windows` maps each window
dimension of the slices to a dimension of the operand, `index_map` maps each component of an index
vector to a dimension of the operand, and `batching` maps dimensions of the operand to dimensions of
the indices.
"""

import math

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words, in_order, out_of_order


def whole_numbers(indices: Tensor) -> Tensor:
    """Return indices in i64, clamped to +-2**62."""
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
    """Return the position of each slice element along each dimension of an operand of `shape`.

    Each position tensor broadcasts to the shape `slices`. `clamp` moves out-of-bounds windows
    inside.
    """
    vectors = whole_numbers(indices)
    batch = [d for d in range(len(slices)) if d not in windows]
    along = {operand: window for window, operand in windows.items()}

    def reshape_along(places: Tensor, dims: list[int]) -> Tensor:
        sizes = dict(zip(dims, places.shape, strict=True))
        return places.reshape([sizes.get(d, 1) for d in range(len(slices))])

    found = []
    for dim, extent in enumerate(shape):
        if dim in batching:
            counted = torch.arange(extent, device=indices.device)
            found.append(reshape_along(counted, [batch[batching[dim]]]))
            continue
        start = vectors.new_zeros([1] * len(slices))
        size = slices[along[dim]] if dim in along else 1
        if dim in index_map:
            start = reshape_along(vectors[..., index_map.index(dim)], batch)
            if clamp:
                start = start.clamp(0, max(extent - size, 0))
        if dim in along:
            start = start + reshape_along(torch.arange(size, device=indices.device), [along[dim]])
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
    """Return the windows of `x` at the index vectors; out-of-bounds windows are moved inside."""
    if not math.prod(shape):
        return x.new_empty(shape)
    if not x.dim():
        return x.expand(shape)
    places = window_places(list(x.shape), indices, shape, windows, index_map, batching, clamp=True)
    return as_words(x)[tuple(places)].expand(shape).view(x.dtype)


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return rows of `x` by index; out-of-bounds indices are clamped."""
    places = whole_numbers(rows).clamp(0, x.shape[0] - 1)
    # An index expression with one index would read it on the host.
    taken = as_words(x).index_select(0, places.reshape(-1)).view(x.dtype)
    return taken.reshape((*places.shape, *x.shape[1:]))


def take_along(x: Tensor, places: Tensor, dim: int) -> Tensor:
    """Return the elements of `x` at indices along `dim`; out-of-bounds indices are clamped."""
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
    """Return a copy of `x` combined with the updates; out-of-bounds elements are dropped.

    With `set`, the last of several updates of an element is kept.
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
    """Combine rows of `updates` into the rows `row` of `x`; row `len(x)` is dropped."""
    narrow = x.is_floating_point() and x.element_size() < 4 and op in ("add", "mul")
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
