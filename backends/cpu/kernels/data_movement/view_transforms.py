"""Views of views: transforms of strides and offsets that move no element."""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.kernel_api import BufferView
from shardir.ir.types import REAL_OF

Ints = Sequence[int]


def broadcast_view(view: BufferView, dims: Ints, shape: Ints) -> BufferView:
    """Return the view whose dimension dims[i] is dimension i of `view`; the others are
    broadcast."""
    strides = [0] * len(shape)
    for size, stride, dim in zip(view.shape, view.strides, dims, strict=True):
        strides[dim] = stride if size == shape[dim] else 0
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def as_real_parts(view: BufferView) -> BufferView:
    """Return a complex view as (real, imaginary) floats along a new last dimension; other views as
    is."""
    if view.dtype not in REAL_OF:
        return view
    return view._replace(
        shape=(*view.shape, 2),
        strides=(*view.strides, view.itemsize // 2),
        dtype=REAL_OF[view.dtype],
    )


def slice_view(view: BufferView, starts: Ints, steps: Ints, shape: Ints) -> BufferView:
    """Return every steps[d]-th element from starts[d], `shape[d]` of them."""
    offset = sum(start * stride for start, stride in zip(starts, view.strides, strict=True))
    return view._replace(
        offset=view.offset + (offset if prod(shape) else 0),
        shape=tuple(shape),
        strides=tuple(step * stride for step, stride in zip(steps, view.strides, strict=True)),
    )


def slice_dim(view: BufferView, dim: int, start: int, size: int) -> BufferView:
    """Return the `size` elements from `start` along one dimension."""
    shape = list(view.shape)
    shape[dim] = size
    starts = [start if d == dim else 0 for d in range(len(shape))]
    return slice_view(view, starts, [1] * len(shape), shape)


def reverse_view(view: BufferView, dims: Ints) -> BufferView:
    """Return the view with the elements along `dims` reversed."""
    offset, strides = view.offset, list(view.strides)
    for d in dims:
        offset += max(view.shape[d] - 1, 0) * strides[d]
        strides[d] = -strides[d]
    return view._replace(offset=offset, strides=tuple(strides))
