"""Sorting with NumPy, whose sorts of numbers are vectorised: lines are shared by threads.

A key of at most 32 bits and the place where it was make one 64-bit word, so that sorting words is
a stable sort of keys that says where each came from.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.cpu.kernels import Kernel, kernels
from shardir.backends.cpu.sharing import parts, share
from shardir.ir import Op
from shardir.ops.check import Ints
from shardir.ops.numerics import NARROW, is_float, total_order
from shardir.opset import OPS
from shardir.types import dtype_name

Array = npt.NDArray[Any]
Lines = Callable[..., tuple[Array, ...]]
"""Arrays of lines, the last dimension the one that is sorted -> results."""

CHUNK = 1 << 17
"""How many elements are sorted at a time, so that the passes over them stay in the cache."""
SHARED = 1 << 17
"""From so many elements on, threads share the lines."""
LONG, RUNS = 1 << 18, 2
"""Lines of so many elements are sorted in so many runs. Few runs: merging takes time, too."""


def sort(
    *xs: Array,
    dim: int,
    result: Any,
    keys: int = 1,
    stable: bool = True,
    wanted: Ints = (),
    order: int | None = None,
) -> tuple[Array, ...] | Array:
    """The operation `sort` on arrays; see `shardir.ops.sort`."""
    lined = tuple(np.moveaxis(x, dim, -1) for x in xs)
    compound = any(x.dtype.kind == "c" for x in xs[:keys])
    if xs[0].size == 0 or (compound and len(xs) > 1):
        reference = OPS["sort"].reference
        assert reference is not None

        def by_reference(*chunks: Array) -> tuple[Array, ...]:
            made = reference(*chunks, dim=chunks[0].ndim - 1, result=result, keys=keys)
            return made if isinstance(made, tuple) else (made,)

        found = _in_chunks(by_reference, lined, [xs[0].shape[dim]] * len(xs))
    else:
        sorted_lines = partial(_sorted_along, keys) if len(xs) > 1 else _sorted_alone
        found = _in_chunks(sorted_lines, lined, [xs[0].shape[dim]] * len(xs))
    results = tuple(np.moveaxis(x, -1, dim) for x in found)
    return results if len(xs) > 1 else results[0]


def top_k(x: Array, *, result: Any) -> tuple[Array, Array]:
    """The operation `top_k` on an array; see `shardir.ops.sort`."""
    count = result[0].shape[-1]

    def largest(lines: Array) -> tuple[Array, ...]:
        order = _largest(lines, count)
        return np.take_along_axis(lines, order, -1), order.astype(np.int32)

    values, indices = _in_chunks(largest, (x,), [count, count], (x.dtype, np.dtype(np.int32)))
    return values, indices


def _in_chunks(
    compute: Lines,
    xs: tuple[Array, ...],
    extents: list[int],
    dtypes: tuple[np.dtype[Any], ...] | None = None,
) -> tuple[Array, ...]:
    """`compute` on some lines at a time; its results have lines of `extents` elements."""
    around, length = xs[0].shape[:-1], xs[0].shape[-1]
    flat = [x.reshape(-1, length) if x.size else x.reshape(0, length) for x in xs]
    count = xs[0].size // max(length, 1)
    kinds = dtypes or tuple(x.dtype for x in xs)
    outs = [np.empty((count, n), kind) for n, kind in zip(extents, kinds, strict=True)]

    def run(lines: slice) -> None:
        for out, made in zip(outs, compute(*(x[lines] for x in flat)), strict=True):
            out[lines] = made

    pieces = list(parts(count, max(1, CHUNK // max(length, 1))))
    if xs[0].size >= SHARED:
        share(run, pieces)
    else:
        for piece in pieces:
            run(piece)
    return tuple(out.reshape(*around, n) for out, n in zip(outs, extents, strict=True))


def _sorted_alone(x: Array) -> tuple[Array, ...]:
    """Lines in rising order, NaN last. Equal zeros keep the order of their signs."""
    if x.dtype.kind == "c":
        return (np.sort(x, axis=-1, kind="stable"),)
    narrow = dtype_name(x.dtype) in NARROW
    lines = x.astype(np.float32) if narrow else np.array(x)
    _sort_in_place(lines)
    if is_float(x):
        before = x == 0
        if before.any() and np.signbit(x[before]).any():
            lines[lines == 0] = x[before]
    return (lines.astype(x.dtype) if narrow else lines,)


def _sort_in_place(lines: Array) -> None:
    """Long lines in runs, which threads share; what a stable sort does with runs is merge them."""
    length = lines.shape[-1]
    if length >= LONG:

        def run(piece: slice) -> None:
            lines[..., piece].sort(axis=-1)

        share(run, list(parts(length, -(-length // RUNS))))
    lines.sort(axis=-1, kind="stable" if length >= LONG else None)


def _sorted_along(keys: int, *xs: Array) -> tuple[Array, ...]:
    """Lines in the stable order of the first `keys`: sorted by the last of them first."""
    order = _places(xs[keys - 1])
    for key in reversed(xs[: keys - 1]):
        order = np.take_along_axis(order, _places(np.take_along_axis(key, order, -1)), -1)
    return tuple(np.take_along_axis(x, order, -1) for x in xs)


def _places(key: Array) -> Array:
    """Where the elements of sorted lines were; equal ones in their order."""
    words = _words(key)
    if words is None:
        return np.argsort(key, axis=-1, kind="stable")
    _sort_in_place(words)
    places: Array = (words & np.uint64(0xFFFFFFFF)).view(np.int64)
    return places


def _largest(x: Array, count: int) -> Array:
    """Where the largest are, in falling order; the first of equals first."""
    length = x.shape[-1]
    keys = _rising(total_order(x))
    if keys is None or count == 0:
        order = np.argsort(np.flip(total_order(x), -1), axis=-1, kind="stable")
        last: Array = length - 1 - np.flip(order, -1)[..., :count]
        return last
    words = _packed(~keys)
    if count < length:
        words.partition(count - 1, axis=-1)
    chosen = words[..., :count]
    chosen.sort(axis=-1)
    places: Array = (chosen & np.uint64(0xFFFFFFFF)).view(np.int64)
    return places


def _words(x: Array) -> Array | None:
    """Keys and places in one; `None` for keys of 64 bits."""
    if is_float(x):
        if x.dtype.itemsize > 4:
            return None
        plain = x.astype(np.float32) + np.float32(0)  # makes +0 of -0
        plain[plain != plain] = np.nan
        keys = _rising(total_order(plain))
    else:
        keys = _rising(x)
    return None if keys is None else _packed(keys)


def _rising(whole: Array) -> Array | None:
    """Integers as u32 in the same order; `None` for those of 64 bits."""
    if whole.dtype.itemsize > 4:
        return None
    if whole.dtype.kind == "i":
        return whole.astype(np.int32).view(np.uint32) ^ np.uint32(1 << 31)
    return whole.astype(np.uint32)


def _packed(keys: Array) -> Array:
    words = keys.astype(np.uint64)
    words <<= np.uint64(32)
    words |= np.arange(keys.shape[-1], dtype=np.uint64)
    return words


@kernels.rule(OPS["sort"], OPS["top_k"])
def _ordering(op: Op) -> Kernel:
    types = tuple(value.type for value in op.results)
    compute = sort if op.name == "sort" else top_k
    return partial(compute, result=types[0] if len(types) == 1 else types, **op.attrs)
