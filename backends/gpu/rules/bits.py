"""The bits of elements seen as elements of another type."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.spelling import TORCH
from shardir.backends.gpu.writer import Writer
from shardir.ir import Op


@lowers("bitcast")
def _bitcast(w: Writer, op: Op, x: str) -> str:
    """A key shows its high word first."""
    source, to = op.operands[0].type, op.result.type
    if source == to:
        return x
    if source.rank < to.rank:
        made = w.call("shrink_bits", x, TORCH[to.dtype])
        return f"{made}[..., [1, 0]]" if source.dtype == "key" else made
    if source.rank > to.rank:
        if to.dtype == "key":
            x = f"{x}[..., [1, 0]]"
        return w.call("grow_bits", x, TORCH[to.dtype])
    return f"{x}.view({TORCH[to.dtype]})"
