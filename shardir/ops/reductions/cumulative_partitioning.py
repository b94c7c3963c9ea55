"""Partitioning of prefix scans: each device scans its shard and adds the preceding totals."""

from collections.abc import Callable
from dataclasses import dataclass

from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.operation import Partitioning, Value
from shardir.ir.sharding import Axes, count_positions
from shardir.op_rules.partitioning import LocalOp, all_factors
from shardir.op_rules.row_exchange import slice_rows

MAX_GATHERED_DEVICES = 8
"""The number of devices up to which totals are gathered; more devices use doubling steps."""


@dataclass(frozen=True, slots=True)
class ScanAttributes(Attributes):
    """The attributes of a prefix scan along the dimension `dim`, from its end with `reverse`."""

    dim: int
    reverse: bool


Combine = Callable[[Builder, Value, Value], Value]
"""(builder, accumulated values, earlier values) -> the combination of both."""


def partition_scan(name: str, nothing: Callable[[str], complex], combine: Combine) -> Partitioning:
    """Return the partitioning of the scan `name`.

    `nothing(dtype)` is the identity element of the combination.
    """

    def lower(b: Builder, local: LocalOp, x: Value, *, attributes: ScanAttributes) -> Value:
        dim, reverse = attributes.dim, attributes.reverse
        (value,) = local.op.operands
        axes = local.sharding_axes(value, dim)
        if axes and reverse:
            x = local.mask_padding(b, x, value, [dim], nothing(x.type.dtype))
        run: Value = getattr(b, name)(x, dim=dim, reverse=reverse)
        if not axes:
            return run
        size = x.type.shape[dim]
        total = slice_rows(b, run, dim, 0 if reverse else size - 1, 1)
        count = count_positions(axes)
        scan = _preceding_by_gather if count <= MAX_GATHERED_DEVICES else _preceding_by_doubling
        before = scan(b, name, combine, nothing(x.type.dtype), axes, total, dim, reverse)
        dims = tuple(range(x.type.rank))
        return combine(b, run, b.broadcast(before, dims=dims, result=run.type))

    return Partitioning(lower, all_factors, uneven=all_factors)


def _preceding_by_gather(
    b: Builder,
    name: str,
    combine: Combine,
    nothing: complex,
    axes: Axes,
    total: Value,
    dim: int,
    reverse: bool,
) -> Value:
    """Return the total of the preceding devices by gathering and scanning all totals."""
    totals = b.all_gather(total, dim=dim, axes=axes, name=f"{total.name}.all")
    count = totals.type.shape[dim]
    none = b.full(nothing, total.type)
    if reverse:
        shifted = b.concatenate(slice_rows(b, totals, dim, 1, count - 1), none, dim=dim)
    else:
        shifted = b.concatenate(none, slice_rows(b, totals, dim, 0, count - 1), dim=dim)
    run = getattr(b, name)(shifted, dim=dim, reverse=reverse)
    position = b.axis_index(axes=axes)
    zero = b.full(0, position.type)
    starts = (position if d == dim else zero for d in range(total.type.rank))
    return b.dynamic_slice(run, *starts, result=total.type)


def _preceding_by_doubling(
    b: Builder,
    name: str,
    combine: Combine,
    nothing: complex,
    axes: Axes,
    total: Value,
    dim: int,
    reverse: bool,
) -> Value:
    """Return the total of the preceding devices in doubling steps."""
    count = count_positions(axes)
    position = b.axis_index(axes=axes)
    if reverse:
        position = b.sub(b.full(count - 1, position.type), position)

    def earlier(x: Value, step: int) -> Value:
        """Return the value of the device `step` positions before."""
        ways = ((i, i + step) for i in range(count - step))
        pairs = tuple((s, t) if not reverse else (count - 1 - s, count - 1 - t) for s, t in ways)
        moved = b.collective_permute(x, axes=axes, pairs=tuple(sorted(pairs)))
        exists = b.ge(position, b.full(step, position.type))
        return b.select(exists, moved, b.full(nothing, x.type))

    result, step = earlier(total, 1), 1
    while step < count - 1:
        result, step = combine(b, result, earlier(result, step)), 2 * step
    return result
