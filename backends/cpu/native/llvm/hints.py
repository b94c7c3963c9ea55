"""Memory hints: streaming stores, prefetches, fences. They change no value."""

from shardir.backends.cpu.native.llvm.target import Machine, host
from shardir.backends.cpu.native.llvm.text import Function, Value


def goes_past_caches(written: int, read: int, machine: Machine) -> bool:
    """Return whether results of `written` bytes should use non-temporal stores.

    Such results would be evicted before they are read, and a normal store reads a cache line before
    it writes it: a third of the traffic of a copy. Results that are small relative to what is read
    stay in the cache for their readers.
    """
    cache_bytes = machine.shared_cache_bytes
    return written + read >= cache_bytes and 8 * written >= cache_bytes


def prefetch(f: Function, at: Value, writing: bool = False) -> None:
    """Prefetch the cache line at an address for reading or writing."""
    f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 {int(writing)}, i32 3, i32 1)")


def fence(f: Function) -> None:
    """Make non-temporal stores visible before this task is reported as done."""
    if host().triple.startswith("x86_64"):
        f.module.declare("llvm.x86.sse.sfence", "void", ())
        f.call("llvm.x86.sse.sfence", ())
