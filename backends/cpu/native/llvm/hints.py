"""What tells the processor about memory, and changes no number."""

from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.llvm.text import Function, Value


def prefetch(f: Function, at: Value, writing: bool = False) -> None:
    """Ask for what will soon be read, or written."""
    f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    f.do(f"call void @llvm.prefetch.p0(ptr {at}, i32 {int(writing)}, i32 3, i32 1)")


def fence(f: Function) -> None:
    """Let what went past the caches be seen by whoever is told that this task is done."""
    if host().triple.startswith("x86_64"):
        f.module.declare("llvm.x86.sse.sfence", "void", ())
        f.call("llvm.x86.sse.sfence", ())
