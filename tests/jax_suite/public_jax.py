"""JAX restricted to its public names: another library with the complete interface of JAX.

Another library with JAX's interface could pass the tests that pass here, so these tests are
counted.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class PublicModule(ModuleType):
    """The public names of a module of JAX, under another module name."""

    def __init__(self, name: str, real: ModuleType) -> None:
        super().__init__(name)
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            value = getattr(self._real, name)
        except AttributeError:
            try:
                value = import_module(f"{self._real.__name__}.{name}")
            except ImportError:
                raise AttributeError(name) from None
        if isinstance(value, ModuleType) and "_src" not in value.__name__:
            return PublicModule(f"{self.__name__}.{name}", value)
        return value


def public_jax() -> PublicModule:
    """Return JAX as a library that hides its internals."""
    return PublicModule("stand_in", import_module("jax"))
