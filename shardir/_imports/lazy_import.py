"""Lazy imports: a module is imported at the first access to one of its names.

They keep modules out of the start that few programs need, as `lazy import` (PEP 810) does in later
versions of Python. Type checkers and editors read the equivalent import under `if TYPE_CHECKING`;
`tests/test_layering.py` checks that both agree. Function-level imports are for optional
dependencies, whose absence the function handles.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, final


@final
class _LazilyImportedModule:
    """A module that is imported at the first access to one of its names."""

    __slots__ = ("_module", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        # Tools such as pytest look for private marks of each object of a module.
        if name.startswith("_"):
            raise AttributeError(f"{self!r} has no attribute {name!r} of its own")
        if self._module is None:
            self._module = import_module(self._name)
        return getattr(self._module, name)

    def __repr__(self) -> str:
        return f"<lazily imported module {self._name}>"


def lazy_import(name: str) -> Any:
    """Return a module that is imported at the first access to one of its names."""
    return _LazilyImportedModule(name)
