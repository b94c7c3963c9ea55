"""From the text of a module to addresses of machine code.

Object code (`emission`) is kept on disk (`object_cache`), so that a program's second process only
loads it.
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
"""Held by who links, and by who changes what is known of kernels."""
held_by_forks(lock.acquire, lock.release)
_ahead: list[Ahead] = []
_kept: list[Any] = []
"""Code must stay where it is as long as any address of it may be called: for ever."""


@final
class Library:
    """Machine code in memory."""

    def __init__(self, addresses: Mapping[str, int]) -> None:
        self._addresses = dict(addresses)

    def __getitem__(self, name: str) -> int:
        """The address of a function; raises `KeyError` for a name that was not asked for."""
        return self._addresses[name]


def compile(text: str, exports: list[str], imports: Mapping[str, int] | None = None) -> Library:
    """Compile a module, or load what an earlier process made of it.

    `exports` are the functions whose addresses are wanted, `imports` the addresses of those that
    the module declares and does not define (intrinsics aside). Raises `RuntimeError` with LLVM's
    words when the text is no module.
    """
    return Library(link([_object(text, host())], exports, imports or {}))


def named(
    name: str,
    text: Callable[[], str],
    exports: Sequence[str],
    imports: Mapping[str, int] | None = None,
    haste: bool = False,
) -> Library:
    """`compile` of a text that is made only where the code of this name is not on disk.

    What is made in `haste` is there soon, and runs longer.
    """
    found = known(name, exports, imports)
    if found is None:
        (made,) = emit([[text()]], haste)
        found = keep(name, made, exports, imports)
    return found


def keep(
    name: str, code: bytes, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library:
    """Keep object code on disk, where `named` finds it by its name, and bring it into memory."""
    object_cache.save(key_of("module", name), code)
    return Library(link([code], exports, imports or {}))


def known(
    name: str, exports: Sequence[str], imports: Mapping[str, int] | None = None
) -> Library | None:
    """What `named` made at an earlier time; `None`: nothing."""
    code = object_cache.load(key_of("module", name))
    return None if code is None else Library(link([code], exports, imports or {}))


def is_on_disk(name: str) -> bool:
    """Whether `named` will most likely find what it is asked for."""
    return object_cache.holds(key_of("module", name))


def emit_ahead(texts: Sequence[str]) -> Ahead:
    """Begin to make the object code of modules, while the caller goes on; raises as `emit`."""
    begun = Ahead(texts)
    _ahead[:] = [*(each for each in _ahead if not each.ended), begun]
    return begun


def running_ahead() -> int:
    """How many of those begun have not ended."""
    return sum(not each.ended for each in _ahead)


def link(
    codes: Sequence[bytes], exports: Sequence[str], imports: Mapping[str, int]
) -> dict[str, int]:
    """Bring object code into memory; the addresses of the exported functions."""
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
    (made,) = emit([[text]])
    object_cache.save(key, made)
    return made


_compiler: Any = None


def _jit() -> Any:
    global _compiler
    if _compiler is None:
        machine = host()
        # The older linker may lay the parts of one object too far from each other for ARM.
        together = architecture(machine.triple) == "aarch64"
        _compiler = binding.create_lljit_compiler(target_of(machine), use_jit_link=together)
        # Some objects end by machine code, and may do so after all modules.
        for each in (_compiler, _kept):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    return _compiler
