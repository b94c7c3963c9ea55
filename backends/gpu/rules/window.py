"""Window reductions, and the scatter that is the gradient of window maximum and minimum."""

from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import as_word, back
from shardir.backends.gpu.spelling import TORCH, WORDS, limit_text, listed
from shardir.backends.gpu.writer import Writer
from shardir.ir.module import Op
from shardir.ops.elementwise.numerics import HALF_PRECISION_DTYPES

WINDOW = ("window", "strides", "padding", "base_dilation", "window_dilation")


@lowers("reduce_window")
def _reduce_window(w: Writer, op: Op, x: str) -> str:
    """Lower `reduce_window`; unsigned integers are mapped to signed words or order-preserving
    integers, bools to 0 and 1.
    """
    dtype, combine = op.result.type.dtype, op.attrs["op"]
    given, fill = x, {"add": "0", "mul": "1"}.get(combine) or limit_text(dtype, combine == "min")
    if dtype == "bool" and combine == "add":
        combine = "max"
    ordered = combine in ("max", "min") and (dtype in WORDS or dtype == "bool")
    if dtype in HALF_PRECISION_DTYPES:
        given = f"{x}.float()"
    elif ordered:
        given = w.call("in_order", x)
        fill = _in_order(dtype, combine == "min")
    else:
        given = as_word(w, op.operands[0])
    geometry = (listed(op.attrs[name]) for name in WINDOW)
    made = w.call("reduce_windows", given, f'"{combine}"', fill, *geometry)
    if ordered:
        return w.call("out_of_order", made, TORCH[dtype])
    return f"{made}.to({TORCH[dtype]})" if dtype in HALF_PRECISION_DTYPES else back(made, dtype)


def _in_order(dtype: str, highest: bool) -> str:
    """Return the highest or lowest value of a type under the order-preserving map."""
    if dtype == "bool":
        return str(int(highest))
    return limit_text("i64" if dtype in ("u64", "key") else dtype, highest)


@lowers("select_and_scatter")
def _select_and_scatter(w: Writer, op: Op, x: str, source: str) -> str:
    geometry = (listed(op.attrs[name]) for name in WINDOW)
    return w.call("scatter_to_chosen", x, source, f'"{op.attrs["op"]}"', *geometry)
