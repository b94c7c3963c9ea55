"""Plans, comparisons and differences of plans as text."""

from collections import Counter
from collections.abc import Iterator

from shardir.cost.communication import Collective, format_axes
from shardir.display.byte_sizes import show_bytes
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.frontend.planning.plan import Plan, PlanBound, PlanComparison, PlanDifference
from shardir.passes.explain.reports import report_text
from shardir.passes.planning.programs.decision_effects import Decision
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.simulation.table import format_time

PICOSECONDS = 10**12


@report_text.register
def _(plan: Plan) -> str:
    mesh = ", ".join(f"{name}={size}" for name, size in plan.mesh.shape.items())
    machine = "" if plan.machine_name is None else f" on {plan.machine_name}"
    lines = [
        f"plan of @{plan.name} for {mesh}{machine}, "
        f"the best of {count_noun(plan.evaluation_count, 'candidate')}",
        "",
    ]
    rows = plan.argument_rows()
    lines += align_columns(rows, ("argument", "sharding")) if rows else ["no arguments"]
    if constraints := plan.constraint_rows():
        lines += ["", *align_columns(constraints, ("constraint", "sharding", "line"))]
    lines += ["", *_comparison_lines(plan.compare().evaluations)]
    if plan.is_extrapolated:
        lines.append("other plans: extrapolated from programs with fewer layers")
    if plan.memory_limit is not None:
        lines.append(f"memory limit: {show_bytes(plan.memory_limit)}")
    lines += ["", *_collective_lines(plan.collectives())]
    if plan.decisions:
        lines += ["", "decisions, by their effect:"]
        lines += [f"  {_decision_text(plan, decision)}" for decision in plan.decisions]
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
        ("plan", *_times(plan.seconds), f"{plan.flops:,}", show_bytes(plan.bytes_sent)),
        ("lower bound", *_times(bound.seconds), f"{bound.flops:,}", show_bytes(bound.bytes_sent)),
        ("gap", *_gap_of_time(found), f"{found.flops_gap:.1%}", sent),
    ]
    time = () if plan.seconds is None else ("time",)
    return "\n".join(align_columns(rows, (f"plan of @{found.name}", *time, "flops", "sent")))


def _gap_of_time(found: PlanBound) -> tuple[str, ...]:
    return () if found.time_gap is None else (f"{found.time_gap:.1%}",)


def _times(seconds: float | None) -> tuple[str, ...]:
    """Return the cells of a time: none without a machine."""
    return () if seconds is None else (format_time(round(seconds * PICOSECONDS)),)


def _comparison_lines(evaluations: dict[str, Evaluation]) -> Iterator[str]:
    """Yield a table of the cost of plans on each device, relative to the first one."""
    first = next(iter(evaluations.values()))
    rows = []
    for name, each in evaluations.items():
        seconds = each.seconds
        relative = () if seconds is None else (_ratio(seconds, first.seconds or 0.0),)
        rows.append(
            (
                name,
                *_times(seconds),
                *relative,
                f"{each.flops:,}",
                show_bytes(each.bytes_sent),
                f"{each.collective_count:,}",
                show_bytes(each.peak),
            )
        )
    head = ("plan", *(() if first.seconds is None else ("time", "relative")),
            "flops", "sent", "collectives", "peak memory")  # fmt: skip
    return align_columns(rows, head)


def _ratio(new: float, old: float) -> str:
    return f"{new / old:.2f}" if old else "-"


def _collective_lines(collectives: list[Collective]) -> Iterator[str]:
    """Yield a table of collectives by kind and axes."""
    if not collectives:
        yield "no communication"
        return
    counts: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    for each in collectives:
        key = each.kind, format_axes(each)
        counts[key] += each.counted_executions
        sent[key] += each.counted_executions * each.sent
    rows = [
        (kind, axes, f"{counts[kind, axes]:,}", show_bytes(sent[kind, axes]))
        for kind, axes in sorted(counts, key=lambda key: (-sent[key], key))
    ]
    yield from align_columns(rows, ("collective", "axes", "executions", "sent"))


def _decision_text(plan: Plan, decision: Decision) -> str:
    """Return a decision, and the changes of the cost without it."""
    where = plan.describe_dims(decision.dims)
    text = f"{where} over {decision.axis}"
    without, now = decision.without, plan.search_evaluation
    if without is None:
        return f"{text}: the program cannot be compiled without it"
    changes = []
    if without.seconds is not None and now.seconds is not None:
        time = format_time(round(without.seconds * PICOSECONDS))
        changes.append(f"{time} ({_percentage(now.seconds, without.seconds)})")
    for word, before, after in (
        ("flops", now.flops, without.flops),
        ("sent bytes", now.bytes_sent, without.bytes_sent),
        ("peak memory", now.peak, without.peak),
    ):
        if before != after:
            changes.append(f"{word} {_percentage(before, after)}")
    return f"{text}; without it: {', '.join(changes) or 'the same cost'}"


def _percentage(old: float, new: float) -> str:
    if not old:
        return f"+{show_bytes(new)}"
    return f"{(new - old) / old:+.1%}"
