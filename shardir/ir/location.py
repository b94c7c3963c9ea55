"""Positions in the user's program: source lines, and cells of notebooks.

IPython compiles each cell under the name of a temporary file, and keeps the number of the cell for
its tracebacks. Positions state the number, as those tracebacks do.
"""

import linecache
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

_LIBRARIES = ("shardir", "numpy")
_file_by_cell: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Loc:
    """The position in the user's program that an operation was traced from."""

    file: str
    """The path of the source file."""
    line: int
    """The line in the file, from 1."""
    column: int
    """The column in the line in bytes of UTF-8, from 1."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


SourceLocations = Mapping[tuple[str, str], Loc]
"""Source locations by function, and value (`%x`) or result (`result 0`)."""


def find_location(function: str, name: str, locations: SourceLocations | None) -> Loc | None:
    """Return the location of a value, or of the value that it was made for: passes add suffixes.

    Without `locations`, return `None`.
    """
    while name and locations:
        result = locations.get((function, name))
        if result is not None:
            return result
        name = name.rpartition(".")[0]
    return None


def running_ipython() -> Any:
    """Return the shell of IPython or Jupyter in which this process runs, or `None`."""
    find = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if find is None else find()


def name_cell(file: str) -> str:
    """Return the name of the cell that IPython compiled as `file`, such as `In[4]`.

    Other names are returned unchanged. `linecache` has the source of the cell under its name.
    """
    find = getattr(getattr(running_ipython(), "compile", None), "format_code_name", None)
    found = None if find is None else find(file)
    if found is None:
        return file
    cell = str(found[1])
    if _file_by_cell.setdefault(cell, file) != file:
        return file  # Cells that the history does not contain have the number of another cell.
    if file in linecache.cache:
        linecache.cache[cell] = linecache.cache[file]
    return cell


def is_cell(file: str) -> bool:
    """Return whether the file of a location is a cell of IPython."""
    return file in _file_by_cell


def exception_place(error: Exception) -> str:
    """Return the last line of an extension in a traceback, such as ` at mypass.py:3`, or `""`.

    The frames of this package and of NumPy belong to no extension.
    """
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            place = f" at {name_cell(frame.f_code.co_filename)}:{line}"
    return place
