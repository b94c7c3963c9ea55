"""View folding of loops and branches: carried values have the layout of their bases.

A carried value keeps the layout of its initial value. If the initial value is a constant, such as
the zeros that gradients are added to, the layout is that of the value that the body computes.
"""

from collections.abc import Sequence

from shardir.ir.builder import Builder, as_values
from shardir.ir.module import Block, Op, Value
from shardir.ops.control_flow.control_flow import case, scan, while_
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.data_movement import separate_dims
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder
from shardir.passes.simplify.view_folding.views import View, ViewPiece, identity_dims


def _emit(
    folder: ViewFolder, op: Op, operands: Sequence[Value], blocks: Sequence[Block]
) -> list[Value]:
    b: Builder = folder.b
    names = [value.name for value in op.results]
    results = as_values(b.emit(op.spec, *operands, blocks=tuple(blocks), **op.attrs))
    return folder.rename_results(results, names)


def _carried_layout(folder: ViewFolder, view: View) -> View | None:
    """Return the layout of a carried value from its initial value; `None` for a constant."""
    if view.base in folder.splats:
        return None
    return (
        View(folder.materialize(view), identity_dims(view.shape)) if view.has_broadcasts else view
    )


def _initial_layouts(
    folder: ViewFolder, operands: Sequence[View], olds: Sequence[Value]
) -> list[View]:
    """Return the initial layouts of carried values."""
    return [
        _carried_layout(folder, view) or views.identity_view(old)
        for view, old in zip(operands, olds, strict=True)
    ]


def _refine_layouts(
    inner: ViewFolder, entering: Sequence[View], operands: Sequence[View], returns: Sequence[Value]
) -> list[View]:
    """Return the layouts with those of constants replaced by the layouts that the body computes."""
    better = []
    for like, view, value in zip(entering, operands, returns, strict=True):
        inner_view = inner.get(value)
        if (
            view.base in inner.splats
            and inner_view.base not in inner.splats
            and not inner_view.has_broadcasts
        ):
            like = inner_view
        better.append(like)
    return better


def _while(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    condition, body = op.blocks
    likes = _initial_layouts(folder, operands, op.operands)
    for last in (False, True):
        step = folder.inner()
        params = [step.param(old, like) for old, like in zip(body.params, likes, strict=True)]
        step.run(body.ops)
        better = _refine_layouts(step, likes, operands, body.returns)
        if last or better == likes:
            break
        likes = better
    stepped = step.b.block(
        params,
        [step.materialize_like(old, like) for old, like in zip(body.returns, likes, strict=True)],
    )
    test = folder.inner()
    tested = [test.param(old, like) for old, like in zip(condition.params, likes, strict=True)]
    test.run(condition.ops)
    going = test.b.block(tested, [test.materialize_value(condition.returns[0])])
    inits = [
        folder.materialize_like(old, like) for old, like in zip(op.operands, likes, strict=True)
    ]
    results = _emit(folder, op, inits, (going, stepped))
    return [View(value, like.dims) for value, like in zip(results, likes, strict=True)]


def _scan(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    (body,) = op.blocks
    n = op.attrs["carries"]
    likes = _initial_layouts(folder, operands[:n], op.operands[:n])
    stacks = [_stacked_view(folder, view) for view in operands[n:]]
    for last in (False, True):
        inner = folder.inner()
        params = [inner.param(old, like) for old, like in zip(body.params, likes, strict=False)]
        params += [
            inner.param(old, _slice_of(stack))
            for old, stack in zip(body.params[n:], stacks, strict=True)
        ]
        inner.run(body.ops)
        better = _refine_layouts(inner, likes, operands[:n], body.returns[:n])
        if last or better == likes:
            break
        likes = better
    returns = [
        inner.materialize_like(old, like) for old, like in zip(body.returns, likes, strict=False)
    ]
    slices = [_materialize_slice(inner, old) for old in body.returns[n:]]
    block = inner.b.block(params, [*returns, *(view.base for view in slices)])
    inits = [
        folder.materialize_like(old, like) for old, like in zip(op.operands, likes, strict=False)
    ]
    results = _emit(folder, op, [*inits, *(stack.base for stack in stacks)], (block,))
    carried = [View(value, like.dims) for value, like in zip(results, likes, strict=False)]
    stacked = [
        View(value, (_leading_dim(op.attrs["length"]), *_shift_dims(view, 1)))
        for value, view in zip(results[n:], slices, strict=True)
    ]
    return [*carried, *stacked]


def _stacked_view(folder: ViewFolder, view: View) -> View:
    """Return a stacked operand as a view of a base whose first dimension is sliced."""
    split = None if view.base in folder.splats else separate_dims(folder, view, [0])
    if split is None:
        return views.identity_view(folder.materialize(view))
    split_view, at = split
    stacked_dim, rank = at[0], split_view.base.type.rank
    perm = (stacked_dim, *(d for d in range(rank) if d != stacked_dim))
    base = folder.materialize(
        View(split_view.base, tuple(identity_dims(split_view.base.type.shape)[d] for d in perm))
    )
    new = {d: i for i, d in enumerate(perm)}
    dims = tuple(
        tuple(p if p.dim == views.BROADCAST_DIM else p._replace(dim=new[p.dim]) for p in pieces)
        for pieces in split_view.dims
    )
    return View(base, dims)


def _slice_of(stack: View) -> View:
    """Return the view of a slice, of a base that does not exist."""
    type = stack.base.type
    return View(Value(type.with_shape(type.shape[1:])), _shift_dims(stack, -1)[1:])


def _materialize_slice(inner: ViewFolder, old: Value) -> View:
    view = inner.get(old)
    return views.identity_view(inner.materialize(view)) if view.base in inner.splats else view


def _shift_dims(view: View, by: int) -> views.ViewDims:
    """Return the dimensions of a view whose base has `by` more leading dimensions."""
    return tuple(
        tuple(p if p.dim == views.BROADCAST_DIM else p._replace(dim=p.dim + by) for p in pieces)
        for pieces in view.dims
    )


def _leading_dim(length: int) -> views.ViewPieces:
    return (ViewPiece(0, 1, length),) if length != 1 else ()


def _case(folder: ViewFolder, op: Op, operands: Sequence[View]) -> Sequence[View] | None:
    inners = []
    for branch in op.blocks:
        inners.append(folder.inner())
        inners[-1].run(branch.ops)
    likes = []
    for i, old in enumerate(op.results):
        offered = [
            inner.get(branch.returns[i]) for inner, branch in zip(inners, op.blocks, strict=True)
        ]
        real = [
            view for view in offered if view.base not in folder.splats and not view.has_broadcasts
        ]
        likes.append(real[0] if real else views.identity_view(old))
    blocks = [
        inner.b.block(
            (),
            [
                inner.materialize_like(v, like)
                for v, like in zip(branch.returns, likes, strict=True)
            ],
        )
        for inner, branch in zip(inners, op.blocks, strict=True)
    ]
    results = _emit(folder, op, [folder.materialize(operands[0])], blocks)
    return [View(value, like.dims) for value, like in zip(results, likes, strict=True)]


CONTROL_FLOW_RULES: dict[str, FoldingRule] = {
    while_.name: _while,
    scan.name: _scan,
    case.name: _case,
}
