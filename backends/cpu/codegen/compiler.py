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
from typing import final

import llvmlite.binding as binding

from shardir.backends.cpu.codegen import object_cache
from shardir.backends.cpu.codegen.cache_keys import cache_key
from shardir.backends.cpu.codegen.emission import BackgroundCompilation, emit, make_target_machine
from shardir.backends.cpu.codegen.llvm_threads import run_on_llvm_threads
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.fork_handlers import register_fork_lock

_names = count()
LINK_LOCK = RLock()
"""Held while code is linked, and while the table of kernels changes."""
register_fork_lock(LINK_LOCK.acquire, LINK_LOCK.release)
_background_compilations: list[BackgroundCompilation] = []
_linked_modules: list[object] = []
"""Code must stay in memory as long as any of its addresses may be called: forever."""


@final
class NativeLibrary:
    """Compiled code in memory."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self._addresses = dict(addresses)

    def __getitem__(self, name: str) -> int:
        """Return the address of a function; raise `KeyError` for a name that was not exported."""
        return self._addresses[name]


def compile(
    machine: HostDescription,
    text: str,
    exports: list[str],
    imports: Mapping[str, int] | None = None,
) -> NativeLibrary:
    """Compile a module for a machine, or load its object code from the cache.

    `exports` names the functions whose addresses are returned, `imports` maps the functions that
    the module declares and does not define (intrinsics aside) to addresses. Raises `RuntimeError`
    with LLVM's message if the text is not a valid module.
    """
    return NativeLibrary(link([_load_or_emit(text, machine)], exports, imports or {}))


def compile_cached(
    machine: HostDescription,
    name: str,
    text: Callable[[], str],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
) -> NativeLibrary:
    """Load code by name from the cache, or compile the result of `text`."""
    library = load_cached(machine, name, exports, imports)
    if library is None:
        (result,) = emit([[text()]], machine)
        library = save_and_link(machine, name, result, exports, imports)
    return library


def save_and_link(
    machine: HostDescription,
    name: str,
    code: bytes,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
) -> NativeLibrary:
    """Save object code under a name in the cache, and link it."""
    object_cache.save(cache_key(machine, "module", name), code)
    return NativeLibrary(link([code], exports, imports or {}))


def load_cached(
    machine: HostDescription,
    name: str,
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
) -> NativeLibrary | None:
    """Return the library that was saved under a name; `None` if there is none."""
    code = object_cache.load(cache_key(machine, "module", name))
    return None if code is None else NativeLibrary(link([code], exports, imports or {}))


def is_on_disk(machine: HostDescription, name: str) -> bool:
    """Return whether the cache most likely holds code of this name."""
    return object_cache.contains(cache_key(machine, "module", name))


def start_compilation(texts: Sequence[str], machine: HostDescription) -> BackgroundCompilation:
    """Start to compile modules while the caller goes on; raise as `emit` does."""
    begun = BackgroundCompilation(texts, machine)
    _background_compilations[:] = [
        *(each for each in _background_compilations if not each.has_ended),
        begun,
    ]
    return begun


def count_running_compilations() -> int:
    """Return the number of background compilations that have not ended."""
    return sum(not each.has_ended for each in _background_compilations)


def link(
    codes: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> dict[str, int]:
    """Link object code into memory; return the addresses of the exported functions."""
    with LINK_LOCK:
        (addresses,) = run_on_llvm_threads([partial(_link_objects, codes, exports, imports)])
        return addresses


def _link_objects(
    codes: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> dict[str, int]:
    jit = _create_lljit()
    builder = binding.JITLibraryBuilder()
    for code in codes:
        builder = builder.add_object_img(code)
    for name, address in imports.items():
        builder = builder.import_symbol(name, address)
    for name in exports:
        builder = builder.export_symbol(name)
    tracker = builder.add_current_process().link(jit, f"shardir{next(_names)}")
    _linked_modules.append(tracker)
    return {name: tracker[name] for name in exports}


def _load_or_emit(text: str, machine: HostDescription) -> bytes:
    words = "\n".join((machine.version, machine.triple, machine.cpu, machine.features, text))
    key = hashlib.sha256(words.encode()).hexdigest()
    found = object_cache.load(key)
    if found is not None:
        return found
    (result,) = emit([[text]], machine)
    object_cache.save(key, result)
    return result


_lljit: object = None


def _create_lljit() -> object:
    global _lljit
    if _lljit is None:
        machine = host_machine()  # Code is linked into this process.
        # RuntimeDyld may place the sections of an object too far apart for the small code model.
        _lljit = binding.create_lljit_compiler(make_target_machine(machine), use_jit_link=True)
        # Some finalizers call compiled code, possibly after all modules are torn down.
        for each in (_lljit, _linked_modules):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    return _lljit
