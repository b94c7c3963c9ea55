"""Entry points of installed packages, and the origin of the entries that they add to registries.

This module imports no other module of shardir except `errors`, so that every table can use it.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import FrameType
from typing import Any, Final

from shardir.errors import ShardirError, bound_message, suggest_name

GROUP_PREFIX: Final = "shardir."
"""The prefix of all groups of entry points that shardir reads."""
OWN_ORIGIN: Final = "shardir"
"""The origin of the entries of this package."""


class PluginError(ShardirError):
    """An extension cannot be loaded, or conflicts with another one."""


class UnboundNameError(AttributeError):
    """A module has no object of a name."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point of an installed package: `name = "value"` of a group in its metadata."""

    group: str
    name: str
    value: str
    package: str

    @property
    def origin(self) -> str:
        """The package, as texts name it."""
        return f"package {self.package}"

    def load(self) -> Any:
        """Import the object; raise `PluginError` that names the package and the exception."""
        where = (
            f"{self.origin} cannot be loaded: its entry point {self.name} = {self.value!r} of "
            f"{self.group}"
        )
        if not self.value.partition(":")[0].strip():
            raise PluginError(f"{where} names no module; write module:name")
        try:
            with attribute_entries(self.origin):
                return import_object(self.value)
        except UnboundNameError as error:
            raise PluginError(f"{where} names no object: {error}") from error
        except Exception as error:
            raise PluginError(f"{where} raised {describe_exception(error)}") from error


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group of shardir."""
    return _all_entry_points().get(group, ())


@cache
def _all_entry_points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of all groups of shardir, which the first call reads from disk."""
    # Imported late for start-up time: most programs need no entry points.
    from importlib import metadata

    groups: dict[str, list[EntryPoint]] = {}
    seen: set[str] = set()
    for package in metadata.distributions():
        # A text search is much faster than parsing the metadata of every package.
        if f"[{GROUP_PREFIX}" not in (package.read_text("entry_points.txt") or ""):
            continue
        name = package.metadata["Name"]
        if name in seen:  # The first one on the path is the one that Python imports.
            continue
        seen.add(name)
        for point in package.entry_points:
            if point.group.startswith(GROUP_PREFIX):
                entry = EntryPoint(
                    point.group, point.name, point.value, f"{name} {package.version}"
                )
                groups.setdefault(point.group, []).append(entry)
    return {group: tuple(points) for group, points in groups.items()}


_origins_being_loaded: list[str] = []


@contextmanager
def attribute_entries(origin: str) -> Iterator[None]:
    """Attribute the entries that a block registers to an origin."""
    _origins_being_loaded.append(origin)
    try:
        yield
    finally:
        _origins_being_loaded.pop()


def current_origin(entry: object) -> str:
    """Return the origin of an entry that is registered now."""
    module = entry.__module__ if isinstance(entry, type) else _importing_module()
    if module.partition(".")[0] == "shardir":
        return OWN_ORIGIN
    return _origins_being_loaded[-1] if _origins_being_loaded else f"module {module}"


def is_extension() -> bool:
    """Return whether another package or file is being imported, or calls this function."""
    return _importing_module().partition(".")[0] != OWN_ORIGIN


def _importing_module() -> str:
    """Return the name of the module whose import calls this function."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "__main__" if frame is None else str(frame.f_globals.get("__name__", "__main__"))


def import_object(value: str) -> Any:
    """Return the module `module`, or the object `module:name`.

    Raises `UnboundNameError` if the module has no such object.
    """
    module, _, path = value.partition(":")
    result: Any = import_module(module.strip())
    for part in filter(None, path.strip().split(".")):
        if not hasattr(result, part):
            hint = suggest_name(part, dir(result)) or "define it there, or name another object"
            raise UnboundNameError(f"{module} has no {path!r}; {hint}")
        result = getattr(result, part)
    return result


def describe_exception(error: Exception) -> str:
    return bound_message(f"{type(error).__name__}: {error}")
