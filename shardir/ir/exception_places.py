"""The line of an extension that raised an exception."""

from traceback import walk_tb

from shardir.ir.notebook_cells import name_cell

_LIBRARIES = ("shardir", "numpy")


def exception_place(error: Exception) -> str:
    """Return the last line of an extension in a traceback, such as ` at mypass.py:3`, or `""`.

    The frames of this package and of NumPy belong to no extension.
    """
    place = ""
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            place = f" at {name_cell(frame.f_code.co_filename)}:{line}"
    return place
