"""Reports that `shardir explain` writes: HTML files, and JSON for other viewers."""

from collections.abc import Callable, Mapping
from pathlib import Path

import typer

from shardir.frontend.cli.options import CommandError, ReportFormat
from shardir.frontend.cli.targets import CommandTarget
from shardir.frontend.report.build import ReportInput
from shardir.frontend.report.program_report import ProgramReport, report
from shardir.ir.module import Loc
from shardir.passes.simulation import Simulation
from shardir.text.definition_locations import find_mlir_locations


def write_reports(
    program: CommandTarget, pipeline: str, page: str | None, form: ReportFormat | None
) -> None:
    """Write the report of a program to the file `page`, and print it in the form `form`.

    The path of the page is printed on stderr if a form is printed on stdout.
    """
    if page is not None:
        check_page(page)
    made = _make_report(program, pipeline)
    if page is not None:
        typer.echo(made.save(page), err=form is not None)
    if form is not None:
        typer.echo(_WRITERS[form](made), nl=False)


def write_page(program: CommandTarget, pipeline: str, page: str, simulation: Simulation) -> None:
    """Write the report of a program with its simulation to the file `page`."""
    check_page(page)
    typer.echo(_make_report(program, pipeline, simulation).save(page))


def _make_report(
    program: CommandTarget, pipeline: str, simulation: Simulation | None = None
) -> ProgramReport:
    return report(
        ReportInput(
            program.module,
            pipeline,
            places=_locations(program),
            sources={} if program.text is None else {program.name: program.text},
            simulation=simulation,
            planning=None if program.lowered is None else program.lowered.planning_record(),
        )
    )


def check_page(page: str) -> None:
    """Raise `CommandError` if a path is not that of a page."""
    if Path(page).suffix not in (".html", ".htm"):
        raise CommandError(f"--html writes a page, and {page!r} does not end with .html")


def _locations(program: CommandTarget) -> Mapping[tuple[str, str], Loc]:
    """Return the lines of the values of a program; `locations` has none of StableHLO."""
    if program.locations is None and program.text is not None:
        return find_mlir_locations(program.text, program.name)
    return program.locations or {}


_WRITERS: dict[ReportFormat, Callable[[ProgramReport], str]] = {
    ReportFormat.text: ProgramReport.to_text,
    ReportFormat.json: ProgramReport.to_json,
    ReportFormat.trace_events: ProgramReport.to_trace_events,
    ReportFormat.model_explorer: ProgramReport.to_model_explorer,
}
