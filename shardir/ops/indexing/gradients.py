"""Cotangents of gather and scatter: each uses the other.

A scatter drops out-of-bounds elements while a gather clamps whole windows. Before updates are read
back, windows that can be clamped are therefore expanded to one index vector per element. Then each
element is either in bounds or masked.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents, Dense, Symbol
from shardir.ir.types import TensorType
from shardir.ops.indexing.layout import (
    GATHER,
    SCATTER,
    GatherAttributes,
    IndexingDims,
    IndexingLayout,
    ScatterAttributes,
)
from shardir.ops.type_checks import Ints


def gather_vjp(
    b: Builder, g: Value, x: Value, indices: Value, y: Value, *, attributes: GatherAttributes
) -> Cotangents:
    """Return the cotangent, added at the positions that were read.

    As in JAX, elements that a clamped window read have no derivative: the scatter drops their
    cotangent. For the derivative of clamping, clamp the indices first.
    """
    read = attributes.dims
    layout = IndexingLayout.for_shapes(x.type.shape, y.type.rank, read)
    places = _move_out_of_bounds(b, layout, indices, y.type.shape)
    zeros = b.full(0, x.type)
    return b.scatter(zeros, places, g, op=Symbol("add"), **SCATTER.to_attrs(read)), None


def _move_out_of_bounds(b: Builder, layout: IndexingLayout, indices: Value, slices: Ints) -> Value:
    """Return index vectors in which out-of-bounds windows are moved completely out of bounds.

    A scatter drops single elements, so windows of one element need no change.
    """
    sizes = {d: slices[s] for s, d in layout.window.items()}
    if all(sizes.get(d, 1) == 1 for d in layout.index_map) or indices.type.size == 0:
        return indices
    if indices.type.numpy.itemsize < 4:
        indices = b.convert(indices, result=indices.type.with_dtype("i64"))
    ends = tuple(layout.operand[d] for d in layout.index_map)
    limits = tuple(layout.operand[d] - sizes.get(d, 1) for d in layout.index_map)
    inside = b.and_(
        b.ge(indices, b.full(0, indices.type)),
        b.le(indices, _broadcast_row(b, limits, indices.type)),
    )
    every = b.all(inside, dims=(indices.type.rank - 1,))
    mask = b.broadcast(
        every, dims=tuple(range(every.type.rank)), result=indices.type.with_dtype("bool")
    )
    moved: Value = b.select(mask, indices, _broadcast_row(b, ends, indices.type))
    return moved


def _broadcast_row(b: Builder, numbers: Ints, type: TensorType) -> Value:
    """Return a tensor of `type` in which every index vector is `numbers`."""
    row = Dense(np.array(numbers, type.numpy))
    vector = b.constant(value=row, result=type.with_shape((len(numbers),)))
    spread: Value = b.broadcast(vector, dims=(type.rank - 1,), result=type)
    return spread


@dataclass(frozen=True, slots=True)
class UpdatePositions:
    """The elements that a scatter writes, with windows that can move expanded.

    `leading_dims` are the dimensions of the updates along which the position is computed.
    `in_bounds` is a bool tensor with the shape of the updates that is true for updates that are not
    dropped; `None`: all.
    """

    b: Builder
    indices: Value
    dims: IndexingDims
    shape: Ints
    leading_dims: Ints
    in_bounds: Value | None

    def write(self, x: Value, updates: Value, op: str) -> Value:
        """Return `x` with the updates scattered into it."""
        attrs = SCATTER.to_attrs(self.dims)
        written: Value = self.b.scatter(x, self.indices, updates, op=Symbol(op), **attrs)
        return written

    def read(self, y: Value) -> Value:
        """Return the element of `y` at each update's position; zero for dropped updates."""
        type = TensorType(self.shape, y.type.dtype)
        result: Value = self.b.gather(y, self.indices, result=type, **GATHER.to_attrs(self.dims))
        if self.in_bounds is not None:
            result = self.b.select(self.in_bounds, result, self.b.full(0, type))
        return result


def _update_positions(
    b: Builder, x: Value, indices: Value, updates: Value, dims: IndexingDims
) -> UpdatePositions:
    layout = IndexingLayout.for_shapes(x.type.shape, updates.type.rank, dims)
    shape = updates.type.shape
    full_dims = layout.full_window_dims(shape)
    led = tuple(s for s in range(len(shape)) if s not in full_dims)
    if indices.type.numpy.itemsize < 4:
        indices = b.convert(indices, result=indices.type.with_dtype("i64"))
    moving = {s: d for s, d in layout.window.items() if s not in full_dims}
    if moving:
        indices, dims = _expand_windows(b, layout, indices, dims, moving, led, shape)
    inside = None
    if dims.index_map:
        extents = _broadcast_row(b, tuple(x.type.shape[d] for d in dims.index_map), indices.type)
        within = b.and_(b.ge(indices, b.full(0, indices.type)), b.lt(indices, extents))
        every = b.all(within, dims=(indices.type.rank - 1,))
        inside = b.broadcast(every, dims=led, result=TensorType(shape, "bool"))
    return UpdatePositions(b, indices, dims, shape, led, inside)


