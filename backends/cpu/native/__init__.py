"""The native CPU backend: programs as machine code, one native call for each step.

Input: one program over unsharded arrays, which `merge-devices` makes of the per-device program.
Output: an executable that runs on the worker threads of this process. Start reading in
`executable.py`; `schedule/` lowers a program to phases, `kernels/` emits the code of operations,
`codegen/` compiles LLVM IR, `threads/` runs the phases, `dispatch/` calls programs from Python.
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
    """Compile a program over unsharded arrays for the threads of this process."""

    name = "cpu"
    pipeline = f"{WHOLE},fuse"

    def prepare(self) -> None:
        """Start to load the runtime on another thread."""
        _begin()

    def compile(self, module: Module, outside: "Outside | None" = None) -> WholeExecutable:
        """Compile a module; `outside` returns the implementation of operations that involve other
        processes."""
        from shardir.backends.cpu.native.program import NativeProgram

        compiled = _schedule(module)
        return NativeProgram(compiled[1], lambda: compiled, outside)

    def bring(self, module: Module, lowered: Callable[[], Module]) -> WholeExecutable:
        """Load the schedule of a module from disk, or lower and compile it and save its
        schedule."""
        from shardir.backends.cpu.native.program import NativeProgram
        from shardir.backends.cpu.native.runtime.kernels import ForgottenError
        from shardir.backends.cpu.native.runtime.workers import worker_count
        from shardir.backends.cpu.native.schedule import keeping

        key = keeping.key_of(module, worker_count())
        cached = keeping.kept(key)
        if cached is not None:
            with suppress(ForgottenError):
                return NativeProgram(cached, cache(lambda: _schedule(lowered())))
        compiled = _schedule(lowered())
        program = NativeProgram(compiled[1], lambda: compiled)
        keeping.keep(key, compiled[1])
        return program


def _schedule(module: Module) -> "Made":
    from shardir.backends.cpu.native.compiling import schedule_of

    return module.main, schedule_of(module.main)


@cache
def _begin() -> None:
    """Compile or load the runtime on another thread, mostly without the interpreter lock.

    If its code is not on disk, import the modules that compile it meanwhile.
    """
    # Imported here: a child that is forked now would lose a module whose import is running on
    # another thread.
    from shardir.backends.cpu.native.llvm.threads import started
    from shardir.backends.cpu.native.runtime import calls

    is_cached = calls.are_on_disk()
    # The next access to the pool raises any error again, and Python waits for the thread.
    started(Thread(target=_quietly, args=(calls.launches,), name="shardir-prepare"))
    import_module("shardir.backends.cpu.native.program")
    import_module("shardir.backends.cpu.native.schedule.keeping").fingerprint()
    if not is_cached:
        import_module("shardir.backends.cpu.native.compiling")


def _quietly(make: Callable[[], object]) -> None:
    with suppress(Exception):
        make()


BACKEND = NativeBackend()
