"""Dimensions split, reordered and joined: at most a reshape, a transpose and a reshape."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

from shardir.ir import Value
from shardir.ops.check import Ints


def arranged(b: Any, x: Value, split: Sequence[Ints], order: Sequence[Ints]) -> Value:
    """`x` with its dimensions split, their parts put in order, and some joined.

    `split` has the sizes of the parts of each dimension, major first; the parts are numbered one
    after the other. `order` has the parts of each dimension of the result.
    """
    sizes = [size for parts in split for size in parts]
    apart = reshaped(b, x, sizes)
    perm = tuple(part for parts in order for part in parts)
    moved = apart if perm == tuple(range(len(perm))) else b.transpose(apart, perm=perm)
    return reshaped(b, moved, [prod(sizes[part] for part in parts) for parts in order])


def reshaped(b: Any, x: Value, shape: Sequence[int]) -> Value:
    """`x` in another shape; `x` itself if that is its own."""
    if x.type.shape == tuple(shape):
        return x
    made: Value = b.reshape(x, result=x.type.with_shape(shape))
    return made


def numbered(split: Sequence[Ints]) -> list[Ints]:
    """The numbers of the parts of each dimension."""
    ends = list(accumulate((len(parts) for parts in split), initial=0))
    return [tuple(range(at, at + len(parts))) for at, parts in zip(ends, split, strict=False)]


def rows(b: Any, x: Value, dim: int, start: int, count: int, step: int = 1) -> Value:
    """`count` rows of dimension `dim`, every `step`-th from `start` on; `x` if these are all."""
    shape = x.type.shape
    if (start, count, step) == (0, shape[dim], 1):
        return x
    starts = tuple(start if d == dim else 0 for d in range(len(shape)))
    strides = tuple(step if d == dim else 1 for d in range(len(shape)))
    to = x.type.with_shape((*shape[:dim], count, *shape[dim + 1 :]))
    made: Value = b.slice(x, starts=starts, strides=strides, result=to)
    return made


def joined(b: Any, parts: Sequence[Value]) -> Value:
    """Rows one after the other along the first dimension."""
    made: Value = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return made
