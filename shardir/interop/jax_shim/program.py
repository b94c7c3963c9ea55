"""Programs whose `import jax` imports shardir, by means of a private `__import__`.

A frame takes `__import__` from the builtins of its module. The modules of a program have a copy of
the builtins with another `__import__`, so other code is unaffected, and later imports in the
program's functions behave in the same way. Installed libraries that import JAX are loaded anew as
modules of the program. The program's modules are kept out of `sys.modules`, because the same file
may also be loaded there with JAX; they are there while the program imports a module, and while
`run_script` runs.
"""

import builtins
import importlib
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from pathlib import Path
from threading import RLock
from types import CodeType, ModuleType
from typing import Any

from shardir.frontend.source_locations import with_location
from shardir.interop.jax_shim.import_facades import ImportlibFacade, SysFacade
from shardir.interop.jax_shim.internals import importing_library
from shardir.interop.jax_shim.jax_config import apply_xla_flags
from shardir.interop.jax_shim.libraries import imports_jax
from shardir.interop.jax_shim.module_facade import (
    MissingNameError,
    ModuleFacade,
    jax_module,
    look_up_jax,
)
from shardir.interop.jax_shim.suggestions import UncoveredImport, explain_uncovered

_lock = RLock()


class Program:
    """Modules and code that import shardir under the name `jax`.

    `modules` are the names of its modules and packages; all modules in `folder` also belong to it,
    and so do the installed libraries that import JAX.
    """

    def __init__(self, modules: Sequence[str] = (), folder: str | Path | None = None) -> None:
        self._kept: dict[str, ModuleType] = {}
        self._aside: dict[str, ModuleType] = {}
        self._depth = 0
        self._is_running = False
        self._builtins = self._make_builtins("")
        names = [*modules, *_module_names_in(folder)]
        self._builtins_of_package = dict.fromkeys(names, self._builtins)

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
        return self._import("", {}, name, scope, local, fromlist, level)

    def _make_builtins(self, library: str) -> dict[str, Any]:
        """Return the builtins of the modules of a library, or of the program itself."""
        facades: dict[str, ModuleType] = {}
        importer = partial(self._import, library, facades)
        facades["importlib"] = ImportlibFacade(importer, self._reload)
        if library:
            facades["sys"] = SysFacade(jax_module(library))
        return {**vars(builtins), "__import__": importer}

    def _import(
        self,
        library: str,
        facades: dict[str, ModuleType],
        name: str,
        scope: Any = None,
        local: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        """Implement `__import__` for the modules of a library, or of the program itself."""
        top = name.partition(".")[0]
        if level == 0 and top == "jax":
            return _import_jax(name, tuple(fromlist or ()), library)
        if level:
            package = str((scope or {}).get("__package__") or "")
            top = package.partition(".")[0]
            full = resolve_name("." * level + name, package) if package else name
        else:
            full = name
        loaded = None if self._depth else self._kept.get(full)
        names = tuple(fromlist or ())
        if loaded is not None and "*" not in names and all(hasattr(loaded, n) for n in names):
            # An exchange of the modules in `sys.modules` takes milliseconds.
            return loaded if names else self._kept[top]
        with self.modules_in_sys() if self._contains(top) else nullcontext():
            found = importlib.__import__(name, scope, local, fromlist, level)
        return facades.get(found.__name__, found) if level == 0 else found

    def _reload(self, module: ModuleType) -> ModuleType:
        """Implement `importlib.reload`; modules with JAX's names, `importlib` and `sys` have no
        code that runs again."""
        if isinstance(module, (ModuleFacade, ImportlibFacade, SysFacade)):
            return module
        is_own = self._contains(getattr(module, "__name__", "").partition(".")[0])
        with self.modules_in_sys() if is_own else nullcontext():
            return importlib.reload(module)

    def _contains(self, package: str) -> bool:
        """Return whether a top-level package belongs to the program."""
        if package in self._builtins_of_package:
            return True
        if not imports_jax(package):
            return False
        with _lock:
            self._builtins_of_package[package] = self._make_builtins(package)
            if self._depth:
                self._aside.update(_remove_modules({package}))
        return True

    @contextmanager
    def modules_in_sys(self) -> Iterator[None]:
        """Put the program's modules into `sys.modules`, and load new ones for the program.

        The modules stay there while `run_script` runs, so that its threads import in parallel.
        Otherwise other imports of programs wait.
        """
        if self._is_running:
            yield
            return
        with _lock:
            self._insert_modules()
            try:
                yield
            finally:
                self._remove_modules()

    @contextmanager
    def running(self) -> Iterator[None]:
        """A context in which the program's modules are in `sys.modules` for all threads."""
        with _lock:
            self._insert_modules()
            self._is_running = True
        try:
            yield
        finally:
            with _lock:
                self._is_running = False
                self._remove_modules()

    def _insert_modules(self) -> None:
        """Put the program's modules into `sys.modules` until `_remove_modules` is called."""
        with _lock:
            self._depth += 1
            if self._depth == 1:
                self._aside = _remove_modules(self._builtins_of_package)
                sys.modules.update(self._kept)
                self._finder = _ProgramFinder(self._builtins_of_package)
                sys.meta_path.insert(0, self._finder)

    def _remove_modules(self) -> None:
        """Remove the program's modules from `sys.modules`, and restore those of other code."""
        with _lock:
            self._depth -= 1
            if self._depth == 0:
                sys.meta_path.remove(self._finder)
                self._kept = _remove_modules(self._builtins_of_package)
                sys.modules.update(self._aside)


def _remove_modules(packages: Collection[str]) -> dict[str, ModuleType]:
    """Remove the modules of some packages from `sys.modules` and return them.

    C extensions remain: they do not import JAX, and most cannot be loaded twice.
    """
    names = [
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] in packages
        and not isinstance(getattr(module, "__loader__", None), ExtensionFileLoader)
    ]
    return {name: sys.modules.pop(name) for name in names}


