"""The table of kernel addresses: each kernel is compiled once per process, and once per machine.

New kernels of a program are compiled several to a module, which takes half the time of one module
each, and on all cores. On disk a module is found by the names of its kernels, so that programs
share kernels, and the text of a kernel is not generated if its code exists.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardir.backends.cpu.codegen import imported_symbols, object_cache
from shardir.backends.cpu.codegen.cache_keys import cache_key
from shardir.backends.cpu.codegen.compiler import (
    LINK_LOCK,
    count_running_compilations,
    link,
    start_compilation,
)
from shardir.backends.cpu.codegen.emission import BackgroundCompilation, emit
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.threads.workers import allowed_worker_count
from shardir.display.compilation_progress import report

MAX_KERNELS_PER_MODULE = 16
"""Kernels per module: more save no time, and would be loaded by programs that need few of them."""
MIN_MODULE_CHARACTERS = 20_000
"""Characters of text from which a module is worth a thread: about 20 ms of work."""


_KernelText = tuple[Kernel, str]

_kernel_addresses: dict[str, int] = {}
_pending_texts: dict[str, _KernelText] = {}
"""Texts of kernels that wait for a module that is worth a thread."""
_running_compilations: dict[str, "_KernelModule"] = {}
"""By kernel name, the module that is being compiled in the background."""


@dataclass
class _KernelModule:
    """Kernels that are compiled as one module."""

    kernels: list[_KernelText]
    code: BackgroundCompilation


def start_compiling(kernel: Kernel) -> None:
    """Start to compile a kernel that `kernel_addresses` will need, while the caller goes on.

    Does nothing if no core is available.
    """
    name = kernel.name
    with LINK_LOCK:
        if any(
            name in known for known in (_kernel_addresses, _running_compilations, _pending_texts)
        ):
            return
        cores = allowed_worker_count()
        if cores < 2 or object_cache.contains(cache_key("kernel", name)):
            return
        _pending_texts[name] = kernel, kernel.text()
        enough = sum(len(text) for _, text in _pending_texts.values()) >= MIN_MODULE_CHARACTERS
        if enough and count_running_compilations() < cores - 1:
            written = list(_pending_texts.values())[:MAX_KERNELS_PER_MODULE]
            for each, _ in written:
                del _pending_texts[each.name]
            share = _KernelModule(written, start_compilation([text for _, text in written]))
            _running_compilations.update((each.name, share) for each, _ in written)


def kernel_addresses(kernels: Iterable[Kernel]) -> dict[str, int]:
    """Return the address of each kernel by name; load or compile missing ones."""
    requested = {kernel.name: kernel for kernel in kernels}
    with LINK_LOCK:
        missing = [kernel for name, kernel in requested.items() if name not in _kernel_addresses]
        running = {
            id(_running_compilations[k.name]): _running_compilations[k.name]
            for k in missing
            if k.name in _running_compilations
        }
        missing = [kernel for kernel in missing if kernel.name not in _running_compilations]
        if missing:
            missing = _load_from_disk(missing)
        left = [*missing, *(kernel for share in running.values() for kernel, _ in share.kernels)]
        imported_symbols.start_compiling_symbols(
            symbol for kernel in left for symbol in kernel.imports
        )
    cores = allowed_worker_count()
    step = MAX_KERNELS_PER_MODULE * cores
    for start in range(0, len(missing), step):
        with LINK_LOCK:
            # Another thread may have compiled some of them meanwhile.
            left = [k for k in missing[start : start + step] if k.name not in _kernel_addresses]
            if left:
                _compile_modules(left, cores)
        # Progress callbacks run arbitrary code, and so without the lock.
        report("kernels", min(start + step, len(missing)), len(missing))
    with LINK_LOCK:
        _await_compilations(running.values())
    return {name: _kernel_addresses[name] for name in requested}


def _compile_modules(kernels: Sequence[Kernel], cores: int) -> None:
    """Compile kernels as one module for each core, and save them on disk."""
    written = [
        _pending_texts.pop(k.name) if k.name in _pending_texts else (k, k.text()) for k in kernels
    ]
    shares = _split_into_modules(written, cores)
    codes = emit([[text for _, text in share] for share in shares])
    for share, code in zip(shares, codes, strict=True):
        _save_and_link([kernel for kernel, _ in share], code)


def _await_compilations(shares: Iterable[_KernelModule]) -> None:
    """Wait for background compilations, unless another thread has already done so."""
    for share in shares:
        names = [kernel.name for kernel, _ in share.kernels]
        if all(_running_compilations.pop(name, None) is share for name in names):
            _save_and_link([kernel for kernel, _ in share.kernels], share.code.code())


def _save_and_link(kernels: Sequence[Kernel], code: bytes) -> None:
    """Save the code of kernels on disk, and link it."""
    names = [kernel.name for kernel in kernels]
    imports = list(dict.fromkeys(symbol for kernel in kernels for symbol in kernel.imports))
    group = cache_key("group", *names)
    object_cache.save(group, code)
    entry = json.dumps({"group": group, "names": names, "imports": imports}).encode()
    for name in names:
        object_cache.save(cache_key("kernel", name), entry)
    _kernel_addresses.update(link([code], names, imported_symbols.symbol_addresses(imports)))


def _split_into_modules(written: Sequence[_KernelText], cores: int) -> list[list[_KernelText]]:
    """Split kernels into modules of about equal text size, at most one for each core."""
    total = sum(len(text) for _, text in written)
    count = max(
        1, min(cores, total // MIN_MODULE_CHARACTERS), -(-len(written) // MAX_KERNELS_PER_MODULE)
    )
    shares: list[list[_KernelText]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in sorted(written, key=lambda each: -len(each[1])):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(each)
        sizes[smallest] += len(each[1])
    return [share for share in shares if share]


def _load_from_disk(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Load the kernels that are on disk; return the others."""
    groups: dict[str, dict[str, list[str]]] = {}
    for kernel in kernels:
        entry = _read_index_entry(cache_key("kernel", kernel.name), kernel.name)
        if entry is not None:
            groups.setdefault(entry["group"], entry)
    together = _LinkBatch()
    for group, entry in groups.items():
        code = object_cache.load(group)
        if code is not None:
            together.add(code, entry["names"], entry["imports"])
    together.link()
    return [kernel for kernel in kernels if kernel.name not in _kernel_addresses]


