"""View folding of dynamic slices and dynamic updates.

Only the dimensions that a window does not cover need dimensions of their own in the base; a window
that covers a dimension starts at 0, so all others are those of the base.
"""

from collections.abc import Sequence

from shardir.ir import Op, Value
from shardir.passes.folding import views
from shardir.passes.folding.folder import Folder, Rule
from shardir.passes.folding.moves import Places, separated
from shardir.passes.folding.views import Dims, Piece, View
from shardir.types import TensorType


def _dynamic_slice(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, *starts = operands
    moving = _moving(op.operands[0], op.result)
    if x.base in folder.splats or not moving:
        return None
    split = separated(folder, x, moving)
    if split is None:
        return None
    view, at = split
    shape = list(view.base.type.shape)
    for d in moving:
        shape[at[d]] = op.result.type.shape[d]
    values = [view.base, *_starts(folder, op.operands[1:], starts, at, len(shape))]
    value = folder.emit(op, values, op.result.type.with_shape(shape), op.attrs)
    dims = list(view.dims)
    for d in moving:
        dims[d] = (Piece(at[d], 1, shape[at[d]]),) if shape[at[d]] != 1 else ()
    return [View(value, tuple(dims))]


def _update(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, update, *starts = operands
    moving = _moving(op.operands[0], op.operands[1])
    if x.base in folder.splats or x.repeats or not moving:
        return None
    split = separated(folder, x, moving)
    if split is None:
        return None
    view, at = split
    seen = views.seen_from(_without(update.dims, moving),
                           View(view.base, _without(view.dims, moving)))  # fmt: skip
    if seen is None:
        return None
    dims = list(seen)
    for d in moving:
        dims[at[d]] = update.dims[d]
    rank = view.base.type.rank
    values = [
        view.base,
        folder.made(View(update.base, tuple(dims))),
        *_starts(folder, op.operands[2:], starts, at, rank),
    ]
    return [View(folder.emit(op, values, view.base.type, op.attrs), view.dims)]


def _moving(whole: Value, window: Value) -> list[int]:
    """Return the dimensions that a window does not cover."""
    pairs = zip(whole.type.shape, window.type.shape, strict=True)
    return [d for d, (n, m) in enumerate(pairs) if n != m]


def _without(dims: Dims, gone: Sequence[int]) -> Dims:
    return tuple(() if d in gone else pieces for d, pieces in enumerate(dims))


def _starts(
    folder: Folder, olds: Sequence[Value], starts: Sequence[View], at: Places, rank: int
) -> list[Value]:
    """Return the offset of the window in each dimension of the base."""
    place = {i: d for d, i in at.items()}
    zero: Value = folder.b.full(0, TensorType((), olds[0].type.dtype))
    return [folder.made(starts[place[i]]) if i in place else zero for i in range(rank)]


RULES: dict[str, Rule] = {"dynamic_slice": _dynamic_slice, "dynamic_update_slice": _update}
