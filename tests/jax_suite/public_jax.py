"""JAX through its public names alone: a foreign library that has every one of them.

What passes here is what another library with JAX's interface could pass, and so what counts.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class StandIn(ModuleType):
    """The public face of a module of JAX, under another name."""

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
            return StandIn(f"{self.__name__}.{name}", value)
        return value


def stand_in() -> StandIn:
    """JAX as a library that hides its internals."""
    return StandIn("stand_in", import_module("jax"))
