"""Plans, comparisons and differences of plans as text."""

from collections.abc import Iterator

from shardir.cost.communication import Collective
from shardir.display.byte_sizes import show_bytes
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.frontend.planning.plan import Plan
from shardir.frontend.planning.plan_comparisons import PlanBound, PlanComparison, PlanDifference
from shardir.frontend.planning.plan_tables import (
    WordTable,
    collective_table,
    comparison_table,
    describe_effect,
    first_disadvantage,
    time_cells,
)
from shardir.frontend.report.planning_records import planning_record
from shardir.frontend.report.records import PlanningRecord, TableRecord
from shardir.passes.explain.reports import report_text
from shardir.passes.planning.programs.evaluation import Evaluation

CONSTRAINT_HEAD = ("constraint", "sharding", "line", "without it")


@report_text.register
def _(plan: Plan) -> str:
    lines = [title_of(plan), ""]
    rows = plan.argument_rows()
    lines += align_columns(rows, ("argument", "sharding")) if rows else ["no arguments"]
    if constraints := plan.constraint_rows():
        lines += ["", *align_columns(constraints, CONSTRAINT_HEAD)]
    lines += ["", *_comparison_lines(plan.compare().evaluations), *_cost_sentences(plan)]
    lines += ["", *_collective_lines(plan.collectives())]
    if decisions := _decision_rows(plan):
        lines += ["", "decisions, by their effect:"]
        lines += [f"  {_decision_text(*row)}" for row in decisions]
    return "\n".join(lines)


@report_text.register
def _(comparison: PlanComparison) -> str:
    return "\n".join(_comparison_lines(comparison.evaluations))


@report_text.register
def _(difference: PlanDifference) -> str:
    first, second = difference.names
    lines = list(_comparison_lines({first: difference.before, second: difference.after}))
    if difference.changes:
        lines += ["", *align_columns(difference.changes, ("argument", first, second))]
    else:
        lines += ["", "all arguments have the same shardings"]
    return "\n".join(lines)


@report_text.register
def _(found: PlanBound) -> str:
    plan, bound = found.evaluation, found.bound
    sent = "-" if found.bytes_gap is None else f"{found.bytes_gap:.1%}"
    rows = [
        ("plan", *time_cells(plan.seconds), f"{plan.flops:,}", show_bytes(plan.bytes_sent)),
        (
            "lower bound",
            *time_cells(bound.seconds),
            f"{bound.flops:,}",
            show_bytes(bound.bytes_sent),
        ),
        ("gap", *_gap_of_time(found), f"{found.flops_gap:.1%}", sent),
    ]
    time = () if plan.seconds is None else ("time",)
    return "\n".join(align_columns(rows, (f"plan of @{found.name}", *time, "flops", "sent")))


def _gap_of_time(found: PlanBound) -> tuple[str, ...]:
    return () if found.time_gap is None else (f"{found.time_gap:.1%}",)


def _comparison_lines(evaluations: dict[str, Evaluation]) -> Iterator[str]:
    """Yield a table of the cost of plans on each device, relative to the first one."""
    head, rows = comparison_table(evaluations)
    return align_columns(rows, head)


def _collective_lines(collectives: list[Collective]) -> Iterator[str]:
    """Yield a table of collectives by kind and axes."""
    if not collectives:
        yield "no communication"
        return
    head, rows = collective_table(collectives)
    yield from align_columns(rows, head)


def _decision_text(decision: str, effect: str) -> str:
    return f"{decision}; without it: {effect}"


def title_of(plan: Plan) -> str:
    """Return the function, the mesh and the machine of a plan."""
    mesh = ", ".join(f"{name}={size}" for name, size in plan.mesh.shape.items())
    machine = "" if plan.machine_name is None else f" on {plan.machine_name}"
    count = count_noun(plan.evaluation_count, "candidate")
    return f"plan of @{plan.name} for {mesh}{machine}, the best of {count}"


def _cost_sentences(plan: Plan) -> list[str]:
    """Return what the costs of a plan and of other plans are subject to."""
    sentences = []
    if plan.is_extrapolated:
        sentences.append("other plans: extrapolated from programs with fewer layers")
    if plan.memory_limit is not None:
        sentences.append(f"memory limit: {show_bytes(plan.memory_limit)}")
    return sentences


def _decision_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return each decision of a plan, and the changes of the cost without it."""
    return [
        (
            f"{plan.describe_dims(each.dims)} over {each.axis}",
            describe_effect(each.without, plan.search_evaluation),
        )
        for each in plan.decisions
    ]


@planning_record.register
def _(plan: Plan) -> PlanningRecord:
    compared = plan.compare().evaluations
    tables = [WordTable(("argument", "sharding"), tuple(plan.argument_rows()))]
    tables.append(WordTable(CONSTRAINT_HEAD, tuple(plan.constraint_rows())))
    tables.append(WordTable(("decision", "without it"), tuple(_decision_rows(plan))))
    tables.append(comparison_table(compared))
    tables.append(WordTable(("not chosen", "because"), tuple(_rejected_rows(plan))))
    tables.append(collective_table(plan.collectives()))
    return PlanningRecord(
        title_of(plan),
        tuple(TableRecord(*table) for table in tables if table.rows),
        tuple(_cost_sentences(plan)),
    )


def _rejected_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the alternatives of a plan, and why it is better than each."""
    chosen, *others = plan.compare().evaluations.items()
    for name, other in others:
        if other.arguments == chosen[1].arguments:
            yield name, "the plan has the same shardings"
            continue
        reason = first_disadvantage(other, chosen[1], plan.memory_limit)
        yield name, reason or "it contradicts shardings that are kept"
    for decision in plan.decisions:
        name = f"without {plan.describe_dims(decision.dims)} over {decision.axis}"
        if decision.without is None:
            yield name, "the program cannot be compiled"
            continue
        reason = first_disadvantage(decision.without, plan.search_evaluation, plan.memory_limit)
        yield name, reason or "it costs less; the search ended before, or it saves too little"