def _expand_windows(
    b: Builder,
    layout: IndexingLayout,
    indices: Value,
    dims: IndexingDims,
    moving: dict[int, int],
    led: Ints,
    shape: Ints,
) -> tuple[Value, IndexingDims]:
    """Return index vectors for single elements of the `moving` windows, and their attributes."""
    still = tuple(d for d in moving.values() if d not in dims.index_map)
    index_map = (*dims.index_map, *still)
    if still:
        zeros = b.full(0, indices.type.with_shape((*indices.type.shape[:-1], len(still))))
        indices = b.concatenate(indices, zeros, dim=indices.type.rank - 1)
    type = indices.type.with_shape((*(shape[s] for s in led), len(index_map)))
    batch = tuple(led.index(s) for s in layout.batch)
    indices = b.broadcast(indices, dims=(*batch, len(led)), result=type)
    for s, d in moving.items():
        along = _broadcast_row(b, tuple(int(d == to) for to in index_map), type)
        steps = b.iota(dim=led.index(s), result=type)
        indices = b.add(indices, b.mul(steps, along))
    return indices, IndexingDims(
        tuple(s for s in dims.window if s not in moving),
        tuple(sorted((*dims.dropped, *moving.values()))),
        index_map,
        dims.operand_batching,
        tuple(batch[i] for i in dims.indices_batching),
    )


def scatter_vjp(
    b: Builder,
    g: Value,
    x: Value,
    indices: Value,
    updates: Value,
    y: Value,
    *,
    attributes: ScatterAttributes,
) -> Cotangents:
    """Return the cotangents of operand and updates; elements that are equal extrema share it."""
    dims, op = attributes.dims, attributes.op
    places = _update_positions(b, x, indices, updates, dims)
    vectors = [n for i, n in enumerate(indices.type.shape[:-1]) if i not in dims.indices_batching]
    collide = prod(vectors) > 1
    if op == "add":
        return g, None, places.read(g)
    if op == "set":
        return _set_vjp(places, g, x, updates, collide)
    if op == "mul":
        return _mul_vjp(places, g, x, updates, y, collide)
    return _extremum_vjp(places, g, x, updates, y)


def _set_vjp(
    places: UpdatePositions, g: Value, x: Value, updates: Value, collide: bool
) -> Cotangents:
    """Return the cotangents; only the last of several updates of an element is in the result."""
    b, zeros = places.b, places.b.full(0, updates.type)
    read = places.read(g)
    if collide:
        read = b.select(_is_last_update(places, x), read, zeros)
    return places.write(g, zeros, "set"), None, read


def _is_last_update(places: UpdatePositions, x: Value) -> Value:
    """Return which updates are not overwritten, by scattering and gathering their numbers."""
    b, dims = places.b, places.dims
    free = (*dims.dropped, *dims.operand_batching)
    remaining_dims = [d for d in range(x.type.rank) if d in free]
    sizes = tuple(places.shape[s] for s in places.leading_dims)
    counted = b.iota(dim=0, result=TensorType((prod(sizes),), "i64"))
    numbers = b.reshape(counted, result=TensorType(sizes, "i64"))
    alone = IndexingDims(
        (),
        tuple(remaining_dims.index(d) for d in dims.dropped),
        tuple(remaining_dims.index(d) for d in dims.index_map),
        tuple(remaining_dims.index(d) for d in dims.operand_batching),
        dims.indices_batching,
    )
    slots = b.full(0, TensorType(tuple(x.type.shape[d] for d in remaining_dims), "i64"))
    placed = b.scatter(slots, places.indices, numbers, op=Symbol("set"), **SCATTER.to_attrs(alone))
    stored = b.gather(placed, places.indices, result=numbers.type, **GATHER.to_attrs(alone))
    lasting: Value = b.broadcast(
        b.eq(stored, numbers), dims=places.leading_dims, result=TensorType(places.shape, "bool")
    )
    return lasting


def _mul_vjp(
    places: UpdatePositions, g: Value, x: Value, updates: Value, y: Value, collide: bool
) -> Cotangents:
    """Return the cotangents: each factor gets the product of all others.

    That is the result divided by the factor. For a factor of zero it is the product of the other
    factors if it is the only zero, else zero.
    """
    b = places.b
    ones = b.full(1, updates.type)
    product = places.write(b.full(1, x.type), updates, "mul")
    if not collide:
        others = places.read(x)
    else:
        zero = b.eq(updates, b.full(0, updates.type))
        safe = b.select(zero, ones, updates)
        zeros = b.full(0, x.type.with_dtype("i32"))
        count = places.write(zeros, b.convert(zero, result=updates.type.with_dtype("i32")), "add")
        only = b.eq(places.read(count), b.full(1, updates.type.with_dtype("i32")))
        rest = places.read(places.write(x, safe, "mul"))
        alone = b.select(only, rest, b.full(0, updates.type))
        others = b.select(zero, alone, b.div(places.read(y), safe))
    return b.mul(g, product), None, b.mul(places.read(g), others)


def _extremum_vjp(
    places: UpdatePositions, g: Value, x: Value, updates: Value, y: Value
) -> Cotangents:
    b = places.b
    is_extremum = b.convert(b.eq(x, y), result=x.type)
    won = b.eq(updates, places.read(y))
    if places.in_bounds is not None:
        won = b.and_(won, places.in_bounds)
    taken = b.convert(won, result=updates.type)
    share = b.div(g, places.write(is_extremum, taken, "add"))
    return b.mul(share, is_extremum), None, b.mul(places.read(share), taken)
