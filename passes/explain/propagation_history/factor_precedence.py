"""Decisions between two factors that requested the same axis.

Within one step, aggressive propagation decides by the tensors that have the axis
(`propagation.aggressive`). Otherwise the first one is kept; the other may have been delayed by its
priority or its round.
"""

from dataclasses import dataclass

from shardir.errors import count_noun
from shardir.ir.sharding import count_positions
from shardir.passes.explain.propagation_history.axis_origins import AxisArrival, origins_of
from shardir.passes.explain.propagation_history.history import FunctionHistory, dims_of, sizes_of
from shardir.passes.explain.propagation_history.sub_axes import intersections, overlaps_any
from shardir.passes.explain.reports import Verdict
from shardir.passes.propagation.aggressive import largest_sources
from shardir.passes.propagation.factor_conflicts import agreed_axes
from shardir.passes.propagation.priorities import (
    PropagationDirection,
    is_elementwise,
    priority_kind,
    round_directions,
)
from shardir.passes.propagation.record import PropagationStep, Refusal, RefusalReason


@dataclass(frozen=True, slots=True)
class FactorRequest:
    """A factor that requests an axis: its name in the tensor that has the axis, and the number of
    elements of this tensor."""

    loop: str
    elements: int
    pieces: int


@dataclass(frozen=True, slots=True)
class LostAxis:
    winner: FactorRequest
    loser: FactorRequest
    verdict: Verdict

    def __str__(self) -> str:
        """Return the two sides, with the element counts or shard counts that decided."""
        a, b = self.winner, self.loser
        sides = f"{a.loop} against {b.loop}"
        match self.verdict:
            case Verdict.LARGER:
                return f"{sides}: {count_noun(a.elements, 'element')} against {b.elements}"
            case Verdict.FINER:
                return f"{sides}: {count_noun(a.pieces, 'shard')} against {b.pieces}"
            case _:
                return f"{sides}: {self.verdict.value}"


def lost_to(history: FunctionHistory, end: PropagationStep, refusal: Refusal) -> LostAxis | None:
    """Return the decision behind a final refusal if the axis was lost in one step.

    The tensor takes no axis along the factor after the one that it lost, so the refused axis is a
    part of it.
    """
    for position, tensor in history.changes.get(end.cells[refusal.tensor], ()):
        step = history.story.steps[position]
        if (step.op, step.edge, step.cells) != (end.op, end.edge, end.cells):
            continue
        for other in step.refusals:
            if other.reason is RefusalReason.LOST and (other.tensor, other.factor) == (
                tensor,
                refusal.factor,
            ):
                return _decision_of_step(history, step, other)
    return None


def _decision_of_step(
    history: FunctionHistory, step: PropagationStep, lost: Refusal
) -> LostAxis | None:
    views = history.views(step)
    sizes = sizes_of(step.rule)
    operands = len(step.rule.operands)
    requested = [agreed_axes(views, operands, f, way) for f, way in enumerate(step.directions)]
    sources = largest_sources(views, sizes, requested)
    fine = step.op is not None and is_elementwise(step.op)

    def side(factor: int) -> FactorRequest:
        elements, tensor = sources[factor]
        pieces = count_positions(requested[factor])
        return FactorRequest(history.factor_in_tensor(step, factor, tensor), elements, pieces)

    for gain in step.gains:
        if gain.tensor != lost.tensor or gain.factor == lost.factor:
            continue
        if overlaps_any(lost.axis, gain.axes):
            winner, loser = side(gain.factor), side(lost.factor)
            if winner.elements != loser.elements:
                verdict = Verdict.LARGER
            elif fine and winner.pieces != loser.pieces:
                verdict = Verdict.FINER
            elif sources[gain.factor][1] != sources[lost.factor][1]:
                verdict = Verdict.EARLIER_TENSOR
            else:
                verdict = Verdict.EARLIER_LOOP
            return LostAxis(winner, loser, verdict)
    return None


def delay_reason(
    history: FunctionHistory, end: PropagationStep, refusal: Refusal
) -> RefusalReason | None:
    """Return the reason that delayed an axis until another factor had it, if any."""
    cell = end.cells[refusal.tensor]
    state = end.before[refusal.tensor]
    origins = origins_of(history)
    winners = [
        arrival
        for dim, dim_sharding in enumerate(state.dims if state else ())
        for axis in intersections(refusal.axis, dim_sharding.axes)
        for arrival in origins.arrivals(cell, dim, axis)
    ]
    losers = [
        arrival
        for tensor, view in enumerate(history.views(end))
        if refusal.factor in view.factor_shardings
        for dim in dims_of(end.rule, tensor, refusal.factor)
        for axis in intersections(refusal.axis, view.factor_shardings[refusal.factor].axes)
        for arrival in origins.arrivals(end.cells[tensor], dim, axis)
    ]
    hops = [winner.hop for winner in winners if winner.hop]
    if not hops:
        return None
    last = hops[-1]
    if all(stated_priority(loser) > last.step.priority for loser in losers):
        return RefusalReason.PRIORITY
    earlier = [loser for loser in losers if not loser.hop or loser.hop.position < last.position]
    if not earlier or end.op is None or end.edge is not None:
        return None
    allowed = round_directions(
        end.rule, priority_kind(end.op), single_use=True, round=last.step.round
    )
    return None if allowed[refusal.factor] is PropagationDirection.BOTH else RefusalReason.DIRECTION


def stated_priority(arrival: AxisArrival) -> int:
    """Return the priority of the dimension in which an axis was stated."""
    dims = arrival.origin.sharding.dims
    return next((d.priority or 0 for d in dims if overlaps_any(arrival.axis, d.axes)), 0)
