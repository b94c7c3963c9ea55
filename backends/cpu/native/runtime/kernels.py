"""The table of kernel addresses: each kernel is compiled once per process, and once per machine.

New kernels of a program are compiled several to a module, which takes half the time of one module
each, and on all cores. On disk a module is found by the names of its kernels, so that programs
share kernels, and the text of a kernel is not generated if its code exists.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm import object_cache
from shardir.backends.cpu.native.llvm.compiler import emit_ahead, link, lock, running_ahead
from shardir.backends.cpu.native.llvm.emission import Ahead, emit
from shardir.backends.cpu.native.llvm.naming import key_of
from shardir.backends.cpu.native.runtime import libraries
from shardir.backends.cpu.native.runtime.workers import allowed
from shardir.reporting import report

TOGETHER = 16
"""Kernels per module: more save no time, and would be loaded by programs that need few of them."""
WORTHWHILE = 20_000
"""Characters of text from which a module is worth a thread: about 20 ms of work."""


class ForgottenError(LookupError):
    """The code of a kernel that is known by name only is no longer on disk."""


_Written = tuple[Kernel, str]

_addresses: dict[str, int] = {}
_written: dict[str, _Written] = {}
"""Texts of kernels that wait for a module that is worth a thread."""
_begun: dict[str, "_Share"] = {}
"""By kernel name, the module that is being compiled in the background."""


@dataclass
class _Share:
    """Kernels that are compiled as one module."""

    kernels: list[_Written]
    code: Ahead


def begin(kernel: Kernel) -> None:
    """Start to compile a kernel that `kernel_addresses` will need, while the caller goes on.

    Does nothing if no core is available.
    """
    name = kernel.name
    with lock:
        if any(name in known for known in (_addresses, _begun, _written)):
            return
        cores = allowed()
        if cores < 2 or object_cache.holds(key_of("kernel", name)):
            return
        _written[name] = kernel, kernel.text()
        enough = sum(len(text) for _, text in _written.values()) >= WORTHWHILE
        if enough and running_ahead() < cores - 1:
            written = list(_written.values())[:TOGETHER]
            for each, _ in written:
                del _written[each.name]
            share = _Share(written, emit_ahead([text for _, text in written]))
            _begun.update((each.name, share) for each, _ in written)


def addresses(kernels: Iterable[Kernel]) -> dict[str, int]:
    """Return the address of each kernel by name; load or compile missing ones."""
    requested = {kernel.name: kernel for kernel in kernels}
    with lock:
        missing = [kernel for name, kernel in requested.items() if name not in _addresses]
        running = {id(_begun[k.name]): _begun[k.name] for k in missing if k.name in _begun}
        missing = [kernel for kernel in missing if kernel.name not in _begun]
        if missing:
            missing = _load(missing)
        left = [*missing, *(kernel for share in running.values() for kernel, _ in share.kernels)]
        libraries.begin(symbol for kernel in left for symbol in kernel.imports)
    cores = allowed()
    step = TOGETHER * cores
    for start in range(0, len(missing), step):
        with lock:
            # Another thread may have compiled some of them meanwhile.
            left = [k for k in missing[start : start + step] if k.name not in _addresses]
            if left:
                _compile(left, cores)
        # Progress callbacks run arbitrary code, and so without the lock.
        report("kernels", min(start + step, len(missing)), len(missing))
    with lock:
        _finish(running.values())
    return {name: _addresses[name] for name in requested}


def _compile(kernels: Sequence[Kernel], cores: int) -> None:
    """Compile kernels as one module for each core, and save them on disk."""
    written = [_written.pop(k.name) if k.name in _written else (k, k.text()) for k in kernels]
    shares = _shares(written, cores)
    codes = emit([[text for _, text in share] for share in shares])
    for share, code in zip(shares, codes, strict=True):
        _keep([kernel for kernel, _ in share], code)


def _finish(shares: Iterable[_Share]) -> None:
    """Wait for background compilations, unless another thread has already done so."""
    for share in shares:
        names = [kernel.name for kernel, _ in share.kernels]
        if all(_begun.pop(name, None) is share for name in names):
            _keep([kernel for kernel, _ in share.kernels], share.code.code())


def _keep(kernels: Sequence[Kernel], code: bytes) -> None:
    """Save the code of kernels on disk, and link it."""
    names = [kernel.name for kernel in kernels]
    imports = list(dict.fromkeys(symbol for kernel in kernels for symbol in kernel.imports))
    group = key_of("group", *names)
    object_cache.save(group, code)
    entry = json.dumps({"group": group, "names": names, "imports": imports}).encode()
    for name in names:
        object_cache.save(key_of("kernel", name), entry)
    _addresses.update(link([code], names, libraries.addresses(imports)))


def _shares(written: Sequence[_Written], cores: int) -> list[list[_Written]]:
    """Split kernels into modules of about equal text size, at most one for each core."""
    total = sum(len(text) for _, text in written)
    count = max(1, min(cores, total // WORTHWHILE), -(-len(written) // TOGETHER))
    shares: list[list[_Written]] = [[] for _ in range(count)]
    sizes = [0] * count
    for each in sorted(written, key=lambda each: -len(each[1])):
        smallest = sizes.index(min(sizes))
        shares[smallest].append(each)
        sizes[smallest] += len(each[1])
    return [share for share in shares if share]


def _load(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Load the kernels that are on disk; return the others."""
    groups: dict[str, dict[str, list[str]]] = {}
    for kernel in kernels:
        entry = _entry(key_of("kernel", kernel.name), kernel.name)
        if entry is not None:
            groups.setdefault(entry["group"], entry)
    together = _Together()
    for group, entry in groups.items():
        code = object_cache.load(group)
        if code is not None:
            together.add(code, entry["names"], entry["imports"])
    together.link()
    return [kernel for kernel in kernels if kernel.name not in _addresses]


def _entry(key: str, name: str) -> dict[str, Any] | None:
    """Read the index entry of a kernel; remove an invalid one and return None."""
    found = object_cache.load(key)
    if found is None:
        return None
    try:
        entry: dict[str, Any] = json.loads(found)
        names, imports = entry["names"], entry["imports"]
        if name in names and entry["group"] == key_of("group", *names) and _are_names(imports):
            return entry
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    object_cache.discard(key)
    return None


def _are_names(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(name, str) for name in found)


class _Together:
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
            imports = libraries.addresses(self._imports)
            found = link(self._codes, list(self._names), imports)
            for name, address in found.items():
                _addresses.setdefault(name, address)
        self._codes, self._names, self._imports = [], {}, {}
