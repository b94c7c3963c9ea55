"""`importlib` and `sys` as the modules of a program see them: both find shardir as `jax`."""

import importlib
import sys
from collections.abc import Callable, Iterator, MutableMapping
from importlib.util import resolve_name
from types import ModuleType
from typing import Any

Import = Callable[..., Any]
"""A function like `__import__`."""

Reload = Callable[[ModuleType], ModuleType]
"""A function like `importlib.reload`."""


class ImportlibFacade(ModuleType):
    """`importlib`, whose functions import and reload the modules of a program."""

    def __init__(self, importer: Import, reloader: Reload) -> None:
        super().__init__("importlib", importlib.__doc__)
        self.__dict__.update(__path__=importlib.__path__, __import__=importer, _importer=importer)
        self.reload = reloader

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)

    def import_module(self, name: str, package: str | None = None) -> Any:
        """Import a module, relative to `package` if the name begins with a dot."""
        full = resolve_name(name, package)
        return self._importer(full, None, None, ("__name__",), 0)


class SysFacade(ModuleType):
    """`sys`, whose `modules` contain `jax` also if JAX has not been imported."""

    def __init__(self, jax: ModuleType) -> None:
        super().__init__("sys", sys.__doc__)
        self.__dict__["modules"] = _Modules(jax)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(sys, name, value)


class _Modules(MutableMapping[str, Any]):
    """The imported modules, with another `jax`."""

    def __init__(self, jax: ModuleType) -> None:
        self._jax = jax

    def __getitem__(self, name: str) -> Any:
        return self._jax if name == "jax" else sys.modules[name]

    def __setitem__(self, name: str, module: Any) -> None:
        sys.modules[name] = module

    def __delitem__(self, name: str) -> None:
        del sys.modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter({"jax": None, **sys.modules})

    def __len__(self) -> int:
        return len({"jax": None, **sys.modules})
