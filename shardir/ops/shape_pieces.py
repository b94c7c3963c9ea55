"""Partitioning of reverse, concatenate and roll."""

from itertools import accumulate
from typing import Any

from shardir.exchange import exchange, fetch, shares
from shardir.ops.check import Ints
from shardir.partitioning import Local
from shardir.rounds import Run, blocks


def reverse_pieces(b: Any, local: Local, x: Any, *, dims: Ints) -> Any:
    """Fetch the rows at the mirrored position and reverse them locally."""
    source = local.op.operands[0]
    for d in dims:
        if not local.axes(source, d):
            continue
        size, block = source.type.shape[d], x.type.shape[d]
        # After reversal, the missing rows of a short shard come first.
        wanted = [
            [Run(block - rows, size - at - rows, rows)]
            for at, rows in shares(size, block, local.count(source, d))
        ]
        x = fetch(b, local, x, source, d, wanted, block)
    return b.reverse(x, dims=dims)


def concatenate_pieces(b: Any, local: Local, *xs: Any, dim: int) -> Any:
    """Concatenate the local shards of all operands, and exchange rows from there."""
    result = local.op.result
    axes = local.axes(result, dim)
    if not axes:
        return b.concatenate(*xs, dim=dim)
    count, block = local.count(result, dim), local.result.shape[dim]
    sizes = [value.type.shape[dim] for value in local.op.operands]
    rows = [x.type.shape[dim] for x in xs]
    offsets = list(accumulate(rows, initial=0))
    begins = list(accumulate(sizes, initial=0))
    held: list[list[Run]] = [[] for _ in range(count)]
    for offset, begin, size, own in zip(offsets, begins, sizes, rows, strict=False):
        for runs, found in zip(held, blocks(size, own, count), strict=True):
            runs += [Run(offset, begin + run.start, run.length) for run in found]
    wanted = [[Run(0, at, n)] for at, n in shares(result.type.shape[dim], block, count)]
    both = b.concatenate(*xs, dim=dim) if len(xs) > 1 else xs[0]
    return exchange(b, both, dim, axes, held, wanted, block)


def roll_pieces(b: Any, local: Local, x: Any, *, dim: int, shift: int) -> Any:
    """Fetch the rows of the shifted position, wrapping around the end."""
    source = local.op.operands[0]
    if not local.axes(source, dim):
        return b.roll(x, dim=dim, shift=shift)
    size, block = source.type.shape[dim], x.type.shape[dim]
    wanted: list[list[Run]] = []
    for at, rows in shares(size, block, local.count(source, dim)):
        start = (at - shift) % size
        before = min(rows, size - start)
        wanted.append([Run(0, start, before), Run(before, 0, rows - before)])
    return fetch(b, local, x, source, dim, wanted, block)
