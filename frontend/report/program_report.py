"""`ProgramReport`: the report of a program, which can be written, read, and shown as text."""

import html
import os
from dataclasses import dataclass
from pathlib import Path
from typing import final

from shardir.errors import count_noun, os_error_reason
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.quoting import brief
from shardir.frontend.report.build import ReportInput, build_report
from shardir.frontend.report.model_explorer import to_model_explorer
from shardir.frontend.report.records import ReportData
from shardir.frontend.report.records_json import ReportError, from_json, to_json
from shardir.frontend.report.text import format_report
from shardir.frontend.report.trace_events import to_trace_events
from shardir.frontend.report.writer import json_of_page, to_html
from shardir.passes.garbage_collection import paused_garbage_collection

MAX_NOTEBOOK_CHARACTERS = 1_000_000
"""Maximum length of the page of a report that a notebook shows, in characters."""


@with_method_errors
@final
@dataclass(frozen=True, repr=False)
class ProgramReport:
    """The report of a program. `data` has all of its contents as plain records."""

    data: ReportData
    """The contents of the report as plain records."""

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the report to a file, and return its path.

        The file is HTML, JSON if the name ends with `.json`, or text if it ends with `.txt`. Equal
        reports are written as equal bytes. Raises `ReportError` if the file cannot be written.
        """
        if not isinstance(path, (str, os.PathLike)):
            raise ReportError(f"the path of a report is a string or a Path, not {brief(path)}")
        result = Path(path)
        made = {".json": self.to_json, ".txt": self.to_text}.get(result.suffix, self.to_html)()
        try:
            result.write_text(made, encoding="utf-8", newline="\n")
        except (OSError, ValueError) as error:  # A path with a NUL byte raises ValueError.
            reason = os_error_reason(error)
            raise ReportError(f"cannot write the report to {str(path)!r}: {reason}") from None
        return result

    def to_html(self) -> str:
        """Return the report as one HTML page, which needs no other file and no network."""
        return to_html(self.data)

    def to_json(self) -> str:
        """Return the data of the report as JSON; docs/report.md describes it."""
        return to_json(self.data)

    def to_trace_events(self) -> str:
        """Return the schedule in Chrome's trace format, which Perfetto and chrome://tracing
        show."""
        return to_trace_events(self.data)

    def to_model_explorer(self) -> str:
        """Return the stages as graphs for Model Explorer, in its JSON format."""
        return to_model_explorer(self.data)

    def to_text(self) -> str:
        """Return all numbers of the report as text."""
        return format_report(self.data) + "\n"

    def __str__(self) -> str:
        return format_report(self.data)

    def __repr__(self) -> str:
        data = self.data
        return (
            f"ProgramReport({data.name!r}, {count_noun(len(data.stages), 'stage')}, "
            f"{count_noun(len(data.values), 'value')}, "
            f"{count_noun(len(data.collectives), 'collective')})"
        )

    def _repr_html_(self) -> str | None:
        page = self.to_html()
        if len(page) > MAX_NOTEBOOK_CHARACTERS:
            return None
        return (
            f'<iframe srcdoc="{html.escape(page)}" title="{html.escape(repr(self))}" '
            'style="width:100%;height:640px;border:0"></iframe>'
        )


def report(given: ReportInput) -> ProgramReport:
    """Return the report of a program."""
    with paused_garbage_collection():
        return ProgramReport(build_report(given))


@with_argument_errors
def load(path: str | os.PathLike[str]) -> ProgramReport:
    """Return the report in an HTML or JSON file that `ProgramReport.save` wrote.

    Raises `ReportError` if the file cannot be read or is not a report of this version.
    """
    name = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # A path with a NUL byte raises ValueError.
        raise ReportError(f"cannot read {name!r}: {os_error_reason(error)}") from None
    is_page = text.lstrip()[:1] == "<"
    return ProgramReport(from_json(json_of_page(text, name) if is_page else text, name))
