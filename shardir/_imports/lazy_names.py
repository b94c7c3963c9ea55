"""Lazy public modules: each public name is imported on first access.

`import shardir` must be fast and the core must not import other packages, so a public module
consists of a table: for each name, the module that defines it. Type checkers and editors read the
equivalent imports under `if TYPE_CHECKING`; `tests/test_public_modules.py` checks that both agree.
"""

import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from shardir._imports.absent_names import absence_reason
from shardir.errors import ShardirError


class UnknownName(ShardirError, AttributeError):
    """A public module has no such name."""


class MissingModule(ShardirError, ModuleNotFoundError):
    """A name or a module of JAX that has no counterpart here is imported."""


def missing_module(name: str) -> MissingModule:
    """Return the error for the import of a name that JAX has and shardir lacks."""
    return MissingModule(f"there is no {name}; {absence_reason(name)}")


LISTED_ATTRIBUTES = frozenset({"__doc__", "__file__", "__name__", "__path__", "__version__"})
"""The attributes of a module itself that `dir` lists if they exist, for `help` and `inspect`."""

LazyModule = tuple[Callable[[str], object], Callable[[], list[str]]]
"""The `__getattr__` and `__dir__` of a lazy module (PEP 562)."""


def lazy_names(face: str, table: Mapping[str, tuple[str, ...]]) -> LazyModule:
    """Return the lazy module functions for `table`, which lists the public names of each module.

    A module with an empty tuple is itself the public name.
    """
    homes = {name: module for module, names in table.items() for name in names}
    submodules = {module.rpartition(".")[2]: module for module in table if not table[module]}

    def lookup(name: str) -> object:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
        elif name in submodules:
            value = import_module(submodules[name])
        else:
            raise unknown_name_error(face, name, [*homes, *submodules])
        setattr(sys.modules[face], name, value)
        return value

    return _make_lazy_module(face, lookup, lambda: [*homes, *submodules])


def lazy_module(face: str, home: str) -> LazyModule:
    """Return the lazy module functions that expose the public names of the module `home`.

    These are the names in its `__all__`; without one, all names except modules that are not public.
    """

    def lookup(name: str) -> object:
        # Of the dunder names, only those of the Array API standard are exposed.
        if name.startswith("__") and not name.startswith("__array_"):
            raise unknown_name_error(face, name, [])
        module = import_module(home)
        try:
            value = getattr(module, name)
        except AttributeError:
            raise unknown_name_error(face, name, public()) from None
        if isinstance(value, ModuleType) and _has_public_module(face, name):
            value = import_module(f"{face}.{name}")
        setattr(sys.modules[face], name, value)
        return value

    def public() -> list[str]:
        module = import_module(home)
        result: list[str] | None = getattr(module, "__all__", None)
        return result or [k for k, value in vars(module).items() if _is_public(face, k, value)]

    return _make_lazy_module(face, lookup, public)


def _is_public(face: str, name: str, value: object) -> bool:
    """Return whether a name is public in a module without `__all__`."""
    if name.startswith("_"):
        return name.startswith("__array_")
    return not isinstance(value, ModuleType) or _has_public_module(face, name)


def _has_public_module(face: str, name: str) -> bool:
    """Return whether a public module exists below another one."""
    return hasattr(sys.modules[face], "__path__") and find_spec(f"{face}.{name}") is not None


def _make_lazy_module(
    face: str, lookup: Callable[[str], object], public: Callable[[], list[str]]
) -> LazyModule:
    """Return lazy module functions that list the `public` names and `LISTED_ATTRIBUTES`."""
    # Python imports an absent name of a package as a module, and `AbsentNameFinder` refuses it.
    vars(sys.modules[face]).setdefault("__path__", [])

    def lookup_or_all(name: str) -> object:
        return sorted(public()) if name == "__all__" else lookup(name)

    def listing() -> list[str]:
        present = vars(sys.modules[face]).keys() & LISTED_ATTRIBUTES
        return sorted({*present, *public()})

    return lookup_or_all, listing


def unknown_name_error(face: str, name: str, names: list[str]) -> UnknownName:
    """Return the error for a name that a public module with the public `names` does not have."""
    if (reason := absence_reason(f"{face}.{name}")) is not None:
        return UnknownName(f"{face} has no name {name!r}; {reason}")
    # Tools such as pytest look up private names in each module; no public name is close to them.
    close = [] if name.startswith("_") else get_close_matches(name, names, 1)
    return UnknownName(
        f"{face} has no name {name!r}" + (f"; did you mean {close[0]!r}" if close else "")
    )
