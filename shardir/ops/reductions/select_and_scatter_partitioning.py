"""Partitioning of select-and-scatter.

A device runs all windows that overlap its shard, on the elements that these windows cover, and
keeps the sums inside its shard. Windows out of bounds contribute nothing.

The operation is expanded into slices, one per position in the window, where windows include
padding: padding must not be selected, and its position differs from device to device.
"""

from itertools import product
from math import prod

from shardir.ir.builder import Builder
from shardir.ir.operation import Value
from shardir.ir.types import TensorType
from shardir.op_rules.exchange_plan import RowRun
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import LocalOp, identity_element
from shardir.op_rules.row_exchange import fetch_rows, select_by_position, slice_rows
from shardir.ops.reductions.window_geometry import WindowAttributes, dilated_size
from shardir.ops.type_checks import Ints


def expand_select_and_scatter(
    b: Builder,
    x: Value,
    source: Value,
    real: Value,
    attributes: WindowAttributes,
) -> Value:
    """Return `select_and_scatter` over `x` without padding, selecting only elements where `real` is
    true.
    """
    strides, window_dilation = attributes.strides, attributes.window_dilation
    places = list(product(*map(range, attributes.window)))
    shape = source.type.shape

    def at(value: Value, position: Ints) -> Value:
        """Return the elements of all windows at one position of the window."""
        starts = tuple(p * step for p, step in zip(position, window_dilation, strict=True))
        to = value.type.with_shape(shape)
        return b.slice(value, starts=starts, strides=strides, result=to)

    numbers = source.type.with_dtype("i32")
    best, choice = b.full(0, source.type), b.full(-1, numbers)
    for number, position in enumerate(places):
        here = at(x, position)
        better = b.gt(here, best) if attributes.op == "max" else b.lt(here, best)
        # NaN takes precedence over all numbers.
        better = b.or_(better, b.and_(b.ne(here, here), b.eq(best, best)))
        better = b.or_(better, b.lt(choice, b.full(0, numbers)))
        better = b.and_(better, at(real, position))
        best = b.select(better, here, best)
        choice = b.select(better, b.full(number, numbers), choice)
    total = b.full(0, x.type)
    zero, none = b.full(0, source.type.with_shape(())), b.full(0, source.type)
    for number, position in enumerate(places):
        part = b.select(b.eq(choice, b.full(number, numbers)), source, none)
        low = tuple(p * step for p, step in zip(position, window_dilation, strict=True))
        high = tuple(
            extent - start - (n - 1) * stride - 1
            for extent, start, n, stride in zip(x.type.shape, low, shape, strides, strict=True)
        )
        interior = tuple(stride - 1 for stride in strides)
        total = b.add(total, b.pad(part, zero, low=low, high=high, interior=interior))
    return total


MAX_EXPANDED_WINDOW_ELEMENTS = 32
"""The maximum window size for which windows with padding are expanded into slices."""


def select_and_scatter_factors(
    x: TensorType,
    source: TensorType,
    *,
    result: TensorType,
    attributes: WindowAttributes,
) -> FactorRule:
    """Return the factors; both operands are sharded alike."""
    dense = all(step == 1 for step in attributes.base_dilation)
    is_small = prod(attributes.window) <= MAX_EXPANDED_WINDOW_ELEMENTS
    spelled_out = dense and source.size > 0 and is_small
    builder = RuleBuilder([x.shape, source.shape], [result.shape])
    for i, size in enumerate(x.shape):
        plain = attributes.padding[i] == (0, 0) and attributes.base_dilation[i] == 1
        if attributes.is_trivial(i):
            builder.add([i, i], [i], size)
        elif (plain or spelled_out) and source.shape[i] > 1:
            builder.add([i, i], [i], size, FactorKind.PERMUTE)
        else:
            builder.add([None, i], [None], source.shape[i], FactorKind.REPLICATE)
            builder.add([i, None], [i], size, FactorKind.REPLICATE)
    return builder.build()


