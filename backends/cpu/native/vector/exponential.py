"""Exponentials."""

from collections.abc import Callable

from shardir.backends.cpu.native.llvm.text import Value

FUNCTIONS: dict[str, tuple[int, Callable[..., Value]]] = {}
