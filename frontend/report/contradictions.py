"""Contradictions between the records of a report that was read from a file.

The indices that a type of record declares are checked while the report is read; this module checks
the other relations on which the page and the text rely.
"""

from collections.abc import Iterable, Iterator

from shardir.frontend.report.records import ReportData, StageRecord, TableRecord


def find_contradictions(data: ReportData) -> Iterator[str]:
    """Yield the contradictions in a report, each with its place."""
    for number, stage in enumerate(data.stages):
        yield from _stage_contradictions(stage, len(data.texts), f"element {number} of stages")
    for number, row in enumerate(data.source):
        if row.line and not 0 <= row.file < len(data.files):
            yield f"file of element {number} of source is {row.file}, which is no index of files"
    peak, boxes = data.schedule.peak_box, len(data.schedule.boxes)
    if boxes and not 0 <= peak < boxes:
        yield f"peak_box of schedule is {peak}, which is no index of boxes"
    if data.run is not None and len(data.run.busy) != len(data.run.lanes):
        yield "busy and lanes of run have different lengths"
    for name, record in (("simulation", data.simulation), ("planning", data.planning)):
        if record is not None:
            yield from _table_contradictions(record.tables, name)


def _stage_contradictions(stage: StageRecord, num_texts: int, where: str) -> Iterator[str]:
    count = 0
    for number, (first, length) in enumerate(stage.line_runs):
        if first < 0 or length < 0 or first + length > num_texts:
            yield f"element {number} of line_runs of {where} is outside of texts"
            return
        count += length
    for number, fold in enumerate(stage.folds):
        lengths = [fold.unit, *(length for _, length in fold.exceptions)]
        if fold.start < 0 or fold.start + fold.length > count or min(lengths) < 1:
            yield f"element {number} of folds of {where} is outside of its lines"


def _table_contradictions(tables: Iterable[TableRecord], where: str) -> Iterator[str]:
    for number, table in enumerate(tables):
        if any(len(row) != len(table.head) for row in table.rows):
            yield f"element {number} of tables of {where} has rows of another length than its head"
