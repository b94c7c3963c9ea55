"""The addresses of functions that kernels import: from LAPACK, disk, or the vector math library.

The vector math library is imported when the first kernel needs a function that is not on disk.
"""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from shardir.backends.cpu.codegen.compiler import (
    is_on_disk,
    load_cached,
    save_and_link,
    start_compilation,
)
from shardir.backends.cpu.codegen.emission import BackgroundCompilation
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.numpy.lapack_routines import LAPACK_SYMBOL_PREFIX, routine_addresses as lapack

_SymbolKey = tuple[HostDescription, str]
"""The machine that a function is compiled for, and its symbol."""

_symbol_addresses: dict[_SymbolKey, int] = {}
_running_compilations: dict[_SymbolKey, BackgroundCompilation] = {}
"""The functions that are being compiled in the background."""


def start_compiling_symbols(symbols: Iterable[str], machine: HostDescription) -> None:
    """Start to compile functions that `symbol_addresses` will need, while the caller goes on."""
    for symbol in dict.fromkeys(symbols):
        if symbol.startswith(LAPACK_SYMBOL_PREFIX):
            continue
        key = machine, symbol
        if (
            key not in _symbol_addresses
            and key not in _running_compilations
            and not is_on_disk(machine, symbol)
        ):
            text = _math_library().function_text(symbol, machine)
            if text is not None:
                _running_compilations[key] = start_compilation([text], machine)


def symbol_addresses(symbols: Iterable[str], machine: HostDescription) -> dict[str, int]:
    """Return the addresses of symbols, of code for a machine; raise `KeyError` for one that no
    library provides."""
    found = {symbol: _load_symbol(symbol, machine) for symbol in dict.fromkeys(symbols)}
    left = [symbol for symbol, address in found.items() if address is None]
    if left:
        raise KeyError(f"no library of the CPU backend provides {', '.join(left)}")
    return {symbol: address for symbol, address in found.items() if address is not None}


def _load_symbol(symbol: str, machine: HostDescription) -> int | None:
    if symbol.startswith(LAPACK_SYMBOL_PREFIX):
        return lapack([symbol]).get(symbol)
    key = machine, symbol
    if key not in _symbol_addresses:
        begun = _running_compilations.pop(key, None)
        library = (
            load_cached(machine, symbol, [symbol])
            if begun is None
            else save_and_link(machine, symbol, begun.code(), [symbol])
        )
        if library is None:
            result: dict[str, int] = _math_library().function_addresses(machine, [symbol])
            return result.get(symbol)
        _symbol_addresses[key] = library[symbol]
    return _symbol_addresses[key]


def _math_library() -> ModuleType:
    return import_module("shardir.backends.cpu.kernels.math.library")