def partition_select_and_scatter(
    b: Builder,
    local: LocalOp,
    x: Value,
    source: Value,
    *,
    attributes: WindowAttributes,
) -> Value:
    """Fetch windows and elements, select, and slice out the local shard."""
    values, places = local.op.operands
    window, padding = attributes.window, attributes.padding
    nothing = identity_element(attributes.op, x.type.dtype)
    slices, bounds = [], {}
    for d, stride in enumerate(attributes.strides):
        if not local.sharding_axes(values, d) or (window[d], stride, padding[d]) == (1, 1, (0, 0)):
            continue
        size, low = x.type.shape[d], padding[d][0]
        inner = dilated_size(window[d], attributes.window_dilation[d])
        begins = [i * size for i in range(local.num_shards(values, d))]
        # The first window that overlaps the shard, but at most the first that starts in it.
        firsts = [min(-((inner - 1 - at - low) // stride), (at + low) // stride) for at in begins]
        count = max(
            (at + low + size - 1) // stride - first + 1
            for at, first in zip(begins, firsts, strict=True)
        )
        extent = (count - 1) * stride + inner
        some = [[RowRun(0, first, count)] for first in firsts]
        source = fetch_rows(b, local, source, places, d, some, count, 0)
        starts = [first * stride - low for first in firsts]
        over = [[RowRun(0, start, extent)] for start in starts]
        x = fetch_rows(b, local, x, values, d, over, extent, nothing)
        slices.append((d, [at - start for at, start in zip(begins, starts, strict=True)], size))
        bounds[d] = starts
    if any(padding[d] != (0, 0) for d in bounds):
        result = _select_expanded(b, local, x, source, bounds, nothing, attributes)
    else:
        result = b.select_and_scatter(x, source, **attributes.to_attrs())
    for d, offsets, size in slices:
        result = _slice_local_shard(b, local, result, values, d, offsets, size)
    return result


def _slice_local_shard(
    b: Builder,
    local: LocalOp,
    scattered: Value,
    value: Value,
    d: int,
    offsets: list[int],
    size: int,
) -> Value:
    """Return the device's shard of the sums; no window extends beyond its end."""
    rank = scattered.type.rank
    missing = max(0, max(offsets) + size - scattered.type.shape[d])
    if missing:
        high = tuple(missing if i == d else 0 for i in range(rank))
        none, zero = (0,) * rank, b.full(0, scattered.type.with_shape(()))
        scattered = b.pad(scattered, zero, low=none, high=high, interior=none)
    offset = select_by_position(b, local.sharding_axes(value, d), offsets)
    if isinstance(offset, int):
        return slice_rows(b, scattered, d, offset, size)
    shape = tuple(size if i == d else n for i, n in enumerate(scattered.type.shape))
    zero = b.full(0, offset.type)
    starts = (offset if i == d else zero for i in range(rank))
    return b.dynamic_slice(scattered, *starts, result=scattered.type.with_shape(shape))


def _select_expanded(
    b: Builder,
    local: LocalOp,
    x: Value,
    source: Value,
    bounds: dict[int, list[int]],
    nothing: complex,
    attributes: WindowAttributes,
) -> Value:
    """Return the sums for windows that include padding, here or on the first and last devices.

    `bounds` is the global start of the rows of `x` on each device.
    """
    values, rank = local.op.operands[0], x.type.rank
    rest = [(0, 0) if d in bounds else pair for d, pair in enumerate(attributes.padding)]
    low, high = (tuple(pair[end] for pair in rest) for end in (0, 1))
    back = tuple(-n for n in low), tuple(-n for n in high)
    none = (0,) * rank
    filler = b.full(nothing, x.type.with_shape(()))
    wide = b.pad(x, filler, low=low, high=high, interior=none)
    numbers = wide.type.with_dtype("i32")
    real = b.full(True, wide.type.with_dtype("bool"))
    for d in range(rank):
        start: int | Value = -low[d]
        if d in bounds:
            start = select_by_position(b, local.sharding_axes(values, d), bounds[d])
        if isinstance(start, int):
            start = b.full(start, numbers.with_shape(()))
        index = b.add(b.iota(dim=d, result=numbers), b.broadcast(start, dims=(), result=numbers))
        size = values.type.shape[d] if d in bounds else x.type.shape[d]
        inside = b.and_(b.ge(index, b.full(0, numbers)), b.lt(index, b.full(size, numbers)))
        real = b.and_(real, inside)
    total = expand_select_and_scatter(b, wide, source, real, attributes)
    zero = b.full(0, x.type.with_shape(()))
    return b.pad(total, zero, low=back[0], high=back[1], interior=none)
