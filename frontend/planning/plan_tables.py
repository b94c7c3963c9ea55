"""The decisions, costs and alternatives of a plan as tables of words, for its text and reports."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from shardir.cost.communication import Collective, format_axes
from shardir.display.byte_sizes import show_bytes
from shardir.passes.planning.programs.evaluation import Evaluation
from shardir.passes.simulation.table import format_time

PICOSECONDS = 10**12


class WordTable(NamedTuple):
    """A table, with the words of each cell."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def comparison_table(evaluations: Mapping[str, Evaluation]) -> WordTable:
    """Return the cost of plans on each device, relative to the first one."""
    first = next(iter(evaluations.values()))
    rows = []
    for name, each in evaluations.items():
        seconds = each.seconds
        relative = () if seconds is None else (_ratio(seconds, first.seconds or 0.0),)
        rows.append(
            (
                name,
                *time_cells(seconds),
                *relative,
                f"{each.flops:,}",
                show_bytes(each.bytes_sent),
                f"{each.collective_count:,}",
                show_bytes(each.peak),
            )
        )
    head = ("plan", *(() if first.seconds is None else ("time", "relative")),
            "flops", "sent", "collectives", "peak memory")  # fmt: skip
    return WordTable(head, tuple(rows))


def time_cells(seconds: float | None) -> tuple[str, ...]:
    """Return the cells of a time: none without a machine."""
    return () if seconds is None else (format_time(round(seconds * PICOSECONDS)),)


def collective_table(collectives: Iterable[Collective]) -> WordTable:
    """Return the collectives by kind and axes."""
    counts: Counter[tuple[str, str]] = Counter()
    sent: Counter[tuple[str, str]] = Counter()
    for each in collectives:
        key = each.kind, format_axes(each)
        counts[key] += each.counted_executions
        sent[key] += each.counted_executions * each.sent
    rows = tuple(
        (kind, axes, f"{counts[kind, axes]:,}", show_bytes(sent[kind, axes]))
        for kind, axes in sorted(counts, key=lambda key: (-sent[key], key))
    )
    return WordTable(("collective", "axes", "executions", "sent"), rows)


def describe_effect(without: Evaluation | None, now: Evaluation) -> str:
    """Return the changes of the cost of a plan without a decision or constraint."""
    if without is None:
        return "the program cannot be compiled"
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
    return ", ".join(changes) or "the same cost"


def first_disadvantage(
    other: Evaluation, chosen: Evaluation, memory_limit: int | None
) -> str | None:
    """Return the part of the cost in which another evaluation is worse than the chosen one; `None`
    if it is not worse.

    The parts are those of `Evaluation.key`, in its order; the first difference decides.
    """
    cost: tuple[str, ...] = ("more flops", "more sent bytes", "more collectives")
    if chosen.seconds is not None:
        cost = ("longer time", "more sent bytes")
    words = ("exceeds the memory limit", *cost, "larger peak memory")
    mine, theirs = chosen.key(memory_limit), other.key(memory_limit)
    for word, now, then in zip(words, mine, theirs, strict=True):
        if then != now:
            return word if then > now else None
    return "the same cost"


def _ratio(new: float, old: float) -> str:
    return f"{new / old:.2f}" if old else "-"


def _percentage(old: float, new: float) -> str:
    if not old:
        return f"+{show_bytes(new)}"
    return f"{(new - old) / old:+.1%}"
