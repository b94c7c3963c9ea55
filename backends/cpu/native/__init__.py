"""The native CPU backend: programs as machine code, one native call a step.

It takes one program over whole arrays, as `merge-devices` makes it of the program of each device.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import Thread

from shardir.backends.base import Backend, WholeExecutable
from shardir.backends.cpu.native.availability import available as available
from shardir.backends.cpu.native.pipeline import WHOLE
from shardir.ir import Module


class NativeBackend(Backend):
    """Compiles a program over whole arrays, for the threads of this process."""

    name = "cpu"
    pipeline = f"{WHOLE},fuse"

    def prepare(self) -> None:
        _begin()

    def compile(self, module: Module) -> WholeExecutable:
        from shardir.backends.cpu.native.program import NativeProgram

        return NativeProgram(module)


@cache
def _begin() -> None:
    """Compile or load the runtime on another thread: most of that is outside of Python."""
    # Imported here, because a module that another thread imports is lost to a child forked now.
    from shardir.backends.cpu.native.runtime.workers import pool

    # What goes wrong is told to who asks for the pool next, and Python waits for the thread.
    with suppress(RuntimeError):
        Thread(target=_quietly, args=(pool,), name="shardir-prepare").start()


def _quietly(make: Callable[[], object]) -> None:
    with suppress(Exception):
        make()


BACKEND = NativeBackend()
