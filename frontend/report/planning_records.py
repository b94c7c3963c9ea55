"""Plans as records of a report."""

from functools import singledispatch

from shardir.frontend.report.records import PlanningRecord
from shardir.passes.explain.reports import Report


@singledispatch
def planning_record(plan: Report) -> PlanningRecord:
    """Return the record of a plan.

    `frontend.planning.plan_text` registers the implementation for `Plan`.
    """
    raise NotImplementedError(type(plan).__name__)
