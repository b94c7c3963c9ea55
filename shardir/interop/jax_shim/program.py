"""Programs whose `import jax` imports shardir, by means of a private `__import__`.

A frame takes `__import__` from the builtins of its module. The modules of a program have a copy of
the builtins with another `__import__`, so other code is unaffected, and later imports in the
program's functions behave in the same way. The program's modules are kept out of `sys.modules`,
because the same file may also be loaded there with JAX.
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

from shardir.frontend.source_locations import with_location
from shardir.interop.jax_shim.jax_config import apply_xla_flags
from shardir.interop.jax_shim.module_facade import (
    JAX_MODULE,
    MissingNameError,
    ModuleFacade,
    look_up_jax,
)
from shardir.interop.jax_shim.suggestions import (
    LIBRARIES_ON_JAX,
    UncoveredImport,
    explain_library,
    explain_uncovered,
)

_lock = RLock()


class Program:
    """Modules and code that import shardir under the name `jax`.

    `modules` are the names of its modules and packages; all modules in `folder` also belong to it.
    """

    def __init__(self, modules: Sequence[str] = (), folder: str | Path | None = None) -> None:
        self._names = frozenset([*modules, *_module_names_in(folder)])
        self._kept: dict[str, ModuleType] = {}
        self._depth = 0
        self._builtins = {**vars(builtins), "__import__": self.import_module}

    def adopt(self, namespace: dict[str, Any]) -> None:
        """Make code that subsequently runs in `namespace` part of the program.

        In a notebook, `Program().adopt(globals())` applies to the following cells.
        """
        namespace["__builtins__"] = self._builtins

    def execute(self, code: str | CodeType, namespace: dict[str, Any]) -> None:
        """Run code of the program in `namespace`."""
        self.adopt(namespace)
        exec(code, namespace)

    def import_module(
        self, name: str, scope: Any = None, local: Any = None, fromlist: Any = (), level: int = 0
    ) -> Any:
        """Implement `__import__` for the program."""
        top = name.partition(".")[0]
        if level == 0 and top == "jax":
            return _import_jax(name, tuple(fromlist or ()))
        if level == 0 and top in LIBRARIES_ON_JAX and top not in self._names:
            raise UncoveredImport(with_location(explain_library(top)), name=name)
        if level:
            top = str((scope or {}).get("__package__") or "").partition(".")[0]
        if top not in self._names:
            return importlib.__import__(name, scope, local, fromlist, level)
        with self._modules_in_sys():
            return importlib.__import__(name, scope, local, fromlist, level)

    @contextmanager
    def _modules_in_sys(self) -> Iterator[None]:
        """Put the program's modules into `sys.modules`, and load new ones for the program."""
        with _lock:
            self._depth += 1
            if self._depth > 1:
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            aside = self._remove_modules()
            sys.modules.update(self._kept)
            finder = _ProgramFinder(self._names, self._builtins)
            sys.meta_path.insert(0, finder)
            try:
                yield
            finally:
                sys.meta_path.remove(finder)
                self._kept = self._remove_modules()
                sys.modules.update(aside)
                self._depth -= 1

    def _remove_modules(self) -> dict[str, ModuleType]:
        """Remove the modules of the program from `sys.modules` and return them."""
        module_names = [name for name in sys.modules if name.partition(".")[0] in self._names]
        return {name: sys.modules.pop(name) for name in module_names}


def _module_names_in(folder: str | Path | None) -> list[str]:
    """Return the modules and packages in a folder, except those of the standard library."""
    if folder is None:
        return []
    files = sorted(Path(folder).glob("*.py"))
    packages = [each.parent for each in sorted(Path(folder).glob("*/*.py"))]
    names = dict.fromkeys([*(file.stem for file in files), *(each.name for each in packages)])
    taken = sys.stdlib_module_names | {"shardir", "jax"}
    return [name for name in names if name.isidentifier() and name not in taken]


def _import_jax(name: str, fromlist: tuple[str, ...]) -> Any:
    """Return the result of `import name`, or of `from name import attribute`."""
    apply_xla_flags()
    try:
        result = look_up_jax(name)
    except MissingNameError:
        raise UncoveredImport(with_location(explain_uncovered(name)), name=name) from None
    for each in fromlist:
        if each != "*" and not hasattr(result, each):
            raise UncoveredImport(with_location(explain_uncovered(f"{name}.{each}")), name=name)
    if "*" in fromlist:
        result.__all__ = [each for each in dir(result) if hasattr(result, each)]
    return result if fromlist else JAX_MODULE


class _ProgramFinder(MetaPathFinder):
    """Finds the modules of a program and loads them with the program's builtins."""

    def __init__(self, names: frozenset[str], inside: dict[str, Any]) -> None:
        self._names, self._builtins = names, inside

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] not in self._names:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _ProgramLoader(spec.loader.name, spec.loader.path, self._builtins)
        return spec


class _ProgramLoader(SourceFileLoader):
    """Loads a module with private builtins."""

    def __init__(self, name: str, path: str, inside: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = inside

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)


def _execute_forwarded(code: CodeType, namespace: dict[str, Any]) -> None:
    Program().execute(code, namespace)


ModuleFacade.execute = staticmethod(_execute_forwarded)
