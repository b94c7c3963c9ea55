"""The native CPU backend: compiled programs, one native call for each step.

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

from shardir.backends.base import Backend, UnshardedExecutable
from shardir.backends.cpu.availability import is_available as is_available
from shardir.backends.cpu.errors import MissingKernelCodeError
from shardir.backends.cpu.pipeline import MERGED_PIPELINE
from shardir.ir.module import Module

if TYPE_CHECKING:
    from shardir.backends.cpu.executable import FunctionSchedule
    from shardir.backends.cpu.schedule.python_steps import OutsideExecutor


class NativeBackend(Backend):
    """Compile a program over unsharded arrays for the threads of this process."""

    name = "cpu"
    pipeline = f"{MERGED_PIPELINE},fuse"

    def prepare(self) -> None:
        """Start to load the runtime on another thread."""
        _start_runtime()

    def compile(
        self, module: Module, outside: "OutsideExecutor | None" = None
    ) -> UnshardedExecutable:
        """Compile a module; `outside` returns the implementation of operations that involve other
        processes."""
        # The code generator is imported with the first program, since it slows down the start.
        from shardir.backends.cpu.executable import NativeExecutable

        compiled = _compile_schedule(module)
        return NativeExecutable(compiled[1], lambda: compiled, outside)

    def load_or_compile(self, module: Module, lowered: Callable[[], Module]) -> UnshardedExecutable:
        """Load the schedule of a module from disk, or lower and compile it and save its
        schedule."""
        # The runtime is imported with the first program, since it slows down the start.
        from shardir.backends.cpu.executable import NativeExecutable
        from shardir.backends.cpu.schedule import schedule_cache
        from shardir.backends.cpu.threads.workers import worker_count

        key = schedule_cache.schedule_key(module, worker_count())
        cached = schedule_cache.load_schedule(key)
        if cached is not None:
            with suppress(MissingKernelCodeError):
                return NativeExecutable(cached, cache(lambda: _compile_schedule(lowered())))
        compiled = _compile_schedule(lowered())
        program = NativeExecutable(compiled[1], lambda: compiled)
        schedule_cache.save_schedule(key, compiled[1])
        return program


def _compile_schedule(module: Module) -> "FunctionSchedule":
    # Programs loaded from disk do not need the code generator, which slows down the start.
    from shardir.backends.cpu.schedule.build import compile_schedule

    return module.main, compile_schedule(module.main)


@cache
def _start_runtime() -> None:
    """Compile or load the runtime on another thread, mostly without the interpreter lock.

    If its code is not on disk, import the modules that compile it meanwhile.
    """
    # Imported here: a child that is forked now would lose a module whose import is running on
    # another thread.
    from shardir.backends.cpu.codegen.llvm_threads import try_start_thread
    from shardir.backends.cpu.threads import workers

    is_cached = workers.is_code_on_disk()
    # The next access to the pool raises any error again, and Python waits for the thread.
    try_start_thread(
        Thread(target=_suppress_errors, args=(workers.worker_pool,), name="shardir-prepare")
    )
    import_module("shardir.backends.cpu.executable")
    import_module("shardir.backends.cpu.schedule.schedule_cache").source_fingerprint()
    if not is_cached:
        import_module("shardir.backends.cpu.schedule.build")


def _suppress_errors(make: Callable[[], object]) -> None:
    with suppress(Exception):
        make()


BACKEND = NativeBackend()
