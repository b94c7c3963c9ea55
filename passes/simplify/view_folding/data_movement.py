"""View folding of data movement: views, or slices, pads and concatenations of bases."""

from collections.abc import Callable, Mapping, Sequence

from shardir.ir.module import Op, Value
from shardir.ir.operation import Attr
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import (
    View,
    ViewDims,
    ViewPiece,
    broadcast_dim,
    identity_dims,
)

BaseDims = dict[int, int]
"""Maps dimensions of a view to dimensions of its base."""


def _transpose(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    return [View(x.base, tuple(x.dims[d] for d in op.attrs["perm"]))]


def _reshape(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    shape = op.result.type.shape
    dims = views.reshape_dims(x.dims, shape)
    if dims is None:
        base = folder.materialize(x)
        dims = views.reshape_dims(identity_dims(base.type.shape), shape)
        if dims is None:
            value = folder.emit(op, [base], op.result.type, op.attrs)
            return [views.identity_view(value)]
        x = views.identity_view(base)
    return [View(x.base, dims)]


def _broadcast(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    source = dict(zip(op.attrs["dims"], x.dims, strict=True))
    dims = tuple(
        source[d] if source.get(d) else broadcast_dim(n) for d, n in enumerate(op.result.type.shape)
    )
    return [View(x.base, dims)]


def _constant(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    number = op.attrs["value"]
    if not isinstance(number, bool | int | float | complex):
        return None
    base = Value(op.result.type.with_shape(()), op.result.name)
    folder.splats[base] = number
    return [View(base, tuple(map(broadcast_dim, op.result.type.shape)))]


def _slice(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    (x,) = operands
    starts, strides = op.attrs["starts"], op.attrs["strides"]
    shape, old = op.result.type.shape, op.operands[0].type.shape
    # A stride along a dimension of which all elements remain has no effect: its size is 1.
    sliced_dims = [d for d, (n, m) in enumerate(zip(shape, old, strict=True)) if n != m]
    return _rewrite_along_dims(
        folder,
        op,
        x,
        sliced_dims,
        lambda at, rank: {
            "starts": _entries_of_base(at, starts, rank, 0),
            "strides": _entries_of_base(at, strides, rank, 1),
        },
    )


def _pad(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, filler = operands
    low, high, interior = (op.attrs[name] for name in ("low", "high", "interior"))
    grown = [d for d, around in enumerate(zip(low, high, interior, strict=True)) if any(around)]
    return _rewrite_along_dims(folder, op, x, grown, lambda at, rank: {
        "low": _entries_of_base(at, low, rank, 0), "high": _entries_of_base(at, high, rank, 0),
        "interior": _entries_of_base(at, interior, rank, 0),
    }, filler)  # fmt: skip


def _concatenate(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Concatenate in the dimensions of the largest operand's base, with a separate one for the
    concatenated dimension."""
    dim = op.attrs["dim"]
    real = [view for view in operands if view.base not in folder.splats]
    if not real:
        return None
    lead = max(real, key=lambda view: view.base.type.size)
    split = separate_dims(folder, lead, [dim])
    if split is None:
        return None
    view, at = split
    others = _without(view.dims, dim)
    new_operands = []
    for each in operands:
        if each is lead:
            new_operands.append(view.base)
            continue
        seen = views.view_in_base_of(_without(each.dims, dim), View(view.base, others))
        if seen is None:
            return None
        dims = (*seen[: at[dim]], each.dims[dim], *seen[at[dim] + 1 :])
        new_operands.append(folder.materialize(View(each.base, dims)))
    shape = list(view.base.type.shape)
    shape[at[dim]] = op.result.type.shape[dim]
    value = folder.emit(op, new_operands, op.result.type.with_shape(shape), {"dim": at[dim]})
    grown = (ViewPiece(at[dim], 1, shape[at[dim]]),) if shape[at[dim]] != 1 else ()
    return [View(value, (*view.dims[:dim], grown, *view.dims[dim + 1 :]))]


def _without(dims: ViewDims, dim: int) -> ViewDims:
    return (*dims[:dim], (), *dims[dim + 1 :])


def _cumulative(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Rewrite an operation along one dimension that preserves its size: cumulative sums and the
    like."""
    dim = op.attrs["dim"]
    rest = {name: each for name, each in op.attrs.items() if name != "dim"}
    return _rewrite_along_dims(
        folder, op, operands[0], [dim], lambda at, rank: {"dim": at[dim], **rest}
    )


def _reverse(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    dims = [d for d in op.attrs["dims"] if op.result.type.shape[d] > 1]
    return _rewrite_along_dims(
        folder, op, operands[0], dims, lambda at, rank: {"dims": tuple(at[d] for d in dims)}
    )


def _entries_of_base(
    at: BaseDims, entries: Sequence[int], rank: int, other: int
) -> tuple[int, ...]:
    result = [other] * rank
    for d, base_dim in at.items():
        result[base_dim] = entries[d]
    return tuple(result)


def _rewrite_along_dims(
    folder: ViewFolder,
    op: Op,
    x: View,
    dims: Sequence[int],
    attrs: Callable[[BaseDims, int], dict[str, Attr]],
    *others: View,
) -> Sequence[View] | None:
    """Rewrite an operation in the dimensions of the base, with a separate base dimension for each
    of `dims`."""
    if not dims:
        return [x]
    if x.base in folder.splats:
        return None
    split = separate_dims(folder, x, dims)
    if split is None:
        return None
    view, at = split
    materialized = [folder.materialize(other) for other in others]
    return emit_along_dims(folder, op, split, materialized, attrs(at, view.base.type.rank))


def emit_along_dims(
    folder: ViewFolder,
    op: Op,
    split: tuple[View, BaseDims],
    others: Sequence[Value],
    attrs: Mapping[str, Attr],
) -> Sequence[View]:
    """Emit an operation on the base of a view with separate dimensions, which changes their
    sizes."""
    view, at = split
    shape = list(view.base.type.shape)
    for d in at:
        shape[at[d]] = op.result.type.shape[d]
    value = folder.emit(op, [view.base, *others], op.result.type.with_shape(shape), attrs)
    result = list(view.dims)
    for d in at:
        result[d] = (ViewPiece(at[d], 1, shape[at[d]]),) if shape[at[d]] != 1 else ()
    return [View(value, tuple(result))]


def separate_dims(folder: ViewFolder, x: View, dims: Sequence[int]) -> tuple[View, BaseDims] | None:
    """Return the view over a base with a separate dimension for each of `dims`, and where these
    are.

    Returns `None` if one of them consists of several pieces, or is broadcast.
    """
    for d in dims:
        if len(x.dims[d]) > 1 or any(piece.dim == views.BROADCAST_DIM for piece in x.dims[d]):
            return None
    kinds = [dims.index(d) + 1 if d in dims else 0 for d in range(len(x.dims))]
    view, kinds_of_dims = folder.split_by_kind(x, kinds)
    at = {d: kinds_of_dims.index(i + 1) for i, d in enumerate(dims) if i + 1 in kinds_of_dims}
    missing = [d for d in dims if d not in at]
    if missing:
        view, at = _insert_unit_dims(folder, view, at, missing)
    return view, at


def _insert_unit_dims(
    folder: ViewFolder, view: View, at: BaseDims, missing: Sequence[int]
) -> tuple[View, BaseDims]:
    """Return the view over a base with dimensions of size 1, one for each of `missing`."""
    shape = list(view.base.type.shape)
    move = list(range(len(shape)))
    for d in missing:
        # The position behind the preceding view dimension avoids a transpose.
        before = [
            p.dim for pieces in view.dims[:d] for p in pieces[-1:] if p.dim != views.BROADCAST_DIM
        ]
        new_dim = move[before[-1]] + 1 if before else 0
        if shape[new_dim : new_dim + 1] == [1] and new_dim not in at.values():
            at[d] = new_dim
            continue
        shape.insert(new_dim, 1)
        move = [m + (m >= new_dim) for m in move]
        at = {e: i + (i >= new_dim) for e, i in at.items()}
        at[d] = new_dim
    base = folder.reshape_base(view.base, shape)
    dims = tuple(
        tuple(p if p.dim == views.BROADCAST_DIM else p._replace(dim=move[p.dim]) for p in pieces)
        for pieces in view.dims
    )
    return View(base, dims), at


DATA_MOVEMENT_RULES: dict[str, FoldingRule] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "constant": _constant,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "reverse": _reverse,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
}
