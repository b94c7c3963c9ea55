"""Where the functions are that kernels import: on disk, or asked of whoever provides them.

A provider is a function that takes symbols and gives the addresses of those it knows.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module

from shardir.backends.cpu.native.llvm.compiler import known

Provider = Callable[[Iterable[str]], Mapping[str, int]]

STANDARD = ("shardir.backends.cpu.native.vector.library",)
"""Modules whose `addresses` is a provider; imported when the first kernel needs a symbol."""

_providers: list[Provider] = []
_loaded: dict[str, int] = {}
"""What was on disk, so that the module that could make it is not even imported."""


def register(provider: Provider) -> Provider:
    """Ask a provider too, after those that came before it. Returns it, so that it decorates."""
    _providers.append(provider)
    return provider


def addresses(symbols: Iterable[str]) -> dict[str, int]:
    """Where the functions are; raises `KeyError` for a symbol that no provider knows."""
    left = list(dict.fromkeys(symbols))
    if not left:
        return {}
    found: dict[str, int] = {}
    for symbol in left:
        if symbol not in _loaded and (library := known(symbol, [symbol])) is not None:
            _loaded[symbol] = library[symbol]
        if symbol in _loaded:
            found[symbol] = _loaded[symbol]
    left = [symbol for symbol in left if symbol not in found]
    if not left:
        return found
    for provider in [*(import_module(name).addresses for name in STANDARD), *_providers]:
        found.update(provider(left))
        left = [symbol for symbol in left if symbol not in found]
    if left:
        raise KeyError(f"no library of the CPU backend provides {', '.join(left)}")
    return found
