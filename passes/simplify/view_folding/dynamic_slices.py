"""View folding of dynamic slices and dynamic updates.

Only the dimensions that a window does not cover need dimensions of their own in the base; a window
that covers a dimension starts at 0, so all others are those of the base.
"""

from collections.abc import Sequence

from shardir.ir.module import Op, Value
from shardir.ir.types import TensorType
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.data_movement import (
    BaseDims,
    emit_along_dims,
    separate_dims,
)
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import View, ViewDims


def _dynamic_slice(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, *starts = operands
    moving = _partial_dims(op.operands[0], op.result)
    if not moving:
        return None
    split = separate_dims(folder, x, moving)
    if split is None:
        return None
    view, at = split
    values = _starts(folder, op.operands[1:], starts, at, view.base.type.rank)
    return emit_along_dims(folder, op, split, values, op.attrs)


def _dynamic_update_slice(
    folder: ViewFolder, op: Op, operands: Sequence[View]
) -> Sequence[View] | None:
    x, update, *starts = operands
    moving = _partial_dims(op.operands[0], op.operands[1])
    if not moving:
        return None
    split = separate_dims(folder, x, moving)
    if split is None:
        return None
    view, at = split
    seen = views.view_in_base_of(_without(update.dims, moving),
                           View(view.base, _without(view.dims, moving)))  # fmt: skip
    if seen is None:
        return None
    dims = list(seen)
    for d in moving:
        dims[at[d]] = update.dims[d]
    rank = view.base.type.rank
    values = [
        view.base,
        folder.materialize(View(update.base, tuple(dims))),
        *_starts(folder, op.operands[2:], starts, at, rank),
    ]
    return [View(folder.emit(op, values, view.base.type, op.attrs), view.dims)]


def _partial_dims(operand: Value, window: Value) -> list[int]:
    """Return the dimensions that a window does not cover."""
    pairs = zip(operand.type.shape, window.type.shape, strict=True)
    return [d for d, (n, m) in enumerate(pairs) if n != m]


def _without(dims: ViewDims, gone: Sequence[int]) -> ViewDims:
    return tuple(() if d in gone else pieces for d, pieces in enumerate(dims))


def _starts(
    folder: ViewFolder, olds: Sequence[Value], starts: Sequence[View], at: BaseDims, rank: int
) -> list[Value]:
    """Return the offset of the window in each dimension of the base."""
    position_of = {i: d for d, i in at.items()}
    zero: Value = folder.b.full(0, TensorType((), olds[0].type.dtype))
    return [
        folder.materialize(starts[position_of[i]]) if i in position_of else zero
        for i in range(rank)
    ]


DYNAMIC_SLICE_RULES: dict[str, FoldingRule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
}
