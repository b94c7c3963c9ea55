"""Partitioning of window reductions.

The windows of a device's shard of the result cover rows of its own and of neighbouring devices.
These rows are fetched with their padding, so that the windows cover exactly the fetched rows.
"""

from typing import Any, NamedTuple

from shardir.exchange import choice, fetch, shares
from shardir.ops.check import Ints
from shardir.ops.windowing import Padding, dilated
from shardir.partitioning import Local, identity
from shardir.rounds import Run


class Reach(NamedTuple):
    """The rows that the windows of each device cover along one dimension of the dilated operand."""

    begins: Ints
    """The first covered row for each position along the axes that shard the dimension."""
    needed: Ints
    """The number of rows that valid windows cover."""
    size: int
    """The number of covered rows for a full shard of the result."""
    dilation: int


def reached(
    b: Any, local: Local, piece: Any, value: Any, dim: int, reach: Reach, fill: complex
) -> tuple[Any, tuple[int, int], int]:
    """Return the covered rows, and the padding and dilation that remain to be applied."""
    begins, needed, size, dilation = reach
    firsts = [-(-begin // dilation) for begin in begins]
    phases = [first * dilation - begin for first, begin in zip(firsts, begins, strict=True)]
    rows = -(-size // dilation)
    wanted = [
        [Run(0, first, max(-(-(begin + n) // dilation) - first, 0))]
        for first, begin, n in zip(firsts, begins, needed, strict=True)
    ]
    x = fetch(b, local, piece, value, dim, wanted, rows, fill)
    spread = dilated(rows, dilation)
    phase = choice(b, local.axes(value, dim), phases)
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


def window_pieces(
    b: Any,
    local: Local,
    x: Any,
    *,
    op: str,
    window: Ints,
    strides: Ints,
    padding: Padding,
    base_dilation: Ints,
    window_dilation: Ints,
) -> Any:
    """Apply `reduce_window` to the rows that the windows of this device cover."""
    (source,), result = local.op.operands, local.op.result
    padded, apart = list(padding), list(base_dilation)
    for d, stride in enumerate(strides):
        if not local.axes(source, d):
            continue
        inner = dilated(window[d], window_dilation[d])
        if (window[d], stride, padded[d], apart[d]) == (1, 1, (0, 0), 1):
            continue
        block, places = local.result.shape[d], result.type.shape[d]
        bounds = shares(places, block, local.count(source, d))
        reach = Reach(
            tuple(at * stride - padded[d][0] for at, _ in bounds),
            tuple((n - 1) * stride + inner if n else 0 for _, n in bounds),
            (block - 1) * stride + inner,
            apart[d],
        )
        nothing = identity(op, x.type.dtype)
        x, padded[d], apart[d] = reached(b, local, x, source, d, reach, nothing)
    return b.reduce_window(
        x,
        op=op,
        window=window,
        strides=strides,
        padding=tuple(padded),
        base_dilation=tuple(apart),
        window_dilation=window_dilation,
    )
