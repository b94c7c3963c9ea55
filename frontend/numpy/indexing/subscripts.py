"""Parsing of index expressions: `x[1:3, None, i, [0, 2]]` becomes a `Subscript`.

The result has two parts. The part that determines the shape (slices, integers, new dimensions) is
concrete while tracing and hashable; index arrays, concrete or traced, are kept separately. Boolean
masks must be concrete: they become the index arrays of their true elements.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardir.errors import count_noun
from shardir.frontend.arrays.array import fits_dtype, signature_of_numpy
from shardir.frontend.arrays.numpy_conversion import to_numpy
from shardir.frontend.config import config
from shardir.frontend.errors import IndexingError, TracedValueError
from shardir.frontend.numpy.indexing.index_items import (
    Index,
    IndexArray,
    IndexItem,
    canonicalize_item,
    is_mask,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import broadcast_shapes
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import NumpyArray


@dataclass(frozen=True, slots=True)
class Span:
    """`size` indices from `start` on, with distance `stride`.

    `reverse` states that the order is from the last to the first; `point` states that the span is
    one integer, whose dimension the result does not have.
    """

    start: int
    size: int
    stride: int = 1
    reverse: bool = False
    point: bool = False


@dataclass(frozen=True, slots=True)
class Subscript:
    """A parsed index of an array of shape `operand`.

    The result has the dimensions of the spans that are not points, in order; the dimensions
    `batch`, which all index arrays share, precede the dimension number `lead`. New dimensions of
    size 1 are at the positions `new` of the result.
    """

    operand: tuple[int, ...]
    spans: tuple[Span | None, ...]
    """One span per dimension; `None` for a dimension that an index array indexes."""
    batch: tuple[int, ...] = ()
    lead: int = 0
    new: tuple[int, ...] = ()
    is_concrete: bool = False
    """True if the index arrays are concrete: one array with index vectors in its last dimension."""
    wraps: bool = True
    """True if negative elements of index arrays count from the end; they are out of range
    otherwise."""

    @property
    def indexed_dims(self) -> tuple[int, ...]:
        """Return the dimensions that index arrays index."""
        return tuple(d for d, span in enumerate(self.spans) if span is None)

    @property
    def kept_dims(self) -> tuple[int, ...]:
        """Return the dimensions of the operand that the result has."""
        return tuple(d for d, span in enumerate(self.spans) if span and not span.point)

    @property
    def shape_without_new(self) -> tuple[int, ...]:
        """Return the shape of the result without new dimensions."""
        sizes = tuple(span.size for span in self.spans if span and not span.point)
        return sizes[: self.lead] + self.batch + sizes[self.lead :]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the result."""
        rest = iter(self.shape_without_new)
        rank = len(self.shape_without_new) + len(self.new)
        return tuple(1 if d in self.new else next(rest) for d in range(rank))


ParsedSubscript = tuple[Subscript, tuple[IndexArray, ...]]
"""A subscript and its index arrays: one concrete array of index vectors, or one per dimension."""


MAX_CACHED_SUBSCRIPTS = 4096
"""The maximum number of subscripts in the cache."""

_subscript_cache: dict[object, ParsedSubscript] = {}


def parse_subscript(
    shape: tuple[int, ...], index: Index, beyond: bool = False, wraps: bool = True
) -> ParsedSubscript:
    """Parse `index` as NumPy does for an array of `shape`.

    With `beyond`, an integer out of range becomes an index array, to which the mode applies; so it
    does unless the setting `check_static_indices` is true. Unless `wraps`, negative integers are
    out of range.

    Raise `IndexingError` for an object that is not an index, or an index out of range, and
    `TracedValueError` for a mask or bounds of a slice that are traced.
    """
    plain = _static_key(index)
    if plain is None:
        return _parse(shape, index, beyond or not config.check_static_indices, wraps)
    key = shape, plain, wraps
    parsed = _subscript_cache.get(key)
    if parsed is None:
        parsed = _parse(shape, index, beyond or not config.check_static_indices, wraps)
        # An integer that became an index array depends on `beyond` and on the current trace.
        if not parsed[1]:
            if len(_subscript_cache) >= MAX_CACHED_SUBSCRIPTS:
                _subscript_cache.clear()
            _subscript_cache[key] = parsed
    return parsed


def _static_key(index: Index) -> tuple[object, ...] | None:
    """Return an index of Python integers, slices of integers, `None` and `...` as a hashable
    key.
    """
    key: list[object] = []
    for item in index if isinstance(index, tuple) else (index,):
        kind = type(item)
        if kind is int:
            key.append(item)
        elif kind is slice:
            bounds = item.start, item.stop, item.step
            if not _BOUNDS.issuperset(map(type, bounds)):
                return None
            key.append(bounds)
        elif item is None or item is Ellipsis:
            key.append(kind)
        else:
            return None
    return tuple(key)


_BOUNDS = {int, type(None)}

_INDEX_LIMITS = np.iinfo(np.int32).min, np.iinfo(np.int32).max
"""The range of the elements of index vectors."""


