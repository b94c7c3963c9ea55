"""Sort with NumPy, whose sorts are vectorized; threads share the lines.

A key of at most 32 bits and its index form one 64-bit word, so that sorting the words is a stable
argsort.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardir import ops
from shardir.backends.numpy.kernel_table import Kernel, kernels
from shardir.backends.numpy.threads import run_on_threads, split_range
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import NumpyArray, NumpyDType, dtype_name
from shardir.ops.elementwise.numerics import is_float, total_order_key
from shardir.ops.type_checks import Ints

Array = NumpyArray
LineFunction = Callable[..., tuple[Array, ...]]
"""Maps arrays of lines, sorted along their last dimension, to results."""

MAX_CHUNK_ELEMENTS = 1 << 17
"""Elements that are sorted at a time, so that the passes over them stay in the cache."""
MIN_PARALLEL_ELEMENTS = 1 << 17
"""Elements from which on threads share the lines."""
MIN_RUN_SORT_ELEMENTS, RUNS_PER_LINE = 1 << 18, 2
"""A line of at least `MIN_RUN_SORT_ELEMENTS` elements is sorted in `RUNS_PER_LINE` runs. More runs
would take more time to merge."""


def sort(
    *xs: Array,
    dim: int,
    result: object,
    keys: int = 1,
    stable: bool = True,
    positions: Ints = (),
    order: int | None = None,
) -> tuple[Array, ...] | Array:
    """Return the results of the operation `sort` on arrays; see `shardir.ops.reductions.sort`."""
    lined = tuple(np.moveaxis(x, dim, -1) for x in xs)
    compound = any(x.dtype.kind == "c" for x in xs[:keys])
    if xs[0].size == 0 or (compound and len(xs) > 1):
        spec = OPS["sort"]
        reference = spec.reference
        assert reference is not None

        def by_reference(*chunks: Array) -> tuple[Array, ...]:
            attributes = spec.rule_arguments({"dim": chunks[0].ndim - 1, "keys": keys})
            results_of_chunk = reference(*chunks, result=result, **attributes)
            return results_of_chunk if isinstance(results_of_chunk, tuple) else (results_of_chunk,)

        found = _compute_in_chunks(by_reference, lined, [xs[0].shape[dim]] * len(xs))
    else:
        sorted_lines = partial(_sort_with_payload, keys) if len(xs) > 1 else _sort_single_key
        found = _compute_in_chunks(sorted_lines, lined, [xs[0].shape[dim]] * len(xs))
    results = tuple(np.moveaxis(x, -1, dim) for x in found)
    return results if len(xs) > 1 else results[0]


def top_k(x: Array, *, result: Any) -> tuple[Array, Array]:
    """Return the results of the operation `top_k` on an array; see
    `shardir.ops.reductions.sort`."""
    count = result[0].shape[-1]

    def largest(lines: Array) -> tuple[Array, ...]:
        order = _top_k_indices(lines, count)
        return np.take_along_axis(lines, order, -1), order.astype(np.int32)

    values, indices = _compute_in_chunks(
        largest, (x,), [count, count], (x.dtype, np.dtype(np.int32))
    )
    return values, indices


def _compute_in_chunks(
    compute: LineFunction,
    xs: tuple[Array, ...],
    extents: list[int],
    dtypes: tuple[NumpyDType, ...] | None = None,
) -> tuple[Array, ...]:
    """Apply `compute` to chunks of lines; the lines of its results have `extents` elements."""
    batch, length = xs[0].shape[:-1], xs[0].shape[-1]
    flat = [x.reshape(-1, length) if x.size else x.reshape(0, length) for x in xs]
    count = xs[0].size // max(length, 1)
    kinds = dtypes or tuple(x.dtype for x in xs)
    outs = [np.empty((count, n), kind) for n, kind in zip(extents, kinds, strict=True)]

    def run(lines: slice) -> None:
        for out, result in zip(outs, compute(*(x[lines] for x in flat)), strict=True):
            out[lines] = result

    pieces = list(split_range(count, max(1, MAX_CHUNK_ELEMENTS // max(length, 1))))
    if xs[0].size >= MIN_PARALLEL_ELEMENTS:
        run_on_threads(run, pieces)
    else:
        for piece in pieces:
            run(piece)
    return tuple(out.reshape(*batch, n) for out, n in zip(outs, extents, strict=True))


def _sort_single_key(x: Array) -> tuple[Array, ...]:
    """Sort lines in ascending order, NaN last; equal zeros keep the order of their signs."""
    if x.dtype.kind == "c":
        return (np.sort(x, axis=-1, kind="stable"),)
    narrow = dtype_name(x.dtype) in NARROW_FLOATS
    lines = x.astype(np.float32) if narrow else np.array(x)
    _sort_in_place(lines)
    if is_float(x):
        before = x == 0
        if before.any() and np.signbit(x[before]).any():
            lines[lines == 0] = x[before]
    return (lines.astype(x.dtype) if narrow else lines,)


def _sort_in_place(lines: Array) -> None:
    """Sort lines in place; long ones in runs on several threads, which a stable sort merges."""
    length = lines.shape[-1]
    if length >= MIN_RUN_SORT_ELEMENTS:

        def run(piece: slice) -> None:
            lines[..., piece].sort(axis=-1)

        run_on_threads(run, list(split_range(length, -(-length // RUNS_PER_LINE))))
    lines.sort(axis=-1, kind="stable" if length >= MIN_RUN_SORT_ELEMENTS else None)


def _sort_with_payload(keys: int, *xs: Array) -> tuple[Array, ...]:
    """Sort lines stably by the first `keys` operands, starting with the last of these."""
    order = _argsort(xs[keys - 1])
    for key in reversed(xs[: keys - 1]):
        order = np.take_along_axis(order, _argsort(np.take_along_axis(key, order, -1)), -1)
    return tuple(np.take_along_axis(x, order, -1) for x in xs)


def _argsort(key: Array) -> Array:
    """Return the indices of the elements in stable sorted order."""
    words = _key_index_words(key)
    if words is None:
        return np.argsort(key, axis=-1, kind="stable")
    _sort_in_place(words)
    places: Array = (words & np.uint64(0xFFFFFFFF)).view(np.int64)
    return places


def _top_k_indices(x: Array, count: int) -> Array:
    """Return the indices of the largest elements in descending order; of equal ones the first comes
    first."""
    length = x.shape[-1]
    keys = _to_ordered_u32(total_order_key(x))
    if keys is None or count == 0:
        order = np.argsort(np.flip(total_order_key(x), -1), axis=-1, kind="stable")
        last: Array = length - 1 - np.flip(order, -1)[..., :count]
        return last
    words = _pack_key_index(~keys)
    if count < length:
        words.partition(count - 1, axis=-1)
    chosen = words[..., :count]
    chosen.sort(axis=-1)
    places: Array = (chosen & np.uint64(0xFFFFFFFF)).view(np.int64)
    return places


def _key_index_words(x: Array) -> Array | None:
    """Pack keys and indices into 64-bit words; `None` for keys of 64 bits."""
    if is_float(x):
        if x.dtype.itemsize > 4:
            return None
        plain = x.astype(np.float32) + np.float32(0)  # Turns -0 into +0.
        plain[plain != plain] = np.nan
        keys = _to_ordered_u32(total_order_key(plain))
    else:
        keys = _to_ordered_u32(x)
    return None if keys is None else _pack_key_index(keys)


def _to_ordered_u32(integers: Array) -> Array | None:
    """Map integers to u32 in the same order; `None` for those of 64 bits."""
    if integers.dtype.itemsize > 4:
        return None
    if integers.dtype.kind == "i":
        return integers.astype(np.int32).view(np.uint32) ^ np.uint32(1 << 31)
    return integers.astype(np.uint32)


def _pack_key_index(keys: Array) -> Array:
    words = keys.astype(np.uint64)
    words <<= np.uint64(32)
    words |= np.arange(keys.shape[-1], dtype=np.uint64)
    return words


@kernels.rule(OPS["sort"], OPS["top_k"])
def _sort_kernel(op: Op) -> Kernel:
    types = tuple(value.type for value in op.results)
    compute = sort if op.spec is ops.sort else top_k
    return partial(compute, result=types[0] if len(types) == 1 else types, **op.attrs)
