"""Warnings at the line of the program that called shardir."""

import sys
import warnings
from types import FrameType


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the innermost caller outside of shardir, so that Python names the user's line.

    Python's filters for modules, such as the default one for `DeprecationWarning`, then apply to
    the module of the user.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_in_package(frame):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_in_package(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "shardir"
