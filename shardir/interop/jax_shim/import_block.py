"""`shardir_as_jax`: a context in which the import statements of one module import shardir."""

import builtins
import sys
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from threading import Lock
from types import TracebackType
from typing import Any

from shardir.interop.jax_shim.jax_config import program_settings
from shardir.interop.jax_shim.program import Program

_open_contexts: ContextVar[tuple[tuple[dict[str, Any], Program], ...]] = ContextVar(
    "shardir_in_place_of_jax", default=()
)
"""The namespaces of modules with an open context, and the program of each."""

_lock = Lock()
_num_open_contexts = [0]
_original = [builtins.__import__]


class shardir_as_jax:
    """A context in which `import jax` imports shardir, also in the modules `modules`.

        with shardir_as_jax("training"):
            import jax.numpy as jnp
            import training

    It affects only import statements of the module that contains the block, not those of functions
    that it calls, of other threads, or after the block. Other threads must not import its modules,
    or libraries that import JAX, during an import of the block, because they may find those of the
    program in `sys.modules`. Each block is a program of its own, which loads the libraries that
    import JAX anew: their classes differ between blocks. The named modules are loaded anew and use
    shardir permanently; their entries in `sys.modules` are restored. Changes of settings inside the
    block end with it; `settings` apply inside it. Integers in indices that are out of range follow
    JAX's rules inside it, unless `check_static_indices=True` is one of them.
    """

    def __init__(self, *modules: str, **settings: object) -> None:
        self._program = Program(modules)
        self._settings = settings
        self._block: AbstractContextManager[None] | None = None
        self._token: Token[Any] | None = None

    def __enter__(self) -> Program:
        self._block = program_settings(self._settings)
        self._block.__enter__()
        scope = sys._getframe(1).f_globals
        self._token = _open_contexts.set((*_open_contexts.get(), (scope, self._program)))
        with _lock:
            if not _num_open_contexts[0]:
                _original[0] = builtins.__import__
                vars(builtins)["__import__"] = _import
            _num_open_contexts[0] += 1
        return self._program

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with _lock:
            _num_open_contexts[0] -= 1
            if not _num_open_contexts[0] and builtins.__import__ is _import:
                vars(builtins)["__import__"] = _original[0]
        assert self._token is not None
        assert self._block is not None
        _open_contexts.reset(self._token)
        self._block.__exit__(kind, error, traceback)


def _import(
    name: str, scope: Any = None, local: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    """Import a module for a namespace with an open context, otherwise with the original
    `__import__`.
    """
    for namespace, program in reversed(_open_contexts.get()):
        if scope is namespace:
            return program.import_module(name, scope, local, fromlist, level)
    return _original[0](name, scope, local, fromlist, level)
