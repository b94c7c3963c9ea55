"""Reverse-mode rules of control flow.

The reverse of a scan is a scan in the opposite direction, which carries the cotangents of the
carried values and accumulates those of captured values. The forward scan stacks the residuals of
each iteration. The reverse of a case is a case on the same index, whose branches return their
residuals and zeros for those of other branches. The trip count of a `while` loop is unknown in
advance, so residuals cannot be stacked, and it has no reverse-mode derivative.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir.builder import as_values, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.control_flow import case, scan
from shardir.passes.autodiff.activity import backward_reachable
from shardir.passes.autodiff.pullback import Cotangents, Handler, Pullback, error
from shardir.passes.autodiff.residuals import eliminate_dead_operations, find_residuals
from shardir.passes.autodiff.reverse_manual import HANDLERS as MANUAL
from shardir.passes.autodiff.reverse_pipeline import HANDLERS as PIPELINES
from shardir.passes.autodiff.reverse_regions import HANDLERS as REGIONS


def _refuse_while(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    raise error(
        f"%{op.results[0].name} = while has no gradient, because the trip count of a while loop "
        "is unknown in advance; use scan, or fori_loop with a static trip count",
        op,
    )


def _pull_scan(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    (body,) = op.blocks
    n, length = op.attrs["carries"], op.attrs["length"]
    carried = _carries_with_cotangents(body, n, cotangents, outer.active)
    pullback = outer.inner()
    b = pullback.b

    # Cotangents of the results of an iteration: of its carried values, then of its slices.
    round_carried = [b.param(body.params[i].type, f"{body.params[i].name}.grad") for i in carried]
    for i, param in zip(carried, round_carried, strict=True):
        pullback.accumulate(body.returns[i], param)
    sliced = [i for i in range(n, len(body.returns)) if cotangents[i] is not None]
    round_sliced = [b.param(body.returns[i].type, f"{body.returns[i].name}.grad") for i in sliced]
    for i, param in zip(sliced, round_sliced, strict=True):
        pullback.accumulate(body.returns[i], param)
    forward = replace(body, ops=pullback.run(body.ops))

    # Cotangents of the operands of an iteration: carried values, slices, and captured values.
    before = [pullback.pop_cotangent(param) for param in body.params]
    carried_on = [
        b.full(0, body.params[i].type) if (g := before[i]) is None else g for i in carried
    ]
    taken = [i for i in range(n, len(body.params)) if before[i] is not None]
    outside = list(pullback.cotangents)
    sums = [b.param(value.type, f"{value.name}.grad.sum") for value in outside]
    totals = [b.add(total, pullback.cotangents[v]) for v, total in zip(outside, sums, strict=True)]
    slices = [g for i in taken if (g := before[i]) is not None]
    returns = (*carried_on, *totals, *slices)
    back = Block(
        (*round_carried, *sums, *round_sliced), eliminate_dead_operations(b.ops, returns), returns
    )

    stacking = _ResidualStacking(outer, op, forward)
    back = stacking.unstack(back)
    ob = outer.b
    inits = [_materialize(outer, cotangents[i], op.results[i].type) for i in carried]
    zeros = [ob.full(0, value.type) for value in outside]
    stacks = [g for i in sliced if (g := cotangents[i]) is not None]
    if not returns:
        return op
    new_cotangents = as_values(
        ob.emit(
            scan,
            *inits,
            *zeros,
            *stacks,
            *stacking.stacks,
            blocks=(back,),
            carries=len(inits) + len(zeros),
            length=length,
            reverse=not op.attrs.get("reverse", False),
        )
    )
    targets = [op.operands[i] for i in carried] + outside + [op.operands[i] for i in taken]
    for value, cotangent in zip(targets, new_cotangents, strict=True):
        outer.accumulate(value, cotangent)
    return stacking.op


def _carries_with_cotangents(
    body: Block, carries: int, cotangents: Cotangents, active: set[Value]
) -> list[int]:
    """Return the carried values that may have cotangents in some iteration."""
    starts = [v for v, g in zip(body.returns, cotangents, strict=True) if g is not None]
    chosen: list[int] = []
    while True:
        reachable = backward_reachable(body, starts, active)
        grown = [
            i for i in range(carries) if cotangents[i] is not None or body.params[i] in reachable
        ]
        if grown == chosen:
            return chosen
        chosen = grown
        starts += [body.returns[i] for i in chosen]


def _materialize(pullback: Pullback, cotangent: Value | None, type: TensorType) -> Value:
    return pullback.b.full(0, type) if cotangent is None else cotangent


def _residual_name(value: Value) -> str:
    """Return the name of a value as a residual."""
    return f"{value.name.removesuffix('.saved')}.saved"


class _ResidualStacking:
    """Stacks the residuals of each iteration of a scan.

    `op` is the extended scan, `stacks` are the stacked values in the order in which `unstack` adds
    parameters for their slices.
    """

    def __init__(self, outer: Pullback, op: Op, forward: Block) -> None:
        self.op, self.stacks = op, list[Value]()
        self._names, self._forward = outer.b.names, forward

    def unstack(self, back: Block) -> Block:
        """Return `back` with parameters for the slices that it needs."""
        forward, op = self._forward, self.op
        n, length = op.attrs["carries"], op.attrs["length"]
        handover = find_residuals(forward, back, self._names)
        # Residuals that the scan slices or stacks anyway are not stacked again.
        stacked = dict(zip(forward.params[n:], op.operands[n:], strict=True))
        stacked.update(zip(forward.returns[n:], op.results[n:], strict=True))
        extra = [value for value in handover.saved if value not in stacked]
        for value in extra:
            type = value.type.with_shape((length, *value.type.shape))
            stacked[value] = Value(type, self._names.fresh(_residual_name(value)))
        self.op = replace(
            op,
            results=(*op.results, *(stacked[value] for value in extra)),
            blocks=(replace(forward, returns=(*forward.returns, *extra)),),
        )
        self.stacks = [stacked[value] for value in handover.saved]
        slices = {v: Value(v.type, self._names.fresh(v.name)) for v in handover.saved}
        step_block = Block(
            (*back.params, *slices.values()), (*handover.recompute, *back.ops), back.returns
        )
        return substitute(step_block, handover.new | slices)


def _pull_case(outer: Pullback, op: Op, cotangents: Cotangents) -> Op:
    branches = [_ReverseBranch(outer, branch, cotangents) for branch in op.blocks]
    outside = list(dict.fromkeys(v for branch in branches for v in branch.pullback.cotangents))
    if not outside:
        return op
    backs = [branch.back(outside) for branch in branches]

    # Residuals of one type from different branches share a result.
    places: list[Value] = []
    saved_values: list[list[Value | None]] = []
    shown = []
    for branch, back in zip(branches, backs, strict=True):
        handover = find_residuals(branch.forward, back, outer.b.names)
        seen = dict(zip(branch.forward.returns, op.results, strict=True))
        mine: list[Value | None] = [None] * len(places)
        for value in handover.saved:
            if value in seen:
                continue
            free = [i for i, v in enumerate(mine) if v is None and places[i].type == value.type]
            if not free:
                places.append(Value(value.type, outer.b.names.fresh(_residual_name(value))))
                mine.append(None)
                free = [len(places) - 1]
            mine[free[0]] = value
            seen[value] = places[free[0]]
        saved_values.append(mine)
        saved = {value: seen[value] for value in handover.saved}
        branch_block = replace(back, ops=(*handover.recompute, *back.ops))
        shown.append(substitute(branch_block, handover.new | saved))

    forwards = [
        branch.return_residuals([*mine, *[None] * (len(places) - len(mine))], places)
        for branch, mine in zip(branches, saved_values, strict=True)
    ]
    new_cotangents = as_values(outer.b.emit(case, *op.operands, blocks=tuple(shown)))
    for value, cotangent in zip(outside, new_cotangents, strict=True):
        outer.accumulate(value, cotangent)
    return replace(op, results=(*op.results, *places), blocks=tuple(forwards))


class _ReverseBranch:
    """Reverse mode through one branch of a case."""

    def __init__(self, outer: Pullback, branch: Block, cotangents: Cotangents) -> None:
        self.pullback = outer.inner()
        for value, cotangent in zip(branch.returns, cotangents, strict=True):
            self.pullback.accumulate(value, cotangent)
        self.forward = replace(branch, ops=self.pullback.run(branch.ops))

    def back(self, outside: Sequence[Value]) -> Block:
        """Return the block that computes the cotangents of `outside`."""
        outside_cotangents = [self.pullback.cotangents.get(value) for value in outside]
        returns = tuple(
            _materialize(self.pullback, cotangent, value.type)
            for value, cotangent in zip(outside, outside_cotangents, strict=True)
        )
        return Block((), eliminate_dead_operations(self.pullback.b.ops, returns), returns)

    def return_residuals(self, saved: Sequence[Value | None], places: Sequence[Value]) -> Block:
        """Return the branch extended by the residuals `saved`, with zeros for those of other
        branches."""
        b = self.pullback.b.inner()
        b.why = "a residual of another branch"
        more = [
            b.full(0, param.type) if value is None else value
            for value, param in zip(saved, places, strict=True)
        ]
        branch = self.forward
        return replace(branch, ops=(*branch.ops, *b.ops), returns=(*branch.returns, *more))


HANDLERS: dict[str, Handler] = {
    "while": _refuse_while,
    "scan": _pull_scan,
    "case": _pull_case,
    **MANUAL,
    **PIPELINES,
    **REGIONS,
}
