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
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.threads.workers import allowed_worker_count
from shardir.display.compilation_progress import report

MAX_KERNELS_PER_MODULE = 16
"""Kernels per module: more save no time, and would be loaded by programs that need few of them."""
MIN_MODULE_CHARACTERS = 20_000
"""Characters of text from which a module is worth a thread: about 20 ms of work."""


_KernelText = tuple[Kernel, str]

_KernelKey = tuple[HostDescription, str]
"""The machine that a kernel is compiled for, and its name."""

_kernel_addresses: dict[_KernelKey, int] = {}
_pending_texts: dict[_KernelKey, _KernelText] = {}
"""Texts of kernels that wait for a module that is worth a thread."""
_running_compilations: dict[_KernelKey, "_KernelModule"] = {}
"""The modules that are being compiled in the background, by each of their kernels."""


@dataclass
class _KernelModule:
    """Kernels that are compiled as one module."""

    kernels: list[_KernelText]
    code: BackgroundCompilation


def start_compiling(kernel: Kernel, machine: HostDescription) -> None:
    """Start to compile a kernel that `kernel_addresses` will need, while the caller goes on.

    Does nothing if no core is available.
    """
    key = machine, kernel.name
    with LINK_LOCK:
        if any(
            key in known for known in (_kernel_addresses, _running_compilations, _pending_texts)
        ):
            return
        cores = allowed_worker_count()
        if cores < 2 or object_cache.contains(cache_key(machine, "kernel", kernel.name)):
            return
        _pending_texts[key] = kernel, kernel.text(machine)
        pending = [text for (its, _), text in _pending_texts.items() if its == machine]
        enough = sum(len(text) for _, text in pending) >= MIN_MODULE_CHARACTERS
        if enough and count_running_compilations() < cores - 1:
            written = pending[:MAX_KERNELS_PER_MODULE]
            for each, _ in written:
                del _pending_texts[machine, each.name]
            code = start_compilation([text for _, text in written], machine)
            share = _KernelModule(written, code)
            _running_compilations.update(((machine, each.name), share) for each, _ in written)


def compile_ahead(kernel: Kernel, machine: HostDescription) -> None:
    """Compile a kernel that programs are likely to need, and save it on disk.

    For a thread of its own. Does nothing if no core is available, or if a program is being
    compiled, which starts the kernels that it needs.
    """
    text = kernel.text(machine)  # Without the lock, for which the compilation of a program waits.
    with LINK_LOCK:
        if _pending_texts or count_running_compilations():
            return
        start_compiling(kernel._replace(text=lambda _: text), machine)
        share = _running_compilations.get((machine, kernel.name))
    if share is not None:
        share.code.wait()
        kernel_addresses([kernel], machine)


def kernel_addresses(kernels: Iterable[Kernel], machine: HostDescription) -> dict[str, int]:
    """Return the address of each kernel by name; load or compile missing ones for a machine."""
    requested = {kernel.name: kernel for kernel in kernels}
    with LINK_LOCK:
        missing = _missing_kernels(requested.values(), machine)
        shares = {k.name: _running_compilations.get((machine, k.name)) for k in missing}
        running = {id(share): share for share in shares.values() if share is not None}
        missing = [kernel for kernel in missing if shares[kernel.name] is None]
        if missing:
            missing = _load_from_disk(missing, machine)
        left = [*missing, *(kernel for share in running.values() for kernel, _ in share.kernels)]
        imported_symbols.start_compiling_symbols(
            (symbol for kernel in left for symbol in kernel.imports), machine
        )
    cores = allowed_worker_count()
    step = MAX_KERNELS_PER_MODULE * cores
    for start in range(0, len(missing), step):
        with LINK_LOCK:
            # Another thread may have compiled some of them meanwhile.
            left = _missing_kernels(missing[start : start + step], machine)
            if left:
                _compile_modules(left, machine, cores)
        # Progress callbacks run arbitrary code, and so without the lock.
        report("kernels", min(start + step, len(missing)), len(missing))
    with LINK_LOCK:
        _await_compilations(running.values(), machine)
    return {name: _kernel_addresses[machine, name] for name in requested}


def _missing_kernels(kernels: Iterable[Kernel], machine: HostDescription) -> list[Kernel]:
    """Return the kernels that have no address on a machine yet."""
    return [kernel for kernel in kernels if (machine, kernel.name) not in _kernel_addresses]


def _compile_modules(kernels: Sequence[Kernel], machine: HostDescription, cores: int) -> None:
    """Compile kernels as one module for each core, and save them on disk."""
    pending = {k.name: _pending_texts.pop((machine, k.name), (k, "")) for k in kernels}
    written = [(k, pending[k.name][1] or k.text(machine)) for k in kernels]
    shares = _split_into_modules(written, cores)
    codes = emit([[text for _, text in share] for share in shares], machine)
    for share, code in zip(shares, codes, strict=True):
        _save_and_link([kernel for kernel, _ in share], machine, code)


def _await_compilations(shares: Iterable[_KernelModule], machine: HostDescription) -> None:
    """Wait for background compilations, unless another thread has already done so."""
    for share in shares:
        kernels = [kernel for kernel, _ in share.kernels]
        if all(_running_compilations.pop((machine, k.name), None) is share for k in kernels):
            _save_and_link(kernels, machine, share.code.code())


def _save_and_link(kernels: Sequence[Kernel], machine: HostDescription, code: bytes) -> None:
    """Save the code of kernels on disk, and link it."""
    names = [kernel.name for kernel in kernels]
    imports = list(dict.fromkeys(symbol for kernel in kernels for symbol in kernel.imports))
    group = cache_key(machine, "group", *names)
    object_cache.save(group, code)
    entry = json.dumps({"group": group, "names": names, "imports": imports}).encode()
    for name in names:
        object_cache.save(cache_key(machine, "kernel", name), entry)
    addresses = link([code], names, imported_symbols.symbol_addresses(imports, machine))
    _kernel_addresses.update(((machine, name), at) for name, at in addresses.items())


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


def _load_from_disk(kernels: Sequence[Kernel], machine: HostDescription) -> list[Kernel]:
    """Load the kernels that are on disk; return the others."""
    groups: dict[str, dict[str, list[str]]] = {}
    for kernel in kernels:
        entry = _read_index_entry(kernel.name, machine)
        if entry is not None:
            groups.setdefault(entry["group"], entry)
    together = _LinkBatch(machine)
    for group, entry in groups.items():
        code = object_cache.load(group)
        if code is not None:
            together.add(code, entry["names"], entry["imports"])
    together.link()
    return _missing_kernels(kernels, machine)


def _read_index_entry(name: str, machine: HostDescription) -> dict[str, Any] | None:
    """Read the index entry of a kernel; remove an invalid one and return None."""
    key = cache_key(machine, "kernel", name)
    found = object_cache.load(key)
    if found is None:
        return None
    try:
        entry: dict[str, Any] = json.loads(found)
        names, imports = entry["names"], entry["imports"]
        if (
            name in names
            and entry["group"] == cache_key(machine, "group", *names)
            and _are_names(imports)
        ):
            return entry
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    object_cache.discard(key)
    return None


def _are_names(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


class _LinkBatch:
    """Modules to be linked in one step, which takes a third of the time of linking each."""

    def __init__(self, machine: HostDescription) -> None:
        self._machine = machine
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
            imports = imported_symbols.symbol_addresses(self._imports, self._machine)
            found = link(self._codes, list(self._names), imports)
            for name, address in found.items():
                _kernel_addresses.setdefault((self._machine, name), address)
        self._codes, self._names, self._imports = [], {}, {}
