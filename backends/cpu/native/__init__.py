"""The native CPU backend: programs as machine code, one native call a step.

It takes one program over whole arrays, as `merge-devices` makes it of the program of each device.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from shardir.backends.base import Backend, WholeExecutable
from shardir.backends.cpu.native.availability import available as available
from shardir.backends.cpu.native.pipeline import WHOLE
from shardir.ir import Module

if TYPE_CHECKING:
    from shardir.backends.cpu.native.program import Made
    from shardir.backends.cpu.native.schedule.steps import Outside


class NativeBackend(Backend):
    """Compiles a program over whole arrays, for the threads of this process."""

    name = "cpu"
    pipeline = f"{WHOLE},fuse"

    def prepare(self) -> None:
        _begin()

    def compile(self, module: Module, outside: "Outside | None" = None) -> WholeExecutable:
        """The program; `outside` has what does the operations that go beyond this process."""
        from shardir.backends.cpu.native.program import NativeProgram

        made = _schedule(module)
        return NativeProgram(made[1], lambda: made, outside)

    def bring(self, module: Module, lowered: Callable[[], Module]) -> WholeExecutable:
        from shardir.backends.cpu.native.program import NativeProgram
        from shardir.backends.cpu.native.runtime.kernels import ForgottenError
        from shardir.backends.cpu.native.runtime.workers import worker_count
        from shardir.backends.cpu.native.schedule import keeping

        key = keeping.key_of(module, worker_count())
        known = keeping.kept(key)
        if known is not None:
            with suppress(ForgottenError):
                return NativeProgram(known, cache(lambda: _schedule(lowered())))
        made = _schedule(lowered())
        program = NativeProgram(made[1], lambda: made)
        keeping.keep(key, made[1])
        return program


def _schedule(module: Module) -> "Made":
    from shardir.backends.cpu.native.compiling import schedule_of

    return module.main, schedule_of(module.main)


@cache
def _begin() -> None:
    """Compile or load the runtime on another thread: most of that is outside of Python. Meanwhile
    import what every program needs, and look at what schedules on disk are found by; where there
    can be none, import what makes them."""
    # Imported here, because a module that another thread imports is lost to a child forked now.
    from shardir.backends.cpu.native.llvm.threads import started
    from shardir.backends.cpu.native.runtime import calls

    kept = calls.are_on_disk()
    # What goes wrong is told to who asks for the pool next, and Python waits for the thread.
    started(Thread(target=_quietly, args=(calls.launches,), name="shardir-prepare"))
    import_module("shardir.backends.cpu.native.program")
    import_module("shardir.backends.cpu.native.schedule.keeping").fingerprint()
    if not kept:
        import_module("shardir.backends.cpu.native.compiling")


def _quietly(make: Callable[[], object]) -> None:
    with suppress(Exception):
        make()


BACKEND = NativeBackend()
