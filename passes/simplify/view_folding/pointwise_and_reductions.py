"""View folding of elementwise operations, reductions and bitcasts: they run in the dimensions of
the bases."""

from collections.abc import Sequence

from shardir import ops
from shardir.ir.module import Op
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import View, ViewDims, view_in_base_of
from shardir.passes.whole_program.collective_rules import is_sum_exact_product


def _elementwise(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Run in the dimensions of the operand with the smallest base if that has all elements of the
    result.

    Among several such operands, the one whose layout most of the others have is chosen.
    """
    shape = op.results[0].type.shape
    if not shape:
        return None
    full = [i for i, value in enumerate(op.operands) if value.type.shape == shape]
    first = operands[full[0]]
    lead: View | None
    placed: dict[int, ViewDims | None]
    if all(
        operands[i].base not in folder.splats
        and operands[i].dims == first.dims
        and operands[i].base.type.shape == first.base.type.shape
        for i in full
    ):
        lead, placed = first, dict.fromkeys(full)
    else:
        lead, placed = _choose_layout(folder, [(i, operands[i]) for i in full])
        if lead is None:
            return None
    new_operands = []
    for i, view in enumerate(operands):
        if i not in placed:
            new_operands.append(folder.materialize(view))
        elif (dims := placed[i]) is None:
            new_operands.append(view.base)
        else:
            new_operands.append(folder.materialize(View(view.base, dims)))
    type = op.results[0].type.with_shape(lead.base.type.shape)
    return [View(folder.emit(op, new_operands, type, op.attrs), lead.dims)]


def _choose_layout(
    folder: ViewFolder, operands: Sequence[tuple[int, View]]
) -> tuple[View | None, dict[int, ViewDims | None]]:
    """Return the operand in whose dimensions to compute, and the views of all operands in these.

    An operand with the same layout has `None`.
    """
    best: tuple[tuple[int, int, int, bool, bool], View] | None = None
    chosen: dict[int, ViewDims | None] = {}
    tried: set[tuple[tuple[int, ...], ViewDims]] = set()
    for _, lead in operands:
        key = (lead.base.type.shape, lead.dims)
        if key in tried or (best is not None and -lead.base.type.size < best[0][0]):
            continue
        tried.add(key)
        seen: dict[int, ViewDims | None] = {}
        alike = 0
        for i, view in operands:
            dims = view_in_base_of(view.dims, lead)
            if dims is None:
                break
            there = View(view.base, dims)
            same = there.is_identity and view.base not in folder.splats
            alike += view.base.type.nbytes if same else 0
            seen[i] = None if same else dims
        else:
            # Ties favor dimensions that were never split, since more operations use them, and
            # operands other than contraction results, which can be written in any order.
            turns = lead.base in folder.contracted
            score = (-lead.base.type.size, alike, -lead.base.type.rank, not turns, lead.is_identity)
            if best is None or score > best[0]:
                best, chosen = (score, lead), seen
    return (best[1], chosen) if best else (None, chosen)


IDEMPOTENT_REDUCTIONS = (ops.max_, ops.min_, ops.any_, ops.all_)


def _reduction(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    """Reduce over the parts of the base that the reduced dimensions cover."""
    (x,) = operands
    dims = op.attrs["dims"]
    if x.base in folder.splats or not x.dims:
        return None
    times = 1
    for d in dims:
        for piece in x.dims[d]:
            times *= piece.size if piece.dim == views.BROADCAST_DIM else 1
    if times > 1 and op.spec not in IDEMPOTENT_REDUCTIONS:
        if op.spec is not ops.sum_ or not is_sum_exact_product(times, op.result.type.dtype):
            return None
    else:
        times = 1
    view, kinds = folder.split_by_kind(x, [int(d in dims) for d in range(len(x.dims))])
    remaining_dims = [d for d, kind in enumerate(kinds) if not kind]
    gone = tuple(d for d, kind in enumerate(kinds) if kind)
    position_of = {d: i for i, d in enumerate(remaining_dims)}
    left: ViewDims = tuple(
        tuple(
            p if p.dim == views.BROADCAST_DIM else p._replace(dim=position_of[p.dim])
            for p in pieces
        )
        for d, pieces in enumerate(view.dims)
        if d not in dims
    )
    value, type = (
        view.base,
        op.result.type.with_shape([view.base.type.shape[d] for d in remaining_dims]),
    )
    if times == 1:
        if gone:
            value = folder.emit(op, [value], type, {"dims": gone})
        return [View(value, left)]
    b = folder.b
    total = b.sum(value, dims=gone) if gone else value
    b.why = f"{times} equal values added up"
    product = b.mul(total, b.full(times, type))
    b.why = op.why
    (value,) = folder.rename_results([product], [op.result.name])
    return [View(value, left)]


def _bitcast(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    same = op.result.type.shape == op.operands[0].type.shape
    return _elementwise(folder, op, operands) if same else None


POINTWISE_AND_REDUCTION_RULES: dict[str, FoldingRule] = {
    "bitcast": _bitcast,
    "elementwise": _elementwise,
    **dict.fromkeys(("sum", "prod", "max", "min", "any", "all"), _reduction),
}
