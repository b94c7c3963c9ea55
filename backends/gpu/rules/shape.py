"""Data movement, as views wherever torch supports them, and sorts."""

from shardir.backends.gpu.function_writer import FunctionWriter
from shardir.backends.gpu.lowering import lowers
from shardir.backends.gpu.rules.arithmetic import view_as_word, view_back
from shardir.backends.gpu.torch_text import full_text, list_text, shape_arguments
from shardir.ir.module import Op

COPIED_RANK = 4
"""Minimum rank of transposes that are copied at once. Batched products and reshapes copy views of
such a rank, once for each use and element by element."""


@lowers("broadcast", lazy=True)
def _broadcast(w: FunctionWriter, op: Op) -> str:
    (x,), dims, to = op.operands, op.attrs["dims"], op.result.type
    number = w.uniform_number(x)
    if number is not None:
        return full_text(to.shape, number, to.dtype)
    name = w.name(x)
    if dims == tuple(range(to.rank - x.type.rank, to.rank)):
        return f"{name}.expand({shape_arguments(to.shape)})"
    aligned = [1] * to.rank
    for size, dim in zip(x.type.shape, dims, strict=True):
        aligned[dim] = size
    shown = f"{name}.reshape({shape_arguments(aligned)})"
    return shown if tuple(aligned) == to.shape else f"{shown}.expand({shape_arguments(to.shape)})"


@lowers("reshape")
def _reshape(w: FunctionWriter, op: Op, x: str) -> str:
    return f"{x}.reshape({shape_arguments(op.result.type.shape)})"


@lowers("transpose")
def _transpose(w: FunctionWriter, op: Op, x: str) -> str:
    perm = op.attrs["perm"]
    if perm == (1, 0):
        return f"{x}.T"
    if len(perm) >= COPIED_RANK and len(perm) - 1 in perm[-2:]:
        return w.call_library("copy_permuted", x, list_text(perm))
    return f"{x}.permute({shape_arguments(perm)})" if perm else x


@lowers("reverse")
def _reverse(w: FunctionWriter, op: Op, x: str) -> str:
    dims = op.attrs["dims"]
    word = view_as_word(w, op.operands[0])
    return view_back(f"torch.flip({word}, {list_text(dims)})", op.result.type.dtype)


@lowers("roll")
def _roll(w: FunctionWriter, op: Op, x: str) -> str:
    word = view_as_word(w, op.operands[0])
    turned = f"torch.roll({word}, {op.attrs['shift']}, dims={op.attrs['dim']})"
    return view_back(turned, op.result.type.dtype)


@lowers("concatenate")
def _concatenate(w: FunctionWriter, op: Op, *xs: str) -> str:
    words = ", ".join(view_as_word(w, value) for value in op.operands)
    return view_back(f"torch.cat([{words}], dim={op.attrs['dim']})", op.result.type.dtype)


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
