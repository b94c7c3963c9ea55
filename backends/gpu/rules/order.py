"""Sort and top-k."""

from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.ir.module import Op


@lowers("sort")
def _sort(w: FunctionWriter, op: Op, *xs: str) -> str | None:
    """Lower `sort`; one permutation of the keys orders all operands."""
    dim, keys = op.attrs["dim"], op.attrs.get("keys", 1)
    order = w.call_library("order_of", f"[{', '.join(xs[:keys])}]", str(dim))
    if len(xs) == 1:
        return w.call_library("in_places", xs[0], order, str(dim))
    name = w.names.make_fresh("order")
    w.append_line(f"{name} = {order}", f"the order that {op.name} finds")
    moved = (w.call_library("in_places", w.name(x), name, str(dim)) for x in op.operands)
    return ", ".join(moved)


@lowers("top_k")
def _top_k(w: FunctionWriter, op: Op, x: str) -> str:
    return w.call_library("largest", x, str(op.results[0].type.shape[-1]))
