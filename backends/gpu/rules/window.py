"""Window reductions, and the scatter that is the gradient of window maximum and minimum."""

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import view_as_word, view_back
from shardir.backends.gpu.torch_text import limit_text, list_text
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.module import Op

WINDOW_ATTRIBUTES = ("window", "strides", "padding", "base_dilation", "window_dilation")


@lowers("reduce_window")
def _reduce_window(w: FunctionWriter, op: Op, x: str) -> str:
    """Lower `reduce_window`; unsigned integers are mapped to signed words or order-preserving
    integers, bools to 0 and 1.
    """
    dtype, combine = op.result.type.dtype, op.attrs["op"]
    given, fill = x, {"add": "0", "mul": "1"}.get(combine) or limit_text(dtype, combine == "min")
    if dtype == "bool" and combine == "add":
        combine = "max"
    ordered = combine in ("max", "min") and (dtype in SIGNED_WORD_DTYPES or dtype == "bool")
    if dtype in NARROW_FLOATS:
        given = f"{x}.float()"
    elif ordered:
        given = w.call_library("in_order", x)
        fill = _ordered_limit(dtype, combine == "min")
    else:
        given = view_as_word(w, op.operands[0])
    geometry = (list_text(op.attrs[name]) for name in WINDOW_ATTRIBUTES)
    made = w.call_library("reduce_windows", given, f'"{combine}"', fill, *geometry)
    if ordered:
        return w.call_library("out_of_order", made, TORCH_DTYPES[dtype])
    return f"{made}.to({TORCH_DTYPES[dtype]})" if dtype in NARROW_FLOATS else view_back(made, dtype)


def _ordered_limit(dtype: str, highest: bool) -> str:
    """Return the highest or lowest value of a type under the order-preserving map."""
    if dtype == "bool":
        return str(int(highest))
    return limit_text("i64" if dtype in ("u64", "key") else dtype, highest)


@lowers("select_and_scatter")
def _select_and_scatter(w: FunctionWriter, op: Op, x: str, source: str) -> str:
    geometry = (list_text(op.attrs[name]) for name in WINDOW_ATTRIBUTES)
    return w.call_library("scatter_to_chosen", x, source, f'"{op.attrs["op"]}"', *geometry)
