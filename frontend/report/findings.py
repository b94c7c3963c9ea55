"""Communication, conflicts, coverage and order dependence as records."""

from collections.abc import Iterable, Iterator

from shardir.cost.communication import CommunicationTotal, format_axes
from shardir.frontend.report.records import (
    CollectiveRecord,
    ConflictRecord,
    DependenceRecord,
    PlanRecord,
    RequestRecord,
    RevisionRecord,
    TotalRecord,
    UnruledRecord,
    UnshardedRecord,
)
from shardir.frontend.report.tables import ReportTables
from shardir.ir.module import Loc
from shardir.passes.explain.collective_causes import (
    CollectiveCause,
    CollectiveCauses,
    ReshardAlternative,
)
from shardir.passes.explain.communication import Communication
from shardir.passes.explain.explanation import revisions_of
from shardir.passes.explain.propagation_history.history import FunctionHistory
from shardir.passes.explain.reports import AxesRequest, Conflict, Coverage, Dependence


def collective_records(
    communication: Communication, causes: CollectiveCauses | None, tables: ReportTables
) -> Iterator[CollectiveRecord]:
    """Yield the collectives with their causes, if these are known."""
    for row in communication.rows:
        cause = CollectiveCause(row, "", None, (), ()) if causes is None else causes.cause(row)
        yield CollectiveRecord(
            f"%{row.value}",
            row.kind,
            format_axes(row),
            row.group_size,
            row.nbytes,
            row.sent,
            -1 if row.executions is None else row.executions,
            tables.location(row.loc),
            row.why,
            cause.move,
            None if cause.chosen is None else _plan(cause.chosen),
            tuple(map(_plan, cause.dearer)),
            tables.annotation_numbers(cause.annotations),
        )


def _plan(way: ReshardAlternative) -> PlanRecord:
    return PlanRecord(way.steps, way.nbytes, way.middle)


def total_record(word: str, total: CommunicationTotal) -> TotalRecord:
    return TotalRecord(word, total.count, total.executions, total.nbytes, total.sent)


def total_records(
    totals: Iterable[tuple[str, CommunicationTotal]],
) -> tuple[TotalRecord, ...]:
    return tuple(total_record(word, total) for word, total in totals)


def short_line(loc: Loc | None, tables: ReportTables) -> str:
    """Return `file:line` with the name of the file in the report, empty for no location."""
    found = tables.location(loc)
    return "" if found is None else f"{tables.files[found[0]].name}:{found[1]}"


def conflict_records(
    conflicts: Iterable[Conflict], tables: ReportTables
) -> Iterator[ConflictRecord]:
    for row in conflicts:
        yield ConflictRecord(
            row.op,
            row.function,
            tables.location(row.loc),
            _request(row.kept, tables),
            _request(row.given_up, tables),
            row.verdict.value,
            row.detail,
            row.reshard,
            row.nbytes,
        )


def _request(request: AxesRequest, tables: ReportTables) -> RequestRecord:
    return RequestRecord(
        request.value,
        request.loop,
        request.axes,
        tables.annotation_numbers(request.annotations),
    )


def revision_records(histories: Iterable[FunctionHistory]) -> Iterator[RevisionRecord]:
    """Yield the changes of shardings by passes after propagation."""
    for history in histories:
        for value in history.values.values():
            explained = history.explained_value(value)
            for each in revisions_of(history, explained):
                yield RevisionRecord(
                    history.name, explained.name, each.by, each.before, each.after, each.why
                )


def unruled_records(coverage: Coverage, tables: ReportTables) -> Iterator[UnruledRecord]:
    for row in coverage.unruled:
        yield UnruledRecord(row.op, tables.location(row.loc), row.axes)


def unsharded_records(coverage: Coverage) -> Iterator[UnshardedRecord]:
    for row in coverage.whole:
        yield UnshardedRecord(row.value, row.dim, row.size, row.axes, row.nbytes)


def dependence_records(
    rows: Iterable[Dependence], tables: ReportTables
) -> Iterator[DependenceRecord]:
    for row in rows:
        behind = tables.annotation_numbers(row.annotations)
        yield DependenceRecord(row.value, row.lifo, row.fifo, behind)
