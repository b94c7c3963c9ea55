"""Code whose `import jax` brings shardir: by an `__import__` of its own.

A frame takes `__import__` from the builtins of its module. Those of a program's modules are a copy
with another `__import__`, so nothing is changed for anybody else, and functions of the program
that import something later do so in the same way. The program's modules are kept apart from
`sys.modules`, since the same file may be there as well, with JAX in it.
"""

import builtins
import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType
from typing import Any

from shardir.frontend.locations import point
from shardir.interop.in_place_of_jax.facade import JAX, Missing, of_jax
from shardir.interop.in_place_of_jax.nearest import (
    LIBRARIES,
    UncoveredImport,
    library,
    uncovered,
)
from shardir.interop.in_place_of_jax.settings import obey_flags

_lock = RLock()


class Program:
    """Modules, and loose code, that see shardir under the name `jax`.

    `modules` are names of modules and packages that belong to it; so do all in `folder`.
    """

    def __init__(self, modules: Sequence[str] = (), folder: str | Path | None = None) -> None:
        self._names = frozenset([*modules, *_names_in(folder)])
        self._kept: dict[str, ModuleType] = {}
        self._depth = 0
        self._builtins = {**vars(builtins), "__import__": self.bring}

    def adopt(self, namespace: dict[str, Any]) -> None:
        """Let code that runs in `namespace` from now on belong to the program.

        In a notebook: `Program().adopt(globals())`, for the cells that follow.
        """
        namespace["__builtins__"] = self._builtins

    def execute(self, code: str | CodeType, namespace: dict[str, Any]) -> None:
        """Run code of the program in `namespace`."""
        self.adopt(namespace)
        exec(code, namespace)

    def bring(
        self, name: str, scope: Any = None, local: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        """What the import statements of the program do: `__import__`."""
        top = name.partition(".")[0]
        if level == 0 and top == "jax":
            return _of_jax(name, tuple(wanted or ()))
        if level == 0 and top in LIBRARIES and top not in self._names:
            raise UncoveredImport(point(library(top)), name=name)
        if level:
            top = str((scope or {}).get("__package__") or "").partition(".")[0]
        if top not in self._names:
            return importlib.__import__(name, scope, local, wanted, level)
        with self._present():
            return importlib.__import__(name, scope, local, wanted, level)

    @contextmanager
    def _present(self) -> Iterator[None]:
        """Inside, `sys.modules` has the program's modules, and others are loaded as such."""
        with _lock:
            self._depth += 1
            if self._depth > 1:
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            aside = self._taken()
            sys.modules.update(self._kept)
            finder = _Finder(self._names, self._builtins)
            sys.meta_path.insert(0, finder)
            try:
                yield
            finally:
                sys.meta_path.remove(finder)
                self._kept = self._taken()
                sys.modules.update(aside)
                self._depth -= 1

    def _taken(self) -> dict[str, ModuleType]:
        """The modules of these names, taken out of `sys.modules`."""
        found = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in found}


def _names_in(folder: str | Path | None) -> list[str]:
    """The modules and packages in a folder, but for those that Python itself has."""
    if folder is None:
        return []
    files = sorted(Path(folder).glob("*.py"))
    packages = [each.parent for each in sorted(Path(folder).glob("*/*.py"))]
    names = dict.fromkeys([*(file.stem for file in files), *(each.name for each in packages)])
    taken = sys.stdlib_module_names | {"shardir", "jax"}
    return [name for name in names if name.isidentifier() and name not in taken]


def _of_jax(name: str, wanted: tuple[str, ...]) -> Any:
    """What `import name` brings, or `from name import wanted`."""
    obey_flags()
    try:
        found = of_jax(name)
    except Missing:
        raise UncoveredImport(point(uncovered(name)), name=name) from None
    for each in wanted:
        if each != "*" and not hasattr(found, each):
            raise UncoveredImport(point(uncovered(f"{name}.{each}")), name=name)
    if "*" in wanted:
        found.__all__ = [each for each in dir(found) if hasattr(found, each)]
    return found if wanted else JAX


class _Finder(MetaPathFinder):
    """Finds modules of a program where Python finds them, and has them loaded as such."""

    def __init__(self, names: frozenset[str], inside: dict[str, Any]) -> None:
        self._names, self._builtins = names, inside

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._builtins)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module with other builtins than those of everybody."""

    def __init__(self, name: str, path: str, inside: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = inside

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)
