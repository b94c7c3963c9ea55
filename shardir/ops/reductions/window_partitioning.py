"""Partitioning of window reductions.

The windows of a device's shard of the result cover rows of its own and of neighbouring devices.
These rows are fetched with their padding, so that the windows cover exactly the fetched rows.
"""

from typing import NamedTuple

from shardir.ir.builder import Builder
from shardir.ir.operation import Value
from shardir.op_rules.exchange_plan import RowRun
from shardir.op_rules.partitioning import LocalOp, identity_element
from shardir.op_rules.row_exchange import block_extents, fetch_rows, select_by_position
from shardir.ops.reductions.window_geometry import WindowAttributes, dilated_size
from shardir.ops.type_checks import Ints


class WindowCoverage(NamedTuple):
    """The rows that the windows of each device cover along one dimension of the dilated operand."""

    starts: Ints
    """The first covered row for each position along the axes that shard the dimension."""
    num_valid_rows: Ints
    """The number of rows that valid windows cover."""
    num_rows: int
    """The number of covered rows for a full shard of the result."""
    dilation: int


def fetch_coverage(
    b: Builder,
    local: LocalOp,
    piece: Value,
    value: Value,
    dim: int,
    reach: WindowCoverage,
    fill: complex,
) -> tuple[Value, tuple[int, int], int]:
    """Return the covered rows, and the padding and dilation that remain to be applied."""
    begins, needed, size, dilation = reach
    firsts = [-(-begin // dilation) for begin in begins]
    phases = [first * dilation - begin for first, begin in zip(firsts, begins, strict=True)]
    rows = -(-size // dilation)
    needed_rows = [
        [RowRun(0, first, max(-(-(begin + n) // dilation) - first, 0))]
        for first, begin, n in zip(firsts, begins, needed, strict=True)
    ]
    x = fetch_rows(b, local, piece, value, dim, needed_rows, rows, fill)
    spread = dilated_size(rows, dilation)
    phase = select_by_position(b, local.sharding_axes(value, dim), phases)
    if isinstance(phase, int):
        return x, (phase, size - phase - spread), dilation

    def along(n: int) -> Ints:
        return tuple(n if d == dim else 0 for d in range(x.type.rank))

    filler = b.full(fill, x.type.with_shape(()))
    between, rest = dilation - 1, max(size - spread, 0)
    wide = b.pad(x, filler, low=along(between), high=along(rest + between), interior=along(between))
    start, zero = b.sub(b.full(between, phase.type), phase), b.full(0, phase.type)
    starts = (start if d == dim else zero for d in range(x.type.rank))
    shape = tuple(size if d == dim else n for d, n in enumerate(x.type.shape))
    return b.dynamic_slice(wide, *starts, result=x.type.with_shape(shape)), (0, 0), 1


def partition_reduce_window(
    b: Builder,
    local: LocalOp,
    x: Value,
    *,
    attributes: WindowAttributes,
) -> Value:
    """Apply `reduce_window` to the rows that the windows of this device cover."""
    (source,), result = local.op.operands, local.op.result
    op, window, window_dilation = attributes.op, attributes.window, attributes.window_dilation
    padded, base_dilation = list(attributes.padding), list(attributes.base_dilation)
    for d, stride in enumerate(attributes.strides):
        if not local.sharding_axes(source, d):
            continue
        inner = dilated_size(window[d], window_dilation[d])
        if attributes.is_trivial(d):
            continue
        block, places = local.result.shape[d], result.type.shape[d]
        bounds = block_extents(places, block, local.num_shards(source, d))
        reach = WindowCoverage(
            tuple(at * stride - padded[d][0] for at, _ in bounds),
            tuple((n - 1) * stride + inner if n else 0 for _, n in bounds),
            (block - 1) * stride + inner,
            base_dilation[d],
        )
        nothing = identity_element(op, x.type.dtype)
        x, padded[d], base_dilation[d] = fetch_coverage(b, local, x, source, d, reach, nothing)
    return b.reduce_window(
        x,
        op=op,
        window=window,
        strides=attributes.strides,
        padding=tuple(padded),
        base_dilation=tuple(base_dilation),
        window_dilation=window_dilation,
    )
