"""Reductions over sliding windows, and the gradient of those that choose."""

from shardir.backends.emission import EmissionError
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.spelling import NARROW, TORCH, WORDS, limit_text, listed
from shardir.backends.gpu.writer import Writer
from shardir.ir import Op

WINDOW = ("window", "strides", "padding", "base_dilation", "window_dilation")


@lowers("reduce_window")
def _reduce_window(w: Writer, op: Op, x: str) -> str:
    dtype, combine = op.result.type.dtype, op.attrs["op"]
    fill = {"add": "0", "mul": "1"}.get(combine) or limit_text(dtype, combine == "min")
    if dtype in NARROW:
        x = f"{x}.float()"
    ordered = dtype in WORDS or dtype == "bool"
    if ordered:
        _refuse_words(op)
    geometry = (listed(op.attrs[name]) for name in WINDOW)
    made = w.call("reduce_windows", x, f'"{combine}"', fill, *geometry)
    return f"{made}.to({TORCH[dtype]})" if dtype in NARROW else made


@lowers("select_and_scatter")
def _select_and_scatter(w: Writer, op: Op, x: str, source: str) -> str:
    if op.result.type.dtype in WORDS:
        _refuse_words(op)
    geometry = (listed(op.attrs[name]) for name in WINDOW)
    return w.call("scatter_to_chosen", x, source, f'"{op.attrs["op"]}"', *geometry)


def _refuse_words(op: Op) -> None:
    dtype = op.result.type.dtype
    raise EmissionError.of(
        op,
        f"torch reduces no windows of {dtype}",
        f"convert %{op.operands[0].name} to {'i32' if dtype in ('bool', 'u16') else 'i64'} first",
    )
