"""Views of views: what arranges elements without moving them."""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.native.data import View
from shardir.types import REAL_OF

Ints = Sequence[int]


def transposed(view: View, perm: Ints) -> View:
    """Dimension i is dimension perm[i] of `view`."""
    return view._replace(
        shape=tuple(view.shape[d] for d in perm),
        strides=tuple(view.strides[d] for d in perm),
    )


def broadcasted(view: View, dims: Ints, shape: Ints) -> View:
    """Dimension i of `view` becomes dimension dims[i] of `shape`; the others repeat."""
    strides = [0] * len(shape)
    for size, stride, dim in zip(view.shape, view.strides, dims, strict=True):
        strides[dim] = stride if size == shape[dim] else 0
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def in_parts(view: View) -> View:
    """Complex numbers as pairs of floats, along one more dimension; others as they are."""
    if view.dtype not in REAL_OF:
        return view
    return view._replace(
        shape=(*view.shape, 2),
        strides=(*view.strides, view.itemsize // 2),
        dtype=REAL_OF[view.dtype],
    )


def sliced(view: View, starts: Ints, steps: Ints, shape: Ints) -> View:
    """Every steps[d]-th element from starts[d] on, as many as `shape` says."""
    offset = sum(start * stride for start, stride in zip(starts, view.strides, strict=True))
    return view._replace(
        offset=view.offset + (offset if prod(shape) else 0),
        shape=tuple(shape),
        strides=tuple(step * stride for step, stride in zip(steps, view.strides, strict=True)),
    )


def part(view: View, dim: int, start: int, size: int) -> View:
    """The `size` elements from `start` on along one dimension."""
    shape = list(view.shape)
    shape[dim] = size
    starts = [start if d == dim else 0 for d in range(len(shape))]
    return sliced(view, starts, [1] * len(shape), shape)


def turned(view: View, dims: Ints) -> View:
    """The order of elements along `dims` turned around."""
    offset, strides = view.offset, list(view.strides)
    for d in dims:
        offset += max(view.shape[d] - 1, 0) * strides[d]
        strides[d] = -strides[d]
    return view._replace(offset=offset, strides=tuple(strides))