def _parse(shape: tuple[int, ...], index: Index, beyond: bool, wraps: bool) -> ParsedSubscript:
    items = _expand_items(
        [canonicalize_item(i) for i in (index if isinstance(index, tuple) else (index,))], shape
    )
    spans: list[Span | None] = []
    arrays: list[IndexArray] = []
    shapes: list[tuple[int, ...]] = []
    advanced: list[int] = []
    for position, item in enumerate(items):
        if item is None or item is Ellipsis:
            continue
        if isinstance(item, bool):
            advanced.append(position)
            shapes.append((int(item),))
            continue
        size = shape[len(spans)]
        if beyond and isinstance(item, int) and not (-size if wraps else 0) <= item < size:
            item = np.asarray(item)
        if isinstance(item, int):
            advanced.append(position)
            spans.append(_integer_span(item, len(spans), shape))
        elif isinstance(item, slice):
            spans.append(_slice_span(item, size))
        else:
            advanced.append(position)
            spans.append(None)
            arrays.append(item)
            shapes.append(tuple(item.shape))
    batch = broadcast_shapes(*shapes)
    together = bool(advanced) and advanced[-1] - advanced[0] == len(advanced) - 1
    lead = _count_slices_before(items, advanced[0]) if together else 0
    if not shapes:
        lead = 0
    concrete = _concrete_vectors(arrays, spans, shape, batch, wraps)
    subscript = Subscript(
        shape,
        tuple(spans),
        batch,
        lead,
        _new_positions(items, advanced, batch, together),
        concrete is not None,
        wraps,
    )
    return subscript, tuple(arrays) if concrete is None else (concrete,)


def _consumed_dims(item: IndexItem) -> int:
    """Return the number of dimensions of the operand that an item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    return item.ndim if is_mask(item) else 1


def _expand_items(items: list[IndexItem], shape: tuple[int, ...]) -> list[IndexItem]:
    """Return the items with `...` (kept as a marker) expanded and masks as index arrays."""
    rank = len(shape)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError(with_location("an index has at most one '...'"))
    used = sum(map(_consumed_dims, items))
    if used > rank:
        raise IndexingError(
            with_location(
                f"an array of shape {shape} takes at most "
                f"{count_noun(rank, 'index', 'indices')}, got {used}"
            )
        )
    if not dots:
        items, dots = [*items, Ellipsis], [len(items)]
    rest = [slice(None)] * (rank - used)
    at = dots[0]
    expanded: list[IndexItem] = []
    dim = 0
    for item in [*items[: at + 1], *rest, *items[at + 1 :]]:
        if is_mask(item):
            expected = shape[dim : dim + item.ndim]
            if not item.size and all(
                n in (0, size) for n, size in zip(item.shape, expected, strict=True)
            ):
                item = np.zeros(expected, np.bool_)  # NumPy accepts empty masks.
            if item.shape != expected:
                raise IndexingError(
                    with_location(
                        f"a mask of shape {item.shape} does not fit dimensions of {expected}"
                    )
                )
            expanded.extend(np.nonzero(item))
        else:
            expanded.append(item)
        dim += _consumed_dims(item)
    return expanded


def _integer_span(index: int, dim: int, shape: tuple[int, ...]) -> Span:
    size = shape[dim]
    if not -size <= index < size:
        raise IndexingError(
            with_location(
                f"index {index} is out of range for dimension {dim} of shape {shape}; pass a mode "
                "to x.at[...], such as mode='clip', or set check_static_indices=False, as in JAX"
            )
        )
    return Span(index % size, 1, point=True)


def _slice_bound(bound: int | None) -> int | None:
    if bound is None:
        return None
    if isinstance(bound, Tracer):
        raise TracedValueError(
            with_location(
                "the bounds of a slice are traced, so its size is unknown; use "
                "lax.dynamic_slice, whose size is static, or make them static (static_argnums)"
            )
        )
    try:
        return int(bound.__index__())
    except (AttributeError, TypeError):
        raise IndexingError(
            with_location(f"the bounds of a slice are integers or None, got {bound!r}")
        ) from None


def _slice_span(item: slice, size: int) -> Span:
    step = _slice_bound(item.step)
    if step == 0:
        raise IndexingError(with_location("the step of a slice cannot be 0"))
    walk = range(size)[_slice_bound(item.start) : _slice_bound(item.stop) : step]
    if not walk:
        return Span(0, 0)
    stride = abs(walk.step) if len(walk) > 1 else 1
    return Span(min(walk[0], walk[-1]), len(walk), stride, walk.step < 0 and len(walk) > 1)


def _count_slices_before(items: Sequence[object], position: int) -> int:
    return sum(isinstance(item, slice) for item in items[:position])


def _new_positions(
    items: Sequence[object], advanced: Sequence[int], batch: tuple[int, ...], together: bool
) -> tuple[int, ...]:
    """Return the positions of the new dimensions in the result."""
    positions = []
    at = 0
    if advanced and not together:
        at = len(batch)
    for position, item in enumerate(items):
        if together and position == advanced[0]:
            at += len(batch)
        if item is None:
            positions.append(at)
        at += item is None or isinstance(item, slice)
    return tuple(positions)


def _concrete_vectors(
    arrays: Sequence[IndexArray],
    spans: Sequence[Span | None],
    shape: tuple[int, ...],
    batch: tuple[int, ...],
    wraps: bool,
) -> NumpyArray | None:
    """Return all index arrays as one array of index vectors, if all are NumPy arrays.

    The vectors are counted from the front. Outside of a trace, index arrays are arguments of a
    program, which wraps negative indices, unless they do not fit into the index type of that
    program.
    """
    concrete = [array for array in arrays if isinstance(array, np.ndarray)]
    if not arrays or len(concrete) < len(arrays):
        return None
    if current_trace() is None and all(map(_fits_program_type, concrete)):
        return None
    dims = [d for d, span in enumerate(spans) if span is None]
    vectors = []
    for d, array in zip(dims, concrete, strict=True):
        indices = array.astype(np.int64)
        if wraps:
            indices = np.where(indices < 0, indices + shape[d], indices)
        vectors.append(np.broadcast_to(np.clip(indices, *_INDEX_LIMITS), batch))
    return to_numpy(np.stack(vectors, -1).astype(np.int32))


def _fits_program_type(array: NumpyArray) -> bool:
    known = signature_of_numpy(array)
    return known is not None and fits_dtype(array, known[1])
