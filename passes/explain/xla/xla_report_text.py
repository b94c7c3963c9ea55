"""Text of the reports about the collectives of XLA."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from shardir.cost.communication import (
    Collective,
    CommunicationTotal,
    format_axes,
    sum_collectives,
)
from shardir.display.byte_sizes import show_bytes
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.passes.explain.report_rows import MAX_ROWS, amount_cells, first_rows, omitted_rows
from shardir.passes.explain.reports import report_text
from shardir.passes.explain.xla.xla_causes import XlaCause, XlaCauseKind
from shardir.passes.explain.xla.xla_communication import (
    LineComparison,
    XlaCommunication,
    XlaComparison,
    line_text,
)


@report_text.register
def _(report: XlaCommunication) -> str:
    text = report_text(report.communication)
    if report.arrays > report.communication.total.count:
        first, *rest = text.split("\n")
        noun = count_noun(report.arrays, "array")
        text = "\n".join([f"{first}; XLA combined {noun} into them", *rest])
    first, *rest = f"{report.module}, partitioned by XLA: {text}".split("\n")
    lines = [first]
    if report.inserted is not None:
        stages = [
            ("  after partitioning", *amount_cells(report.inserted)),
            ("  after optimizations", *amount_cells(report.communication.total)),
        ]
        lines += ["", *align_columns(stages, ("", "count", "result", "sent"))]
    lines += rest
    by_line: dict[str, list[tuple[Collective, XlaCause]]] = {}
    for row, cause in zip(report.communication.rows, report.causes, strict=True):
        line = line_text(row.loc.file, row.loc.line) if row.loc else ""
        by_line.setdefault(line, []).append((row, cause))
    if by_line:
        lines += ["", "causes"]
    for line, collectives in list(by_line.items())[:MAX_ROWS]:
        lines += [f"  {line or '(no line)'}"]
        lines += [f"  {text}" for text in _caused_collectives(collectives)]
    if len(by_line) > MAX_ROWS:
        lines += [f"  and {len(by_line) - MAX_ROWS} more lines"]
    hints = dict.fromkeys(cause.hint for cause in report.causes if cause.hint)
    lines += [f"  remedy: {hint}" for hint in hints]
    if report.note:
        lines += ["", report.note]
    return "\n".join(lines)


@report_text.register
def _(report: XlaComparison) -> str:
    xla, planned = report.xla.communication.total, report.planned.total
    totals = [("  XLA", *amount_cells(xla))]
    if report.xla.arrays > xla.count:
        of_arrays = replace(xla, count=report.xla.arrays, executions=report.xla.executed_arrays)
        totals.insert(0, ("  XLA, before combining", *amount_cells(of_arrays)))
    totals += [
        ("  plan of shardir", *amount_cells(planned)),
        ("  plan of shardir, combined", *amount_cells(report.combined)),
    ]
    lines = [
        f"{report.xla.module}: XLA's collectives beside those of shardir's plan",
        "",
        *align_columns(totals, ("", "count", "result", "sent")),
    ]
    rows = [
        (f"  {each.line or '(no line)'}", _by_kind(each.xla), _by_kind(each.planned), _extra(each))
        for each in report.lines
    ]
    if rows:
        head = ("by line", "XLA sends", "the plan sends", "difference")
        lines += ["", *align_columns(first_rows(rows), head), *omitted_rows(rows)]
    explained = [each for each in report.lines if each.collectives]
    for each in explained[:MAX_ROWS]:
        lines += ["", *_explained_line(each, report)]
    if len(explained) > MAX_ROWS:
        lines += ["", f"and {len(explained) - MAX_ROWS} more lines"]
    if not explained:
        lines += ["", "XLA does not communicate."]
    if any(each.remedies for each in report.lines):
        lines += ["", SPEC_NOTE]
    return "\n".join(lines)


SPEC_NOTE = (
    "P is jax.sharding.PartitionSpec; it needs jax.set_mesh(mesh). Otherwise, write "
    "NamedSharding(mesh, P(...))."
)


def _by_kind(totals: Sequence[tuple[str, CommunicationTotal]]) -> str:
    parts = (f"{kind} {show_bytes(total.sent)}" for kind, total in totals)
    return ", ".join(parts) or "nothing"


def _extra(line: LineComparison) -> str:
    if line.extra == 0:
        return "equal"
    return f"{show_bytes(abs(line.extra))} {'more' if line.extra > 0 else 'fewer'}"


def _explained_line(line: LineComparison, report: XlaComparison) -> Iterator[str]:
    """Yield the causes of XLA's collectives on a line, and their remedies."""
    yield line.line or "collectives without a line"
    yield from _caused_collectives(line.collectives)
    if all(cause.kind is XlaCauseKind.REQUEST for _, cause in line.collectives):
        return
    if line.remedies:
        yield from _remedies(line, report.xla.communication.total.sent)
    elif (extra := _extra_with_combined_lines(line, report)) <= 0:
        amount = "as many" if extra == 0 else f"{show_bytes(-extra)} more"
        place = "this line" if not _combined_lines(line) else "these lines"
        yield f"  not avoidable: the plan sends {amount} bytes on {place}"
    elif report.is_compiled:
        yield (
            f"  the plan sends {_by_kind(line.planned)} on this line, but none of the annotations "
            "that were compiled makes XLA send fewer bytes"
        )
    elif line.constraints:
        yield (
            f"  the plan sends {_by_kind(line.planned)} on this line, with these shardings (not "
            "compiled with XLA)"
        )
        for each in line.constraints:
            call = f"jax.lax.with_sharding_constraint(x, {each.spec})"
            yield f"    {call}  # x is %{each.value}: {each.type}"
    else:
        yield f"  the plan sends {_by_kind(line.planned)} on this line, and replicates its values"
    if not line.remedies or _communicates_with_remedies(line, report):
        name = "another remedy" if line.remedies else "remedy"
        for hint in dict.fromkeys(cause.hint for _, cause in line.collectives if cause.hint):
            yield f"  {name}: {hint}"


