"""Reports of programs: `load` reads the file that `compiled.report(path)` wrote."""

from typing import TYPE_CHECKING

from shardir._imports.lazy_names import lazy_names

TABLE = {
    "shardir.frontend.report.program_report": ("ProgramReport", "load"),
    "shardir.frontend.report.records_json": ("ReportError",),
}
"""The public names that each module defines."""

if TYPE_CHECKING:
    from shardir.frontend.report.program_report import (
        ProgramReport as ProgramReport,
        load as load,
    )
    from shardir.frontend.report.records_json import ReportError as ReportError
else:
    __getattr__, __dir__ = lazy_names(__name__, TABLE)