def _module_names_in(folder: str | Path | None) -> list[str]:
    """Return the modules and packages in a folder, except those of the standard library."""
    if folder is None:
        return []
    files = sorted(Path(folder).glob("*.py"))
    packages = [each.parent for each in sorted(Path(folder).glob("*/*.py"))]
    names = dict.fromkeys([*(file.stem for file in files), *(each.name for each in packages)])
    taken = sys.stdlib_module_names | {"shardir", "jax"}
    return [name for name in names if name.isidentifier() and name not in taken]


def _import_jax(name: str, fromlist: tuple[str, ...], library: str) -> Any:
    """Return the result of `import name`, or of `from name import attribute`."""
    apply_xla_flags()
    try:
        result = look_up_jax(name, library)
    except MissingNameError:
        raise UncoveredImport(with_location(explain_uncovered(name)), name=name) from None
    for each in fromlist:
        if each != "*" and not hasattr(result, each):
            raise UncoveredImport(with_location(explain_uncovered(f"{name}.{each}")), name=name)
    if "*" in fromlist:
        result.__all__ = [each for each in dir(result) if hasattr(result, each)]
    return result if fromlist else jax_module(library)


class _ProgramFinder(MetaPathFinder):
    """Finds the modules of a program and loads them with the program's builtins."""

    def __init__(self, builtins_of_package: dict[str, dict[str, Any]]) -> None:
        self._builtins_of_package = builtins_of_package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        inside = self._builtins_of_package.get(name.partition(".")[0])
        if inside is None:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _ProgramLoader(spec.loader.name, spec.loader.path, inside)
        return spec


class _ProgramLoader(SourceFileLoader):
    """Loads a module with private builtins."""

    def __init__(self, name: str, path: str, inside: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = inside

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._builtins
        with importing_library():
            super().exec_module(module)


def _execute_forwarded(code: CodeType, namespace: dict[str, Any]) -> None:
    Program().execute(code, namespace)


ModuleFacade.execute = staticmethod(_execute_forwarded)
