"""Reinterpret the bits of elements as elements of another type."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import as_word, back
from shardir.backends.gpu.spelling import TORCH, WORDS
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op


@lowers("bitcast")
def _bitcast(w: Writer, op: Op, x: str) -> str:
    """Lower `bitcast`; the first 32-bit word of a key is its high word."""
    source, to = op.operands[0].type, op.result.type
    if source == to:
        return x
    if source.rank < to.rank:
        made = w.call("shrink_bits", x, WORDS.get(to.dtype, TORCH[to.dtype]))
        made = f"{made}.flip(-1)" if source.dtype == "key" else made
        return back(made, to.dtype)
    if source.rank > to.rank:
        x = as_word(w, op.operands[0])
        return w.call("grow_bits", f"{x}.flip(-1)" if to.dtype == "key" else x, TORCH[to.dtype])
    return f"{x}.view({TORCH[to.dtype]})"
