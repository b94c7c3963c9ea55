"""Sort by several keys, and top-k."""

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words, in_order
from shardir.backends.gpu.library.numbers import total_order


def order_of(keys: list[Tensor], dim: int) -> Tensor:
    """Return the permutation that sorts stably along `dim`; the first key is the major one."""
    parts = [part for key in keys for part in ([key.real, key.imag] if key.is_complex() else [key])]
    order = None
    for part in reversed(parts):
        words = in_order(part)
        if words.is_floating_point():
            words = torch.where(words == 0, torch.zeros_like(words), words)
        if order is not None:
            words = words.gather(dim, order)
        found = torch.sort(words, dim=dim, stable=True).indices
        order = found if order is None else order.gather(dim, found)
    return order


def in_places(x: Tensor, order: Tensor, dim: int) -> Tensor:
    """Return the elements of `x` along `dim`, permuted by `order`."""
    return as_words(x).gather(dim, order).view(x.dtype)


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest elements along the last dimension, descending, and their indices; ties in
    order of index.
    """
    words = total_order(x) if x.is_floating_point() else in_order(x)
    order = torch.sort(words, dim=-1, descending=True, stable=True).indices[..., :count]
    return in_places(x, order, -1), order.to(torch.int32)