def _read_index_entry(key: str, name: str) -> dict[str, Any] | None:
    """Read the index entry of a kernel; remove an invalid one and return None."""
    found = object_cache.load(key)
    if found is None:
        return None
    try:
        entry: dict[str, Any] = json.loads(found)
        names, imports = entry["names"], entry["imports"]
        if name in names and entry["group"] == cache_key("group", *names) and _are_names(imports):
            return entry
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    object_cache.discard(key)
    return None


def _are_names(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


class _LinkBatch:
    """Modules to be linked in one step, which takes a third of the time of linking each."""

    def __init__(self) -> None:
        self._codes: list[bytes] = []
        self._names: dict[str, None] = {}
        self._imports: dict[str, None] = {}

    def add(self, code: bytes, names: Sequence[str], imports: Sequence[str]) -> None:
        """Add a module; modules that share a kernel name are linked separately."""
        if any(name in self._names for name in names):
            self.link()
        self._codes.append(code)
        self._names.update(dict.fromkeys(names))
        self._imports.update(dict.fromkeys(imports))

    def link(self) -> None:
        """Link the added modules; kernels that are already linked keep their addresses."""
        if self._codes:
            imports = imported_symbols.symbol_addresses(self._imports)
            found = link(self._codes, list(self._names), imports)
            for name, address in found.items():
                _kernel_addresses.setdefault(name, address)
        self._codes, self._names, self._imports = [], {}, {}
