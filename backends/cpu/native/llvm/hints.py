"""What tells the processor about memory, and changes no number."""

from shardir.backends.cpu.native.llvm.target import Machine, host
from shardir.backends.cpu.native.llvm.text import Function, Value


def goes_past_caches(written: int, read: int, machine: Machine) -> bool:
    """Whether results of so many bytes are better written past the caches.

    What is moved beside them would push them out before they are read, and a line of memory that
    goes into a cache is read before it is written: a third of all that a copy moves. Small results
    of much that is read stay, for whoever reads them.
    """
    most = machine.shared_cache_bytes
    return written + read >= most and 8 * written >= most


def prefetch(f: Function, at: Value, writing: bool = False) -> None:
    """Ask for what will soon be read, or written."""
    f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 {int(writing)}, i32 3, i32 1)")


def fence(f: Function) -> None:
    """Let what went past the caches be seen by whoever is told that this task is done."""
    if host().triple.startswith("x86_64"):
        f.module.declare("llvm.x86.sse.sfence", "void", ())
        f.call("llvm.x86.sse.sfence", ())
