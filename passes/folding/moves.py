"""View folding of data movement: views, or slices, pads and concatenations of bases."""

from collections.abc import Callable, Sequence

from shardir.ir import Op, Value
from shardir.opset import Attr
from shardir.passes.folding import views
from shardir.passes.folding.folder import Folder, Rule
from shardir.passes.folding.views import Dims, Piece, View, repeat, straight

Places = dict[int, int]
"""Maps dimensions of a view to dimensions of its base."""


def _transpose(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    return [View(x.base, tuple(x.dims[d] for d in op.attrs["perm"]))]


def _reshape(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    shape = op.result.type.shape
    dims = views.regrouped(x.dims, shape)
    if dims is None:
        base = folder.made(x)
        dims = views.regrouped(straight(base.type.shape), shape)
        if dims is None:
            value = folder.emit(op, [base], op.result.type, op.attrs)
            return [views.of(value)]
        x = views.of(base)
    return [View(x.base, dims)]


def _broadcast(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View]:
    (x,) = operands
    source = dict(zip(op.attrs["dims"], x.dims, strict=True))
    dims = tuple(
        source[d] if source.get(d) else repeat(n) for d, n in enumerate(op.result.type.shape)
    )
    return [View(x.base, dims)]


def _constant(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    number = op.attrs["value"]
    if not isinstance(number, bool | int | float | complex):
        return None
    base = Value(op.result.type.with_shape(()), op.result.name)
    folder.splats[base] = number
    return [View(base, tuple(map(repeat, op.result.type.shape)))]


def _slice(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    (x,) = operands
    starts, strides = op.attrs["starts"], op.attrs["strides"]
    shape, old = op.result.type.shape, op.operands[0].type.shape
    cut = [d for d, (n, m) in enumerate(zip(shape, old, strict=True)) if n != m or strides[d] != 1]
    return _along(folder, op, x, cut, lambda at, rank: {
        "starts": _placed(at, starts, rank, 0), "strides": _placed(at, strides, rank, 1),
    })  # fmt: skip


def _pad(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    x, filler = operands
    low, high, interior = (op.attrs[name] for name in ("low", "high", "interior"))
    grown = [d for d, around in enumerate(zip(low, high, interior, strict=True)) if any(around)]
    return _along(folder, op, x, grown, lambda at, rank: {
        "low": _placed(at, low, rank, 0), "high": _placed(at, high, rank, 0),
        "interior": _placed(at, interior, rank, 0),
    }, filler)  # fmt: skip


def _concatenate(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Concatenate in the dimensions of the largest operand's base, with a separate one for the
    concatenated dimension."""
    dim = op.attrs["dim"]
    real = [view for view in operands if view.base not in folder.splats]
    if not real:
        return None
    lead = max(real, key=lambda view: view.base.type.size)
    if lead.base.type.rank == 0 or len(lead.dims[dim]) > 1:
        return None
    split = separated(folder, lead, [dim])
    if split is None:
        return None
    view, at = split
    others = _without(view.dims, dim)
    given = []
    for each in operands:
        if each is lead:
            given.append(view.base)
            continue
        seen = views.seen_from(_without(each.dims, dim), View(view.base, others))
        if seen is None:
            return None
        dims = (*seen[: at[dim]], each.dims[dim], *seen[at[dim] + 1 :])
        given.append(folder.made(View(each.base, dims)))
    shape = list(view.base.type.shape)
    shape[at[dim]] = op.result.type.shape[dim]
    value = folder.emit(op, given, op.result.type.with_shape(shape), {"dim": at[dim]})
    grown = (Piece(at[dim], 1, shape[at[dim]]),) if shape[at[dim]] != 1 else ()
    return [View(value, (*view.dims[:dim], grown, *view.dims[dim + 1 :]))]


def _without(dims: Dims, dim: int) -> Dims:
    return (*dims[:dim], (), *dims[dim + 1 :])


def _over(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Rewrite an operation along one dimension that preserves its size: cumulative sums and the
    like."""
    dim = op.attrs["dim"]
    rest = {name: each for name, each in op.attrs.items() if name != "dim"}
    return _along(folder, op, operands[0], [dim], lambda at, rank: {"dim": at[dim], **rest})


def _reverse(folder: Folder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    dims = [d for d in op.attrs["dims"] if op.result.type.shape[d] > 1]
    return _along(
        folder, op, operands[0], dims, lambda at, rank: {"dims": tuple(at[d] for d in dims)}
    )


def _placed(at: Places, entries: Sequence[int], rank: int, other: int) -> tuple[int, ...]:
    made = [other] * rank
    for d, place in at.items():
        made[place] = entries[d]
    return tuple(made)


def _along(
    folder: Folder,
    op: Op,
    x: View,
    dims: Sequence[int],
    attrs: Callable[[Places, int], dict[str, Attr]],
    *others: View,
) -> Sequence[View] | None:
    """Rewrite an operation in the dimensions of the base, with a separate base dimension for each
    of `dims`."""
    if not dims:
        return [x]
    if x.base in folder.splats:
        return None
    split = separated(folder, x, dims)
    if split is None:
        return None
    view, at = split
    shape = list(view.base.type.shape)
    for d in dims:
        shape[at[d]] = op.result.type.shape[d]
    operands = [view.base, *(folder.made(other) for other in others)]
    type = op.result.type.with_shape(shape)
    value = folder.emit(op, operands, type, attrs(at, len(shape)))
    made = list(view.dims)
    for d in dims:
        made[d] = (Piece(at[d], 1, shape[at[d]]),) if shape[at[d]] != 1 else ()
    return [View(value, tuple(made))]


def separated(folder: Folder, x: View, dims: Sequence[int]) -> tuple[View, Places] | None:
    """Return the view over a base with a separate dimension for each of `dims`, and where these
    are.

    Returns `None` if one of them consists of several pieces, or is broadcast.
    """
    for d in dims:
        if len(x.dims[d]) > 1 or any(piece.dim == views.REPEAT for piece in x.dims[d]):
            return None
    kinds = [dims.index(d) + 1 if d in dims else 0 for d in range(len(x.dims))]
    view, found = folder.apart(x, kinds)
    at = {d: found.index(i + 1) for i, d in enumerate(dims) if i + 1 in found}
    missing = [d for d in dims if d not in at]
    if missing:
        view, at = _with_ones(folder, view, at, missing)
    return view, at


def _with_ones(
    folder: Folder, view: View, at: Places, missing: Sequence[int]
) -> tuple[View, Places]:
    """Return the view over a base with dimensions of size 1, one for each of `missing`."""
    shape = list(view.base.type.shape)
    move = list(range(len(shape)))
    for d in missing:
        # The position behind the preceding view dimension avoids a transpose.
        before = [p.dim for pieces in view.dims[:d] for p in pieces[-1:] if p.dim != views.REPEAT]
        place = move[before[-1]] + 1 if before else 0
        if shape[place : place + 1] == [1] and place not in at.values():
            at[d] = place
            continue
        shape.insert(place, 1)
        move = [m + (m >= place) for m in move]
        at = {e: i + (i >= place) for e, i in at.items()}
        at[d] = place
    base = folder.reshaped(view.base, shape)
    dims = tuple(
        tuple(p if p.dim == views.REPEAT else p._replace(dim=move[p.dim]) for p in pieces)
        for pieces in view.dims
    )
    return View(base, dims), at


RULES: dict[str, Rule] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "constant": _constant,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "reverse": _reverse,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _over),
}
