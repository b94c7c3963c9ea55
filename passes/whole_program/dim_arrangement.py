"""Split, reorder and join dimensions: at most a reshape, a transpose and a reshape."""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ops.type_checks import Ints


def arrange_dims(b: Builder, x: Value, split: Sequence[Ints], order: Sequence[Ints]) -> Value:
    """Return `x` with its dimensions split, the parts reordered, and some joined.

    `split` holds the sizes of the parts of each dimension, major first; the parts are numbered
    consecutively. `order` holds the parts of each dimension of the result.
    """
    sizes = [size for parts in split for size in parts]
    unflattened = reshape_if_needed(b, x, sizes)
    perm = tuple(part for parts in order for part in parts)
    moved = unflattened if perm == tuple(range(len(perm))) else b.transpose(unflattened, perm=perm)
    return reshape_if_needed(b, moved, [prod(sizes[part] for part in parts) for parts in order])


def reshape_if_needed(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """Return `x` reshaped; `x` itself if it has the shape."""
    if x.type.shape == tuple(shape):
        return x
    result: Value = b.reshape(x, result=x.type.with_shape(shape))
    return result


def number_parts(split: Sequence[Ints]) -> list[Ints]:
    """Return the numbers of the parts of each dimension."""
    ends = list(accumulate((len(parts) for parts in split), initial=0))
    return [tuple(range(at, at + len(parts))) for at, parts in zip(ends, split, strict=False)]


def slice_rows(b: Builder, x: Value, dim: int, start: int, count: int, step: int = 1) -> Value:
    """Return `count` rows of dimension `dim`, every `step`-th from `start` on; `x` if these are
    all."""
    shape = x.type.shape
    if (start, count, step) == (0, shape[dim], 1):
        return x
    starts = tuple(start if d == dim else 0 for d in range(len(shape)))
    strides = tuple(step if d == dim else 1 for d in range(len(shape)))
    to = x.type.with_shape((*shape[:dim], count, *shape[dim + 1 :]))
    result: Value = b.slice(x, starts=starts, strides=strides, result=to)
    return result


def concatenate_rows(b: Builder, parts: Sequence[Value]) -> Value:
    """Concatenate values along the first dimension."""
    result: Value = parts[0] if len(parts) == 1 else b.concatenate(*parts, dim=0)
    return result
