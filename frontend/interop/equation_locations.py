"""Source locations in the user's program of the equations of a jaxpr.

JAX keeps the stack of every equation. The innermost frame in user code, outside of JAX and other
libraries, is the location; the variable to which its value is assigned gives the value its name.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from types import CodeType, FrameType

import jax
from jax.extend import core

from shardir.frontend.source_locations import (
    CallSite,
    UserPosition,
    is_internal_code,
    site_at,
    user_position,
)

_LIBRARY_FOLDERS = tuple(
    sorted(
        os.path.realpath(sysconfig.get_paths()[kind]) + os.sep
        for kind in ("stdlib", "purelib", "platlib")
    )
)
_INSTALLED_PATH = re.compile(r"[/\\](site|dist)-packages[/\\]")
"""Matches installed packages outside of the environment's own folders, such as user folders."""
_JAX_FOLDER = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep


class EquationLocation(UserPosition):
    """A location whose frame has ended; `frame` is that of the call of the imported function."""

    __slots__ = ("_names",)

    def __init__(
        self, site: CallSite, frame: FrameType, call: object, names: tuple[str, ...]
    ) -> None:
        super().__init__(site, frame, call)
        self._names = names

    def names(self) -> tuple[str, ...]:
        return self._names


class EquationLocations:
    """The locations of the equations of one call of an imported function."""

    def __init__(self) -> None:
        location = user_position()
        # Outside of a user's frame, as in a command, the own frame is used.
        self._frame = sys._getframe() if location is None else location.frame
        self._calls: dict[tuple[int, int], object] = {}

    def locate(self, equation: core.JaxprEqn) -> UserPosition | None:
        """Return the location of an equation, or `None` if JAX recorded none."""
        if equation.source_info.traceback is None:
            return None
        codes, offsets = equation.source_info.traceback.raw_frames()
        at = _user_frame(codes)
        if at is None:
            return None
        site = site_at(codes[at], offsets[at])
        key = id(codes[at]), offsets[at]
        call = self._calls.setdefault(key, object())
        return EquationLocation(site, self._frame, call, _target_names(codes, offsets, at, site))


def _user_frame(codes: Sequence[CodeType]) -> int | None:
    """Return the index of the innermost frame in user code, or in a library if there is none."""
    library_frame = None
    for i, code in enumerate(codes):
        if is_internal_code(code):
            # The frames further out called the imported function.
            break
        if not _is_library(code.co_filename):
            return i
        if library_frame is None and not code.co_filename.startswith(_JAX_FOLDER):
            library_frame = i
    return library_frame


@cache
def _is_library(file: str) -> bool:
    return any(
        each.startswith(_LIBRARY_FOLDERS) or _INSTALLED_PATH.search(each)
        for each in (file, os.path.realpath(file))
    )


def _target_names(
    codes: Sequence[CodeType], offsets: Sequence[int], at: int, site: CallSite
) -> tuple[str, ...]:
    """Return the variables to which the result is assigned, here or in a caller that it is returned
    to.

    Library functions in between pass the result on.
    """
    while site.returned and at + 1 < len(codes):
        at += 1
        if is_internal_code(codes[at]):
            return ()
        if not _is_library(codes[at].co_filename):
            site = site_at(codes[at], offsets[at])
    return () if site.returned else site.names
