"""Reinterpret the bits of elements as elements of another type."""

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import view_as_word, view_back
from shardir.ir.module import Op


@lowers("bitcast")
def _bitcast(w: FunctionWriter, op: Op, x: str) -> str:
    """Lower `bitcast`; the first 32-bit word of a key is its high word."""
    source, to = op.operands[0].type, op.result.type
    if source == to:
        return x
    if source.rank < to.rank:
        made = w.call_library(
            "shrink_bits", x, SIGNED_WORD_DTYPES.get(to.dtype, TORCH_DTYPES[to.dtype])
        )
        made = f"{made}.flip(-1)" if source.dtype == "key" else made
        return view_back(made, to.dtype)
    if source.rank > to.rank:
        x = view_as_word(w, op.operands[0])
        return w.call_library(
            "grow_bits", f"{x}.flip(-1)" if to.dtype == "key" else x, TORCH_DTYPES[to.dtype]
        )
    return f"{x}.view({TORCH_DTYPES[to.dtype]})"
