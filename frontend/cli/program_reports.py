"""Reports that `shardir explain` writes: HTML files, and JSON for other viewers."""

from collections.abc import Callable
from pathlib import Path

import typer

from shardir.frontend.cli.files import CommandError
from shardir.frontend.cli.options import ReportFormat
from shardir.frontend.cli.targets import CommandTarget
from shardir.frontend.report.build import ReportInput
from shardir.frontend.report.program_report import ProgramReport, report


def write_reports(
    program: CommandTarget, pipeline: str, page: str | None, form: ReportFormat | None
) -> None:
    """Write the report of a program to the file `page`, and print it in the form `form`."""
    made = report(
        ReportInput(
            program.module,
            pipeline,
            places=program.locations or {},
            sources={} if program.text is None else {program.name: program.text},
        )
    )
    if page is not None:
        if Path(page).suffix not in (".html", ".htm"):
            raise CommandError(f"--html writes a page, and {page!r} does not end with .html")
        typer.echo(made.save(page))
    if form is not None:
        typer.echo(_WRITERS[form](made), nl=False)


_WRITERS: dict[ReportFormat, Callable[[ProgramReport], str]] = {
    ReportFormat.text: ProgramReport.to_text,
    ReportFormat.json: ProgramReport.to_json,
    ReportFormat.trace_events: ProgramReport.to_trace_events,
    ReportFormat.model_explorer: ProgramReport.to_model_explorer,
}
