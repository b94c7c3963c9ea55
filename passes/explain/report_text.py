"""Reports as text, independent of the screen width."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from shardir.cost.communication import (
    REQUESTED,
    Collective,
    CommunicationTotal,
    format_axes,
)
from shardir.display.byte_sizes import show_bytes
from shardir.display.repetitions import find_repetitions
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.passes.explain.collective_causes import (
    CollectiveCause,
    ReshardAlternative,
    collective_heading,
)
from shardir.passes.explain.communication import Communication
from shardir.passes.explain.peak_memory import PeakMemory
from shardir.passes.explain.report_rows import (
    MAX_ROWS,
    amount_cells,
    first_rows,
    fold_rows,
    format_times,
    location_text,
    omitted_rows,
    with_location,
    without_names,
    without_numbers,
)
from shardir.passes.explain.reports import (
    Absence,
    Annotation,
    AxesRequest,
    Chain,
    Conflict,
    Conflicts,
    Coverage,
    Difference,
    Explanation,
    OrderSensitivity,
    Revision,
    Summary,
    Traffic,
    report_text,
)


@report_text.register
def _(report: Explanation) -> str:
    lines = [with_location(f"{report.value}: {report.type}", report.loc)]
    if not report.chains and not report.revisions:
        lines += ["", "no axis shards it"]
    for chain in report.chains:
        lines += ["", *_chain(chain)]
    for revision in report.revisions:
        lines += ["", *_revision(revision)]
    for axis in dict.fromkeys(absence.axis for absence in report.absences):
        here = any(chain.axis == axis for chain in report.chains)
        absent = (
            f"propagation does not shard it over {axis}"
            if report.revisions
            else f"{axis} does not shard it"
        )
        lines += ["", f"{axis} could also shard" if here else absent]
        about = (absence for absence in report.absences if absence.axis == axis)
        lines += (line for absence in about for line in _absence(absence))
    return "\n".join(lines)


def _revision(revision: Revision) -> Iterator[str]:
    yield f"the pass {revision.by} changed it after propagation"
    yield f"  {revision.before}  ->  {revision.after}"
    if revision.why:
        yield f"  {revision.why}"


def _chain(chain: Chain) -> Iterator[str]:
    yield f"{chain.axis} shards dimension {chain.dim}"
    yield with_location(f"  stated by {chain.annotation}", chain.annotation.loc)
    rows = [
        (
            f"  {link.source} -> {link.target}",
            f"{link.way} through {link.op}",
            f"along {link.loop}",
            _round_text(link.priority, link.round),
            location_text(link.loc),
        )
        for link in chain.links
    ]
    yield from align_columns(list(_fold_steps(rows)))


def _fold_steps(rows: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, ...]]:
    """Yield the steps of a path; those through repeated layers are shown once."""
    shapes: dict[tuple[str, ...], int] = {}
    numbers = [shapes.setdefault(tuple(map(without_names, row[:3])), len(shapes)) for row in rows]
    at = 0
    for repetition in find_repetitions(numbers, min_unit=1):
        yield from rows[at : repetition.start + repetition.unit]
        yield (f"  such steps x {repetition.count}", *("",) * (len(rows[0]) - 1))
        for start, length in repetition.exceptions:
            yield from rows[start : start + length]
        at = repetition.start + repetition.length
    yield from rows[at:]


def _absence(absence: Absence) -> Iterator[str]:
    dim = "" if absence.dim is None else f"dimension {absence.dim}: "
    far = "it stops earlier: " if absence.far else ""
    yield f"  {dim}{far}{absence.reason.value}"
    if absence.op:
        where = f"{absence.tensor} at {absence.op}" if absence.tensor else absence.op
        yield with_location(f"    {where}", absence.loc)
    if absence.detail:
        yield f"    {absence.detail}"


def _round_text(priority: int, round: int) -> str:
    return f"round {round}" + (f" of priority {priority}" if priority else "")


@report_text.register
def _(report: Conflicts) -> str:
    if not report.rows:
        return "no conflicts"
    folded = fold_rows(report.rows, _conflict_key)
    rows = [
        (
            row.op + format_times(group),
            row.given_up.loop,
            _request_text(row.kept, row.given_up.loop),
            _request_text(row.given_up, row.given_up.loop),
            row.verdict.value,
            f"{' + '.join(row.reshard) or 'nothing'}, {show_bytes(row.nbytes)}",
        )
        for row, group in folded
    ]
    head = ("operation", "factor", "kept", "given up", "because", "collectives")
    lines = [*align_columns(first_rows(rows), head), *omitted_rows(rows)]
    for row, group in folded[:MAX_ROWS]:
        notes = [row.detail] if row.detail else []
        for request in (row.kept, row.given_up):
            notes += [with_location(f"{request.value}: {a}", a.loc) for a in request.annotations]
        lines += [
            "",
            with_location(row.op + format_times(group), row.loc),
            *(f"  {note}" for note in dict.fromkeys(notes)),
        ]
    return "\n".join(lines)


def _conflict_key(row: Conflict) -> object:
    """Return what conflicts of repeated layers have in common."""
    return (
        without_names(row.op),
        row.loc,
        row.verdict,
        without_names(row.detail),
        row.reshard,
        row.nbytes,
        row.kept.axes,
        without_names(row.kept.loop),
        row.given_up.axes,
        without_names(row.given_up.loop),
        *(without_numbers(str(a)) for a in (*row.kept.annotations, *row.given_up.annotations)),
    )


def _request_text(request: AxesRequest, loop: str) -> str:
    return f"{request.value} {request.axes}" + (
        f" along {request.loop}" if request.loop != loop else ""
    )


@report_text.register
def _(report: Difference) -> str:
    lines = list(report.edits)
    for refused in report.refused:
        lines += ["", *_explain_refusal(refused)]
    if report.changes:
        rows = [(f"  {c.value}", c.before, "->", c.after) for c in report.changes]
        lines += [
            "",
            f"{count_noun(len(rows), 'value')} sharded differently",
            *align_columns(first_rows(rows)),
        ]
        lines += omitted_rows(rows)
    else:
        lines += ["", "every value is sharded as before"]
        lines += [f"  {value} before and after the change" for value in report.unchanged]
    return "\n".join([*lines, "", *_traffic(report.before, report.after)])


def _explain_refusal(refused: Explanation) -> Iterator[str]:
    """Yield the reasons why axes that an annotation states do not shard the value."""
    yield f"{refused.value} has another sharding than stated: {refused.type}"
    for absence in refused.absences:
        yield f"  {absence.axis} does not shard it"
        yield from (f"  {line}" for line in _absence(absence))
    for revision in refused.revisions:
        yield from (f"  {line}" for line in _revision(revision))


def _traffic(before: Traffic, after: Traffic) -> Iterator[str]:
    if before.error or after.error:
        for when, traffic in (("before", before), ("after", after)):
            total = f"{_total(traffic)}{_counted_in(traffic.counted)}"
            yield f"{when}: {traffic.error or total}"
        return
    where = _counted_in(after.counted)
    yield f"communication{where}: {_total(before)} -> {_total(after)}"
    old, new = ({k: (n, b) for k, n, b in t.kinds} for t in (before, after))
    yield from align_columns([
        (f"  {kind}", _amount(*old.get(kind, (0, 0))), "->", _amount(*new.get(kind, (0, 0))))
        for kind in sorted({**old, **new})
    ])  # fmt: skip


def _total(traffic: Traffic) -> str:
    return f"{show_bytes(traffic.nbytes)} in {count_noun(traffic.count, 'collective')}"


def _counted_in(counted: str) -> str:
    """Return the words that name the function whose collectives are counted, if there are several
    functions."""
    return f" in {counted}" if counted else ""


def _amount(count: int, nbytes: int) -> str:
    return f"{count} ({show_bytes(nbytes)})"


@report_text.register
def _(report: OrderSensitivity) -> str:
    if not report.rows:
        return "no sharding depends on the order of the work list"
    rows = [(row.value, row.lifo, row.fifo) for row in report.rows]
    behind = dict.fromkeys(a for row in report.rows for a in row.annotations)
    return "\n".join([
        f"{count_noun(len(rows), 'value')} sharded differently in another order",
        *align_columns(first_rows(rows), ("value", "lifo", "fifo")),
        *omitted_rows(rows),
        "",
        "because of",
        *_annotations(behind),
    ])  # fmt: skip


@report_text.register
def _(report: Coverage) -> str:
    lines = [f"{count_noun(len(report.unruled), 'operation')} without a factor rule"]
    lines += align_columns(
        [(f"  {op.op}", f"stops {', '.join(op.axes) or 'nothing'}", location_text(op.loc))
         for op in report.unruled]
    )  # fmt: skip
    folded = fold_rows(
        report.whole, lambda w: (without_numbers(w.value), w.dim, w.size, w.axes, w.nbytes)
    )
    all_rows = [
        (
            f"  {w.value}{format_times(group)}",
            f"dimension {w.dim} of {w.size}",
            f"could be sharded over {' or '.join(w.axes)}",
            show_bytes(w.nbytes),
        )
        for w, group in folded
    ]
    dims = count_noun(len(report.whole), "dimension")
    lines += ["", f"{dims} unsharded although an axis is free"]
    lines += [*align_columns(first_rows(all_rows)), *omitted_rows(all_rows)]
    lines += ["", f"{count_noun(len(report.idle), 'annotation')} without effect"]
    return "\n".join([*lines, *_annotations(report.idle)])


@report_text.register
def _(report: Summary) -> str:
    tensors = count_noun(report.values, "tensor")
    lines = [f"{report.sharded} of {tensors} sharded", "", "annotations"]
    lines += _annotations(report.annotations) or ["  none"]
    nbytes = sum(row.nbytes for row in report.conflicts)
    lines += [
        "",
        *align_columns([
            ("conflicts", str(len(report.conflicts)), show_bytes(nbytes), "--conflicts"),
            ("depend on the order", str(report.dependent), "", "--order"),
            ("without a rule", str(report.unruled), "", "--coverage"),
        ]),
        "",
        report.traffic.error
        or f"communication{_counted_in(report.traffic.counted)}: {_total(report.traffic)}",
        *align_columns([(f"  {k}", _amount(n, b)) for k, n, b in report.traffic.kinds]),
    ]  # fmt: skip
    return "\n".join(lines)


@report_text.register
def _(report: Communication) -> str:
    if not report.rows:
        return f"no communication{_counted_in(report.counted)}"
    count = f"{count_noun(report.total.count, 'collective')}{_counted_in(report.counted)}"
    lines = [f"{count}, {_spent(report.total)}"]
    groups = (
        ("by kind", report.by_kind), ("over", report.by_axes), ("by line", report.by_line)
    )  # fmt: skip
    for title, table in groups:
        rows = [(f"  {word or '(no line)'}", *amount_cells(group)) for word, group in table]
        lines += [
            "",
            *align_columns(first_rows(rows), (title, "count", "result", "sent")),
            *omitted_rows(rows),
        ]
    listed = [
        _collective(each, group)
        for each, group in fold_rows(
            report.rows, lambda row: replace(row, value="", why=without_names(row.why))
        )
    ]
    lines += [
        "",
        *align_columns(first_rows(listed), ("value", "collective", "", "result", "why", "line")),
    ]
    return "\n".join([*lines, *omitted_rows(listed)])


@report_text.register
def _(report: PeakMemory) -> str:
    estimate = report.estimate
    counted = f" in {report.counted}" if report.counted else ""
    lines = [
        f"{show_bytes(estimate.peak)} at the peak{counted}, at {report.at or 'the arguments'}: "
        f"{show_bytes(estimate.arguments)} of arguments, "
        f"{show_bytes(estimate.results)} of results, "
        f"{show_bytes(estimate.temporaries)} of temporaries"
    ]
    by_line = [(line or "(no line)", show_bytes(nbytes)) for line, nbytes in report.by_line]
    folded = fold_rows(report.rows, lambda row: row._replace(name=without_numbers(row.name)))
    listed = [
        (
            row.name if len(group) == 1 else f"{row.name} x {len(group)}",
            row.type,
            show_bytes(sum(each.nbytes for each in group)),
            row.role,
            location_text(row.loc),
        )
        for row, group in sorted(folded, key=lambda each: -each[0].nbytes * len(each[1]))
    ]
    lines += ["", *align_columns(first_rows(by_line), ("line", "at the peak"))]
    lines += omitted_rows(by_line)
    lines += [
        "",
        *align_columns(first_rows(listed), ("alive at the peak", "type", "bytes", "role", "line")),
    ]
    return "\n".join([*lines, *omitted_rows(listed)])


def _reason(row: Collective) -> str:
    """Return why a program communicates."""
    return REQUESTED if row.why == REQUESTED else f"because of: {row.why}"


@report_text.register
def _(report: CollectiveCause) -> str:
    row = report.collective
    times = {None: ", in a while", 1: ""}.get(row.executions, f", {row.executions} times")
    lines = [
        with_location(collective_heading(row), row.loc),
        f"  {_reason(row)}",
        f"  {count_noun(row.group_size, 'device')} in each group, {show_bytes(row.nbytes)} result, "
        f"{show_bytes(row.sent)} sent by each device{times}",
    ]
    if report.chosen:
        lines += ["", f"part of the reshard of {report.move}", *_ways([report.chosen])]
    if report.dearer:
        lines += ["", "more expensive", *_ways(report.dearer)]
    if report.annotations:
        lines += ["", "its axes come from", *_annotations(report.annotations)]
    return "\n".join(lines)


def _ways(ways: Sequence[ReshardAlternative]) -> Iterator[str]:
    rows = [
        (
            f"  {', '.join(way.steps)}",
            f"{show_bytes(way.nbytes)} received",
            f"via {way.middle}" if way.middle else "",
        )
        for way in ways
    ]
    yield from align_columns(rows)


def _spent(group: CommunicationTotal) -> str:
    return f"{show_bytes(group.sent)} sent by each device in one run"


def _collective(each: Collective, group: Sequence[Collective]) -> tuple[str, ...]:
    times = {None: "in a while", 1: ""}.get(each.executions, f"{each.executions} times")
    return (
        f"  %{each.value}{format_times(group)}",
        f"{each.kind} over {format_axes(each)}",
        times,
        show_bytes(each.nbytes),
        each.why,
        location_text(each.loc),
    )


def _annotations(annotations: Iterable[Annotation]) -> list[str]:
    return list(
        align_columns(
            [
                (f"  {annotation}{format_times(group)}", location_text(annotation.loc))
                for annotation, group in fold_rows(
                    annotations, lambda a: (without_numbers(str(a)), a.loc)
                )
            ]
        )
    )
