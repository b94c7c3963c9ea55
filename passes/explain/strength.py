"""Which of two loops got an axis that both wanted in one step, and why.

Aggressive propagation decides that by the tensors that bring the axis (`propagation.aggressive`).
"""

from dataclasses import dataclass
from math import prod

from shardir.passes.explain.data import Verdict
from shardir.passes.explain.history import History, sizes_of
from shardir.passes.explain.parts import touches
from shardir.passes.propagation.aggressive import largest_sources
from shardir.passes.propagation.conflicts import agreed_axes
from shardir.passes.propagation.priorities import is_elementwise
from shardir.passes.propagation.record import Reason, Refusal, Step


@dataclass(frozen=True, slots=True)
class Side:
    """A loop that wants an axis: the tensor that brings it and how many elements that has."""

    loop: str
    tensor: str
    elements: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Lost:
    winner: Side
    loser: Side
    verdict: Verdict

    def __str__(self) -> str:
        """The two sides, with the numbers that decided."""
        a, b = self.winner, self.loser
        sides = f"to {a.loop}, which {a.tensor} brings it for, against {b.loop} of {b.tensor}"
        match self.verdict:
            case Verdict.LARGER:
                return f"{sides}: {a.elements} elements against {b.elements}"
            case Verdict.FINER:
                return f"{sides}: {a.pieces} pieces against {b.pieces}"
            case _:
                return f"{sides}: {self.verdict.value}"


def lost_to(history: History, end: Step, refusal: Refusal) -> Lost | None:
    """How a refusal that stands in the end came about, if the axis was lost in one step."""
    for position, tensor in history.changes.get(end.cells[refusal.tensor], ()):
        step = history.story.steps[position]
        if (step.op, step.edge, step.cells) != (end.op, end.edge, end.cells):
            continue
        for other in step.refusals:
            if (
                other.reason is Reason.LOST
                and (other.tensor, other.factor) == (tensor, refusal.factor)
                and other.axis.overlaps(refusal.axis)
            ):
                return _decided(history, step, other)
    return None


def _decided(history: History, step: Step, lost: Refusal) -> Lost | None:
    views = history.views(step)
    sizes = sizes_of(step.rule)
    operands = len(step.rule.operands)
    wishes = [agreed_axes(views, operands, f, way) for f, way in enumerate(step.directions)]
    sources = largest_sources(views, sizes, wishes)
    fine = step.op is not None and step.edge is None and is_elementwise(step.op)

    def side(factor: int) -> Side:
        elements, tensor = sources[factor]
        name = history.tensor(step, tensor) if tensor >= 0 else "several tensors"
        pieces = prod(axis.size for axis in wishes[factor])
        return Side(history.loop(step, factor), name, elements, pieces)

    for gain in step.gains:
        if gain.tensor != lost.tensor or gain.factor == lost.factor:
            continue
        if touches(lost.axis, gain.axes):
            winner, loser = side(gain.factor), side(lost.factor)
            if winner.elements != loser.elements:
                verdict = Verdict.LARGER
            elif fine and winner.pieces != loser.pieces:
                verdict = Verdict.FINER
            elif sources[gain.factor][1] != sources[lost.factor][1]:
                verdict = Verdict.EARLIER_TENSOR
            else:
                verdict = Verdict.EARLIER_LOOP
            return Lost(winner, loser, verdict)
    return None
