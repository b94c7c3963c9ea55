"""Partitioning of static slices and padding."""

from dataclasses import dataclass

from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import Value
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.op_rules.exchange_plan import RowRun
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.op_rules.partitioning import LocalOp, identity_element
from shardir.op_rules.row_exchange import block_extents, fetch_rows, select_by_position, slice_rows
from shardir.ops.reductions.window_geometry import dilated_size
from shardir.ops.type_checks import Ints


@dataclass(frozen=True, slots=True)
class SliceAttributes(Attributes):
    """The attributes of a slice, one entry per dimension."""

    starts: Ints
    strides: Ints


@dataclass(frozen=True, slots=True)
class PadAttributes(Attributes):
    """The attributes of padding, one entry per dimension: elements before the first one, after the
    last one, and between all.
    """

    low: Ints
    high: Ints
    interior: Ints


def movable_shardable(
    rule: FactorRule, x: TensorType, *_: TensorType, result: TensorType, **__: object
) -> list[int]:
    """Return all factors, except for keys, which have no fill value, and for empty tensors."""
    if x.dtype in KEYS or not x.size or not result.size:
        return list(rule.of_kind(FactorKind.PASS))
    return list(range(len(rule.factors)))


def slice_factors(x: TensorType, *, result: TensorType, attributes: SliceAttributes) -> FactorRule:
    """Return the factors; a single position is on one device, and the others contribute zero."""
    builder = RuleBuilder([x.shape], [result.shape])
    for d, (size, result_size) in enumerate(zip(x.shape, result.shape, strict=True)):
        if result_size == 1 and size != 1:
            builder.add([d], [None], size, FactorKind.REDUCE)
        else:
            builder.add(
                [d], [d], size, FactorKind.PASS if size == result_size else FactorKind.PERMUTE
            )
    return builder.build()


def partition_slice(b: Builder, local: LocalOp, x: Value, *, attributes: SliceAttributes) -> Value:
    """Fetch the rows of the operand that the local shard of the result covers."""
    source, result = local.op.operands[0], local.op.result
    starts, strides = attributes.starts, attributes.strides
    begins = list(starts)
    for d, stride in enumerate(strides):
        size, result_size = source.type.shape[d], result.type.shape[d]
        if not local.sharding_axes(source, d) or result_size == size:
            continue
        if result_size == 1:
            x = _select_row(b, local, x, source, d, starts[d])
        else:
            block = local.result.shape[d]
            needed_rows = [
                [RowRun(0, starts[d] + at * stride, dilated_size(rows, stride))]
                for at, rows in block_extents(result_size, block, local.num_shards(source, d))
            ]
            x = fetch_rows(b, local, x, source, d, needed_rows, dilated_size(block, stride))
        begins[d] = 0
    if x.type == local.result:
        return x
    return b.slice(x, starts=tuple(begins), strides=strides, result=local.result)


def _select_row(
    b: Builder, local: LocalOp, x: Value, source: Value, d: int, position: int
) -> Value:
    """Return the row at a global position on the device that has it, and the identity elsewhere."""
    owner, offset = divmod(position, x.type.shape[d])
    row = slice_rows(b, x, d, offset, 1)
    index = b.axis_index(axes=local.sharding_axes(source, d))
    has_it = b.eq(index, b.full(owner, index.type))
    return b.select(has_it, row, b.full(identity_element("add", row.type.dtype), row.type))


def partition_pad(
    b: Builder, local: LocalOp, x: Value, value: Value, *, attributes: PadAttributes
) -> Value:
    """Fetch the rows and padding of the local shard of the result.

    With interior padding, the fetched rows are dilated afterwards; a shard of the result may start
    anywhere between two rows.
    """
    source, result = local.op.operands[0], local.op.result
    low, high = attributes.low, attributes.high
    before, after, within = list(low), list(high), list(attributes.interior)
    for d, between in enumerate(attributes.interior):
        if not local.sharding_axes(source, d) or not (low[d] or high[d] or between):
            continue
        block, step = local.result.shape[d], between + 1
        bounds = block_extents(result.type.shape[d], block, local.num_shards(source, d))
        count = -(-block // step)
        # The first operand row at or after each end of a shard of the result.
        ends = [[-((low[d] - end) // step) for end in (at, at + rows)] for at, rows in bounds]
        needed_rows = [[RowRun(0, first, last - first)] for first, last in ends]
        x = fetch_rows(b, local, x, source, d, needed_rows, count, value)
        phases = [
            first * step + low[d] - at for (first, _), (at, _) in zip(ends, bounds, strict=True)
        ]
        x = _dilate_rows(b, local.sharding_axes(source, d), x, value, d, between, phases, block)
        before[d] = after[d] = within[d] = 0
    if x.type == local.result and not any((*before, *after, *within)):
        return x
    return b.pad(x, value, low=tuple(before), high=tuple(after), interior=tuple(within))


def _dilate_rows(
    b: Builder,
    axes: Axes,
    x: Value,
    value: Value,
    d: int,
    between: int,
    phases: list[int],
    size: int,
) -> Value:
    """Return `size` rows that contain the dilated rows of `x`, starting at the device's phase."""
    if not between:
        return x
    phase = select_by_position(b, axes, phases)
    rank = x.type.rank

    def along(n: int) -> Ints:
        return tuple(n if i == d else 0 for i in range(rank))

    spread = dilated_size(x.type.shape[d], between + 1)
    if isinstance(phase, int):
        return b.pad(
            x, value, low=along(phase), high=along(size - phase - spread), interior=along(between)
        )
    wide = b.pad(x, value, low=along(between), high=along(max(size - spread, 0) + between),
                 interior=along(between))  # fmt: skip
    zero = b.full(0, phase.type)
    start = b.sub(b.full(between, phase.type), phase)
    starts = (start if i == d else zero for i in range(rank))
    shape = tuple(size if i == d else n for i, n in enumerate(x.type.shape))
    return b.dynamic_slice(wide, *starts, result=x.type.with_shape(shape))
