"""Where in the user's program an equation of JAX comes from.

JAX keeps the stack of every equation. The innermost frame that is the user's own, not JAX's and
not a library's, is where it stands; the variable that its value goes to gives the value its name.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache
from types import CodeType, FrameType
from typing import Any

import jax

from shardir.frontend.locations import Place, Site, here, is_internal, site_in

_LIBRARIES = tuple(
    sorted(
        os.path.realpath(sysconfig.get_paths()[kind]) + os.sep
        for kind in ("stdlib", "purelib", "platlib")
    )
)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")
"""Also where the environment does not say so: a user's own folder, one that is lent by another."""
_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep


class ForeignPlace(Place):
    """A place that Python has left already; `frame` is where the imported function was called."""

    __slots__ = ("_names",)

    def __init__(self, site: Site, frame: FrameType, call: object, names: tuple[str, ...]) -> None:
        super().__init__(site, frame, call)
        self._names = names

    def names(self) -> tuple[str, ...]:
        return self._names


class Places:
    """The places of the equations of one call of an imported function."""

    def __init__(self) -> None:
        outside = here()
        # Under a command nobody's frame is outside.
        self._frame = sys._getframe() if outside is None else outside.frame
        self._calls: dict[tuple[int, int], object] = {}

    def of(self, equation: Any) -> Place | None:
        """Where an equation comes from; `None` where JAX does not know either."""
        if equation.source_info.traceback is None:
            return None
        codes, offsets = equation.source_info.traceback.raw_frames()
        at = _own(codes)
        if at is None:
            return None
        site = site_in(codes[at], offsets[at])
        key = id(codes[at]), offsets[at]
        call = self._calls.setdefault(key, object())
        return ForeignPlace(site, self._frame, call, _names(codes, offsets, at, site))


def _own(codes: Sequence[CodeType]) -> int | None:
    """The innermost frame of the user's; of a library's where there is none."""
    other = None
    for i, code in enumerate(codes):
        if is_internal(code):
            # What is further out has called the imported function.
            break
        if not _is_library(code.co_filename):
            return i
        if other is None and not code.co_filename.startswith(_JAX):
            other = i
    return other


@cache
def _is_library(file: str) -> bool:
    return any(
        each.startswith(_LIBRARIES) or _INSTALLED.search(each)
        for each in (file, os.path.realpath(file))
    )


def _names(
    codes: Sequence[CodeType], offsets: Sequence[int], at: int, site: Site
) -> tuple[str, ...]:
    """The variables that the result goes to, here or where this function returns to.

    Functions of libraries in between hand the result on.
    """
    while site.returned and at + 1 < len(codes):
        at += 1
        if is_internal(codes[at]):
            return ()
        if not _is_library(codes[at].co_filename):
            site = site_in(codes[at], offsets[at])
    return () if site.returned else site.names
