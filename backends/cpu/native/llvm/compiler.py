"""Compile the text of a module and return the addresses of its functions.

Object code (`emission`) is cached on disk (`object_cache`), so that the second process of a program
only loads it.
"""

import ctypes
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from threading import RLock
from typing import Any, final

import llvmlite.binding as binding

from shardir.backends.cpu.native.llvm import object_cache
from shardir.backends.cpu.native.llvm.emission import Ahead, emit, target_of
from shardir.backends.cpu.native.llvm.naming import key_of
from shardir.backends.cpu.native.llvm.target import Machine, architecture, host
from shardir.backends.cpu.native.llvm.threads import done_apart
from shardir.backends.forking import held_by_forks

_names = count()
lock = RLock()
"""Held while code is linked, and while the table of kernels changes."""
held_by_forks(lock.acquire, lock.release)
_ahead: list[Ahead] = []
_kept: list[Any] = []
"""Code must stay in memory as long as any of its addresses may be called: forever."""


@final
class Library:
    """Machine code in memory."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self._addresses = dict(addresses)

    def __getitem__(self, name: str) -> int:
        """Return the address of a function; raise `KeyError` for a name that was not exported."""
        return self._addresses[name]


def compile(text: str, exports: list[str], imports: Mapping[str, int] | None = None) -> Library:
    """Compile a module, or load its object code from the cache.

    `exports` names the functions whose addresses are returned, `imports` maps the functions that
    the module declares and does not define (intrinsics aside) to addresses. Raises `RuntimeError`
    with LLVM's message if the text is not a valid module.
    """
    return Library(link([_object(text, host())], exports, imports or {}))


def named(
    name: str,
    text: Callable[[], str],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    unoptimized: bool = False,
) -> Library:
    """Compile a text, or load its code by name from the cache; call `text` only if it is missing.

    `unoptimized` code is compiled faster and runs slower.
    """
    library = known(name, exports, imports)
    if library is None:
        (result,) = emit([[text()]], unoptimized)
        library = keep(name, result, exports, imports)
    return library


def keep(
    name: str, code: bytes, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Save object code under a name in the cache, and link it."""
    object_cache.save(key_of("module", name), code)
    return Library(link([code], exports, imports or {}))


def known(
    name: str, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library | None:
    """Return the library that `named` saved under a name; `None` if there is none."""
    code = object_cache.load(key_of("module", name))
    return None if code is None else Library(link([code], exports, imports or {}))


def is_on_disk(name: str) -> bool:
    """Return whether the cache most likely holds code of this name."""
    return object_cache.holds(key_of("module", name))


def emit_ahead(texts: Sequence[str]) -> Ahead:
    """Start to compile modules while the caller goes on; raise as `emit` does."""
    begun = Ahead(texts)
    _ahead[:] = [*(each for each in _ahead if not each.ended), begun]
    return begun


def running_ahead() -> int:
    """Return the number of background compilations that have not ended."""
    return sum(not each.ended for each in _ahead)


def link(
    codes: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> dict[str, int]:
    """Link object code into memory; return the addresses of the exported functions."""
    with lock:
        (addresses,) = done_apart([partial(_linked, codes, exports, imports)])
        return addresses


def _linked(
    codes: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> dict[str, int]:
    jit = _jit()
    builder = binding.JITLibraryBuilder()
    for code in codes:
        builder = builder.add_object_img(code)
    for name, address in imports.items():
        builder = builder.import_symbol(name, address)
    for name in exports:
        builder = builder.export_symbol(name)
    tracker = builder.add_current_process().link(jit, f"shardir{next(_names)}")
    _kept.append(tracker)
    return {name: tracker[name] for name in exports}


def _object(text: str, machine: Machine) -> bytes:
    words = "\n".join((machine.version, machine.triple, machine.cpu, machine.features, text))
    key = hashlib.sha256(words.encode()).hexdigest()
    found = object_cache.load(key)
    if found is not None:
        return found
    (result,) = emit([[text]])
    object_cache.save(key, result)
    return result


_compiler: Any = None


def _jit() -> Any:
    global _compiler
    if _compiler is None:
        machine = host()
        # RuntimeDyld may place the sections of an object too far apart for ARM's relocations.
        together = architecture(machine.triple) == "aarch64"
        _compiler = binding.create_lljit_compiler(target_of(machine), use_jit_link=together)
        # Some finalizers call machine code, possibly after all modules are torn down.
        for each in (_compiler, _kept):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    return _compiler
