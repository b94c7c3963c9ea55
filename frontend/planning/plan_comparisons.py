"""The results of plans that are compared: with other plans, with each other, and with a bound."""

from dataclasses import dataclass

from shardir.passes.explain.reports import Report
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.planning.programs.lower_bound import LowerBound


@dataclass(frozen=True, repr=False)
class PlanComparison(Report):
    """The cost of plans on each device, by name; the first one is the reference."""

    evaluations: dict[str, Evaluation]


@dataclass(frozen=True, repr=False)
class PlanDifference(Report):
    """Two plans of one function: their costs, and the arguments with different shardings.

    `changes` has the name of an argument or of arguments that differ in the number of a layer, and
    its type in both plans.
    """

    names: tuple[str, str]
    before: Evaluation
    after: Evaluation
    changes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, repr=False)
class PlanBound(Report):
    """The cost of a plan on each device beside a proven lower bound.

    The bound holds for all programs that run each operation once, with each mesh axis along at most
    one dimension of it, or on partial sums of earlier operations where it is linear. None executes
    fewer flops, and none with the fewest flops sends fewer bytes. The bound of the time on a
    machine is that of these flops at the peak rates.
    """

    name: str
    evaluation: Evaluation
    bound: LowerBound

    @property
    def flops_gap(self) -> float:
        """The part of the flops of the plan that exceeds the bound; 0.0 if they are optimal."""
        return _gap(self.evaluation.flops, self.bound.flops)

    @property
    def bytes_gap(self) -> float | None:
        """The part of the sent bytes that exceeds the bound, 0.0 if they are optimal; `None` for a
        plan with more flops than the bound, which may send less than it."""
        if self.flops_gap:
            return None
        return _gap(self.evaluation.bytes_sent, self.bound.bytes_sent)

    @property
    def time_gap(self) -> float | None:
        """The part of the time of the plan that exceeds the bound; `None` without a machine."""
        seconds, least = self.evaluation.seconds, self.bound.seconds
        return None if seconds is None or least is None else _gap(seconds, least)


def _gap(cost: float, bound: float) -> float:
    """Return the relative gap between a cost and a bound; 0.0 for a cost below it, which only a
    program outside of the space of the bound has."""
    return (cost - bound) / cost if cost > bound else 0.0
