"""Effects of the decisions and constraints of a plan: its cost without each of them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardir.passes.planning.programs.assignment import Assignment
from shardir.passes.planning.programs.evaluation import Evaluation

if TYPE_CHECKING:
    from shardir.passes.planning.programs.plan_program import ProgramPlan


@dataclass(frozen=True, slots=True)
class Decision:
    """An axis that shards dimensions of arguments.

    `dims` are pairs of the number of an argument and a dimension. `without` is the cost of the plan
    without the decision, `None` if the program cannot be compiled so.
    """

    dims: tuple[tuple[int, int], ...]
    axis: str
    without: Evaluation | None


def measure_decisions(plan: "ProgramPlan", memory_limit: int | None) -> tuple[Decision, ...]:
    """Return the decisions of a plan, the one with the largest effect first; those whose axis
    shards nothing are not listed."""
    assignment, reader = plan.assignment, plan.reader
    if reader.axes_of(assignment) != plan.searched.arguments:
        return ()  # The plan is one that was given, not one that the search made.
    found = []
    for smaller, axis in _smaller_assignments(assignment):
        arguments = reader.axes_of(smaller)
        expanded = plan.expand(arguments)
        dims = tuple(
            (number, dim)
            for number, axes in enumerate(plan.chosen.arguments)
            for dim, names in enumerate(axes or ())
            if axis in names and expanded[number] != axes
        )
        if dims:
            found.append(Decision(dims, axis, plan.evaluator.evaluate(arguments)))
    return tuple(
        sorted(
            found,
            key=lambda each: (
                each.without is not None,
                () if each.without is None else tuple(-n for n in each.without.key(memory_limit)),
            ),
        )
    )


def measure_constraints(plan: "ProgramPlan") -> dict[str, Evaluation | None]:
    """Return the cost of a plan without each of its constraints, by the names of the constrained
    values; `None` if the program cannot be compiled so."""
    arguments = plan.chosen.arguments
    first = len(plan.reader.params)
    return {
        value.name: plan.evaluator.evaluate((*arguments[:number], None, *arguments[number + 1 :]))
        for number, value in enumerate(plan.anchors, first)
        if number < len(arguments) and arguments[number] is not None
    }


def _smaller_assignments(assignment: Assignment) -> list[tuple[Assignment, str]]:
    """Return the assignments without one decision, with the axis of that decision."""
    groups, storage = assignment.groups, assignment.storage
    found = [
        (replace(assignment, groups=groups[:i] + groups[i + 1 :]), axis)
        for i, (_, axis) in enumerate(groups)
    ]
    return found + [
        (replace(assignment, storage=storage[:i] + storage[i + 1 :]), axis)
        for i, (_, _, axis) in enumerate(storage)
    ]