def _combined_lines(line: LineComparison) -> set[str]:
    """Return the other lines of the arrays that XLA combined into the collectives of a line."""
    return {str(loc) for row, _ in line.collectives for loc in row.combined_locs}


def _extra_with_combined_lines(line: LineComparison, report: XlaComparison) -> int:
    """Return the bytes that XLA sends more on a line and on those that it combined with it."""
    lines = _combined_lines(line) | {line.line}
    return sum(each.extra for each in report.lines if each.line in lines)


def _communicates_with_remedies(line: LineComparison, report: XlaComparison) -> bool:
    """Return whether the program sends more with the remedies than without this line."""
    total, sent = report.xla.communication.total.sent, line.remedies[0].sent
    of_line = sum_collectives([row for row, _ in line.collectives]).sent
    return sent is not None and sent > total - of_line


def _caused_collectives(collectives: Sequence[tuple[Collective, XlaCause]]) -> Iterator[str]:
    """Yield the kinds of collectives with their bytes and causes, equal ones together."""
    groups: dict[tuple[str, str, str], list[Collective]] = {}
    for row, cause in collectives:
        groups.setdefault((row.kind, format_axes(row), cause.text), []).append(row)
    for (kind, axes, text), rows in groups.items():
        total = sum_collectives(rows)
        times = "" if total.executions == 1 else (
            f", {count_noun(total.executions, 'execution')}"
        )  # fmt: skip
        unknown = " or more" if any(row.executions is None for row in rows) else ""
        yield f"  {kind} over {axes}, {show_bytes(total.sent)} sent{times}{unknown}"
        yield f"    {text}"
        others = dict.fromkeys(str(loc) for row in rows for loc in row.combined_locs)
        if others:
            shown = ", ".join([*others][:MAX_LINES])
            more = f" and {len(others) - MAX_LINES} more" if len(others) > MAX_LINES else ""
            yield f"    including arrays of other lines, which XLA combined with it: {shown}{more}"


MAX_LINES = 3
"""The maximum number of lines that are listed for the arrays of one collective."""


def _remedies(line: LineComparison, total: int) -> Iterator[str]:
    sent = line.remedies[0].sent
    if sent is None:
        yield (
            "  avoidable: the plan computes this line on each shard alone; jax.shard_map makes XLA "
            "do so"
        )
    else:
        yield (
            f"  avoidable: with this change, compiled by XLA, the program sends {show_bytes(sent)} "
            f"instead of {show_bytes(total)}"
        )
    for each in line.remedies:
        where = line_text(each.loc.file, each.loc.line)
        place = "" if where == line.line else f"  # {where}"
        yield f"    replace {' '.join(each.old.split())}{place}"
        yield f"    by      {' '.join(each.new.split())}"
