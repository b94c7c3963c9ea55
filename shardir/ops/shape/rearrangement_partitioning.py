"""Partitioning of reverse, concatenate and roll."""

from itertools import accumulate
from typing import Any

from shardir.op_rules.exchange_plan import RowRun, block_runs
from shardir.op_rules.partitioning import LocalOp
from shardir.op_rules.row_exchange import block_extents, exchange_rows, fetch_rows
from shardir.ops.type_checks import Ints


def partition_reverse(b: Any, local: LocalOp, x: Any, *, dims: Ints) -> Any:
    """Fetch the rows at the mirrored position and reverse them locally."""
    source = local.op.operands[0]
    for d in dims:
        if not local.sharding_axes(source, d):
            continue
        size, block = source.type.shape[d], x.type.shape[d]
        # After reversal, the missing rows of a short shard come first.
        wanted = [
            [RowRun(block - rows, size - at - rows, rows)]
            for at, rows in block_extents(size, block, local.num_shards(source, d))
        ]
        x = fetch_rows(b, local, x, source, d, wanted, block)
    return b.reverse(x, dims=dims)


def partition_concatenate(b: Any, local: LocalOp, *xs: Any, dim: int) -> Any:
    """Concatenate the local shards of all operands, and exchange rows from there."""
    result = local.op.result
    axes = local.sharding_axes(result, dim)
    if not axes:
        return b.concatenate(*xs, dim=dim)
    count, block = local.num_shards(result, dim), local.result.shape[dim]
    sizes = [value.type.shape[dim] for value in local.op.operands]
    rows = [x.type.shape[dim] for x in xs]
    offsets = list(accumulate(rows, initial=0))
    begins = list(accumulate(sizes, initial=0))
    held: list[list[RowRun]] = [[] for _ in range(count)]
    for offset, begin, size, own in zip(offsets, begins, sizes, rows, strict=False):
        for runs, found in zip(held, block_runs(size, own, count), strict=True):
            runs += [RowRun(offset, begin + run.start, run.length) for run in found]
    wanted = [[RowRun(0, at, n)] for at, n in block_extents(result.type.shape[dim], block, count)]
    both = b.concatenate(*xs, dim=dim) if len(xs) > 1 else xs[0]
    return exchange_rows(b, both, dim, axes, held, wanted, block)


def partition_roll(b: Any, local: LocalOp, x: Any, *, dim: int, shift: int) -> Any:
    """Fetch the rows of the shifted position, wrapping around the end."""
    source = local.op.operands[0]
    if not local.sharding_axes(source, dim):
        return b.roll(x, dim=dim, shift=shift)
    size, block = source.type.shape[dim], x.type.shape[dim]
    wanted: list[list[RowRun]] = []
    for at, rows in block_extents(size, block, local.num_shards(source, dim)):
        start = (at - shift) % size
        before = min(rows, size - start)
        wanted.append([RowRun(0, start, before), RowRun(before, 0, rows - before)])
    return fetch_rows(b, local, x, source, dim, wanted, block)
