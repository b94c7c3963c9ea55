"""The addresses of functions that kernels import: from LAPACK, disk, or the vector math library.

The vector math library is imported when the first kernel needs a function that is not on disk.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from shardir.backends.cpu.native.llvm.compiler import emit_ahead, is_on_disk, keep, known
from shardir.backends.cpu.native.llvm.emission import Ahead
from shardir.backends.cpu.routines import PREFIX, addresses as lapack

_loaded: dict[str, int] = {}
_begun: dict[str, Ahead] = {}
"""By symbol, what is being compiled in the background."""


def begin(symbols: Iterable[str]) -> None:
    """Start to compile functions that `symbol_addresses` will need, while the caller goes on."""
    for symbol in dict.fromkeys(symbols):
        if symbol.startswith(PREFIX):
            continue
        if symbol not in _loaded and symbol not in _begun and not is_on_disk(symbol):
            text = _library().text(symbol)
            if text is not None:
                _begun[symbol] = emit_ahead([text])


def addresses(symbols: Iterable[str]) -> dict[str, int]:
    """Return the addresses of symbols; raise `KeyError` for one that no library provides."""
    found = {symbol: _address(symbol) for symbol in dict.fromkeys(symbols)}
    left = [symbol for symbol, address in found.items() if address is None]
    if left:
        raise KeyError(f"no library of the CPU backend provides {', '.join(left)}")
    return {symbol: address for symbol, address in found.items() if address is not None}


def _address(symbol: str) -> int | None:
    if symbol.startswith(PREFIX):
        return lapack([symbol]).get(symbol)
    if symbol not in _loaded:
        begun = _begun.pop(symbol, None)
        library = known(symbol, [symbol]) if begun is None else keep(symbol, begun.code(), [symbol])
        if library is None:
            result: dict[str, int] = _library().addresses([symbol])
            return result.get(symbol)
        _loaded[symbol] = library[symbol]
    return _loaded[symbol]


def _library() -> Any:
    return import_module("shardir.backends.cpu.native.vector.library")
