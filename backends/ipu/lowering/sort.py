"""Lowering rules of sort and top-k, with `popops::topKWithPermutation`.

Keys are mapped to integers of the same order; a stable sort of these gives a permutation, which is
applied to all operands.
"""

from shardir.backends.ipu.codegen.emitter import ProgramEmitter, shuffle_view
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.backends.ipu.lowering.reductions import ordered_keys
from shardir.ir.module import Op, Value


@lowers("sort")
def _sort(e: ProgramEmitter, op: Op) -> None:
    """Lower `sort`: sort stably by the last key first, then by each key before it."""
    e.comment(op)
    dim, count = op.attrs["dim"], op.attrs.get("keys", 1)
    rank, size = op.operands[0].type.rank, op.operands[0].type.shape[dim]
    label = e.label(op.results[0])
    order = ""
    for key in reversed(op.operands[:count]):
        keys = _move_to_end(ordered_keys(e, e.text(key), key.type, label), rank, dim)
        if order:
            keys = f"{e.use_helper('taken')}(graph, {keys}, {order}, {e.sequence}, {label})"
        found = _permutation(e, keys, size, largest=False, label=label)
        if order:
            found = f"{e.use_helper('taken')}(graph, {order}, {found}, {e.sequence}, {label})"
        order = e.temporary(f"{op.results[0].name}_order", found)
    for x, y in zip(op.operands, op.results, strict=True):
        text = _take(e, x, rank, dim, order, y)
        back = [*range(dim), rank - 1, *range(dim, rank - 1)]
        words = [rank] if x.type.dtype == "key" else []
        e.define(y, shuffle_view(text, [*back, *words]))


def _move_to_end(text: str, rank: int, dim: int) -> str:
    """Return the view of a tensor with a dimension moved to the end."""
    return shuffle_view(text, [d for d in range(rank) if d != dim] + [dim])


def _permutation(e: ProgramEmitter, keys: str, count: int, *, largest: bool, label: str) -> str:
    order = "DESCENDING" if largest else "ASCENDING"
    flag = "true" if largest else "false"
    params = f"popops::TopKParams({count}, {flag}, popops::SortOrder::{order}, true)"
    return f"popops::topKWithPermutation(graph, {e.sequence}, {keys}, {params}, {label}).second"


def _take(e: ProgramEmitter, x: Value, rank: int, dim: int, order: str, y: Value) -> str:
    """Return the elements of `x` at the indices `order` along the dimension, moved to the end."""
    helper = e.use_helper("taken")
    if x.type.dtype != "key":
        text = _move_to_end(e.text(x), rank, dim)
        return f"{helper}(graph, {text}, {order}, {e.sequence}, {e.label(y)})"
    words = []
    for word in (0, 1):
        text = f"{e.text(x)}.slice({word}, {word + 1}, {rank})"
        text = _move_to_end(f"{text}.reshape({{{', '.join(map(str, x.type.shape))}}})", rank, dim)
        made = f"{helper}(graph, {text}, {order}, {e.sequence}, {e.label(y)})"
        shape = [*(n for d, n in enumerate(x.type.shape) if d != dim), x.type.shape[dim], 1]
        words.append(f"{made}.reshape({{{', '.join(map(str, shape))}}})")
    return f"poplar::concat({{{', '.join(words)}}}, {rank})"


@lowers("top_k")
def _top_k(e: ProgramEmitter, op: Op) -> None:
    """Lower `top_k` in the total order: NaN above all numbers, or below them if its sign is set."""
    e.comment(op)
    x, (values, indices) = op.operands[0], op.results
    label = e.label(values)
    text = e.text(x)
    if x.type.dtype in ("f32", "f16"):
        if x.type.dtype == "f16":
            text = f"popops::cast(graph, {text}, poplar::FLOAT, {e.sequence}, {label})"
        keys = f"{e.use_helper('total_order')}(graph, {text}, {e.sequence}, {label})"
    else:
        keys = ordered_keys(e, text, x.type, label)
    count = values.type.shape[-1]
    order = e.temporary(
        f"{values.name}_order", _permutation(e, keys, count, largest=True, label=label)
    )
    helper = e.use_helper("taken")
    e.define(values, f"{helper}(graph, {e.text(x)}, {order}, {e.sequence}, {label})")
    e.define(indices, f"{order}.reinterpret(poplar::INT)")
