"""View folding of gathers and scatters: dimensions without indices keep the layout of the base.

Operand dimensions that are covered completely, and those of the indices, are as independent as the
factors of a contraction: they are those of the bases. The slices have the base dimensions in the
order of the original ones, compared from the last, so that split dimensions are contiguous again.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shardir.ir.module import Op, Value
from shardir.ops.indexing.layout import (
    GATHER,
    SCATTER,
    GatherAttributes,
    IndexingDims,
    IndexingLayout,
    IndexingNames,
    ScatterAttributes,
)
from shardir.ops.type_checks import Ints
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.data_movement import BaseDims, separate_dims
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import BROADCAST_DIM, View, ViewPiece, ViewPieces


class GatherScatterParts(NamedTuple):
    """A gather or scatter on bases: operand and indices, the layout of the slices as a view, and
    the window dimensions in its base."""

    operand: View
    indices: View
    slices: View
    windows: Ints
    at: BaseDims
    indices_at: BaseDims


def _gather(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, indices = operands
    read = GatherAttributes.of(op).dims
    layout = IndexingLayout.for_shapes(op.operands[0].type.shape, op.result.type.rank, read)
    if x.base in folder.splats:
        return None
    split = separate_dims(folder, x, _partial_dims(op.operands[0], op.result, layout))
    if split is None:
        return None
    parts = _parts(folder, split, indices, op.result, layout)
    if parts is None:
        return None
    attrs = _attrs(op, GATHER, read, parts)
    values = [parts.operand.base, parts.indices.base]
    value = folder.emit(op, values, parts.slices.base.type, attrs)
    return [View(value, parts.slices.dims)]


def _scatter(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, indices, updates = operands
    old, slices = op.operands[0], op.operands[2]
    read = ScatterAttributes.of(op).dims
    layout = IndexingLayout.for_shapes(old.type.shape, slices.type.rank, read)
    alone = _partial_dims(old, slices, layout)
    if x.base in folder.splats or x.has_broadcasts:
        split = _layout_of_updates(old, updates, alone, layout)
    else:
        split = separate_dims(folder, x, alone)
    if split is None:
        return None
    parts = _parts(folder, split, indices, slices, layout)
    if parts is None or parts.slices.has_broadcasts:
        return None
    values = [
        folder.materialize_like(old, parts.operand),
        parts.indices.base,
        folder.materialize_like(slices, parts.slices),
    ]
    attrs = _attrs(op, SCATTER, read, parts)
    value = folder.emit(op, values, parts.operand.base.type, attrs)
    return [View(value, parts.operand.dims)]


def _partial_dims(operand: Value, slices: Value, layout: IndexingLayout) -> list[int]:
    """Return the operand dimensions that are not covered completely, or that indices refer to."""
    free = {
        d
        for s, d in layout.window.items()
        if slices.type.shape[s] == operand.type.shape[d] and d not in layout.index_map
    }
    return [d for d in range(operand.type.rank) if d not in free]


def _layout_of_updates(
    old: Value, updates: View, alone: Sequence[int], layout: IndexingLayout
) -> tuple[View, BaseDims] | None:
    """Return a layout for an operand without one, such as zeros: that of the updates."""
    source = {d: updates.dims[s] for s, d in layout.window.items() if d not in alone}
    walked: dict[int, int] = {}
    last: dict[int, int] = {}
    for d, pieces in source.items():
        for piece in pieces:
            walked[piece.dim] = walked.get(piece.dim, 1) * piece.size
            last[piece.dim] = max(last.get(piece.dim, 0), d)
    shape = updates.base.type.shape
    if BROADCAST_DIM in walked or any(shape[dim] != n for dim, n in walked.items()):
        return None
    keys = sorted([*((d, -1, d) for d in alone), *((d, dim, -1) for dim, d in last.items())])
    position_of = {dim: i for i, (_, dim, _) in enumerate(keys) if dim >= 0}
    at = {d: i for i, (_, dim, d) in enumerate(keys) if dim < 0}
    sizes = [old.type.shape[d] if dim < 0 else shape[dim] for _, dim, d in keys]
    dims: list[ViewPieces] = []
    for d in range(old.type.rank):
        if d in at:
            dims.append((ViewPiece(at[d], 1, sizes[at[d]]),) if sizes[at[d]] != 1 else ())
        else:
            dims.append(tuple(piece._replace(dim=position_of[piece.dim]) for piece in source[d]))
    return View(Value(old.type.with_shape(sizes)), tuple(dims)), at


def _parts(
    folder: ViewFolder,
    split: tuple[View, BaseDims],
    indices: View,
    slices: Value,
    layout: IndexingLayout,
) -> GatherScatterParts | None:
    if indices.base in folder.splats:
        indices = views.identity_view(folder.materialize(indices))
    operand, at = split
    vector = len(indices.dims) - 1
    separated = separate_dims(folder, indices, [*layout.batching.values(), vector])
    if separated is None or separated[1][vector] != separated[0].base.type.rank - 1:
        return None
    indices, indices_at = separated
    gone = {at[d] for d in (*layout.dropped, *layout.batching)}
    windows = [d for d in range(operand.base.type.rank) if d not in gone]
    batches = list(range(indices.base.type.rank - 1))
    # Each dimension is at the position of the last of its parts.
    last_window: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for s, d in layout.window.items():
        for dim in {at[d]} if d in at else _covered_dims(operand.dims[d]):
            last_window[dim] = max(last_window.get(dim, -1), s)
        if d in at:
            sizes[at[d]] = slices.type.shape[s]
    last_batch: dict[int, int] = {}
    for i, s in enumerate(layout.batch):
        for dim in {indices_at[i]} if i in indices_at else _covered_dims(indices.dims[i]):
            last_batch[dim] = max(last_batch.get(dim, -1), s)
    shape: list[int] = []
    window_at: BaseDims = {}
    batch_at: BaseDims = {}
    w, n = list(windows), list(batches)
    while w or n:
        if not n or (w and last_window.get(w[0], -1) < last_batch.get(n[0], -1)):
            window_at[w[0]] = len(shape)
            shape.append(sizes.get(w[0], operand.base.type.shape[w[0]]))
            w.pop(0)
        else:
            batch_at[n[0]] = len(shape)
            shape.append(indices.base.type.shape[n[0]])
            n.pop(0)
    dims: list[ViewPieces] = []
    for s in range(slices.type.rank):
        if s in layout.window:
            d = layout.window[s]
            if d in at:
                base_dim, size = window_at[at[d]], slices.type.shape[s]
                dims.append((ViewPiece(base_dim, 1, size),) if size != 1 else ())
            else:
                dims.append(_renumber_pieces(operand.dims[d], window_at))
        else:
            dims.append(_renumber_pieces(indices.dims[layout.batch.index(s)], batch_at))
    view = View(Value(slices.type.with_shape(shape)), tuple(dims))
    return GatherScatterParts(
        operand, indices, view, tuple(window_at[d] for d in windows), at, indices_at
    )


def _covered_dims(pieces: ViewPieces) -> Iterable[int]:
    return [piece.dim for piece in pieces if piece.dim != BROADCAST_DIM]


def _renumber_pieces(pieces: ViewPieces, base_dims: BaseDims) -> ViewPieces:
    return tuple(p if p.dim == BROADCAST_DIM else p._replace(dim=base_dims[p.dim]) for p in pieces)


def _attrs(
    op: Op, names: IndexingNames, read: IndexingDims, parts: GatherScatterParts
) -> dict[str, object]:
    pairs = sorted(
        (parts.at[d], parts.indices_at[i])
        for d, i in zip(read.operand_batching, read.indices_batching, strict=True)
    )
    new_dims = IndexingDims(
        parts.windows,
        tuple(sorted(parts.at[d] for d in read.dropped)),
        tuple(parts.at[d] for d in read.index_map),
        tuple(d for d, _ in pairs),
        tuple(i for _, i in pairs),
    )
    named = zip(names, new_dims, strict=True)
    return {**op.attrs, **{name: dims for name, dims in named if name in op.attrs}}


GATHER_SCATTER_RULES: dict[str, FoldingRule] = {"gather": _gather, "scatter": _scatter}
