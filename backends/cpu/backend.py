"""The backend `cpu`: loads a compiled program from disk, or compiles it."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Backend, UnshardedExecutable
from shardir.backends.cpu.errors import MissingKernelCodeError
from shardir.backends.cpu.pipeline import FUSED_PIPELINE
from shardir.ir.module import Module

if TYPE_CHECKING:
    from shardir.backends.cpu import executable
    from shardir.backends.cpu.codegen import kernel_table, llvm_threads, object_cache, target
    from shardir.backends.cpu.codegen.target import HostDescription
    from shardir.backends.cpu.executable import FunctionSchedule
    from shardir.backends.cpu.kernels.gemm import packed_kernel
    from shardir.backends.cpu.schedule import build, schedule_cache
    from shardir.backends.cpu.schedule.python_steps import OutsideExecutor
    from shardir.backends.cpu.threads import workers
else:
    target = lazy_import("shardir.backends.cpu.codegen.target")
    kernel_table = lazy_import("shardir.backends.cpu.codegen.kernel_table")
    object_cache = lazy_import("shardir.backends.cpu.codegen.object_cache")
    packed_kernel = lazy_import("shardir.backends.cpu.kernels.gemm.packed_kernel")
    llvm_threads = lazy_import("shardir.backends.cpu.codegen.llvm_threads")
    workers = lazy_import("shardir.backends.cpu.threads.workers")
    executable = lazy_import("shardir.backends.cpu.executable")
    schedule_cache = lazy_import("shardir.backends.cpu.schedule.schedule_cache")
    build = lazy_import("shardir.backends.cpu.schedule.build")


class NativeBackend(Backend):
    """Compile a program over unsharded arrays for the threads of this process.

    Kernels are selected and compiled for `machine`, by default this host. Raises `SettingError` for
    a machine with instructions that this host may lack.
    """

    name = "cpu"
    pipeline = FUSED_PIPELINE

    def __init__(self, machine: "HostDescription | None" = None) -> None:
        if machine is not None:
            target.check_runs_here(machine)
        self._machine = machine

    def prepare(self) -> None:
        """Start to load the runtime on another thread."""
        _start_runtime()

    def compile(
        self, module: Module, outside: "OutsideExecutor | None" = None
    ) -> UnshardedExecutable:
        """Compile a module; `outside` returns the implementation of operations that involve other
        processes."""
        compiled = self._compile_schedule(module)
        return executable.NativeExecutable(compiled[1], lambda: compiled, outside)

    def load_or_compile(self, module: Module, lowered: Callable[[], Module]) -> UnshardedExecutable:
        """Load the schedule of a module from disk, or lower and compile it and save its
        schedule."""
        key = schedule_cache.schedule_key(module, workers.worker_count(), self.machine)
        cached = schedule_cache.load_schedule(key, self.machine)
        if cached is not None:
            with suppress(MissingKernelCodeError):
                return executable.NativeExecutable(
                    cached, cache(lambda: self._compile_schedule(lowered()))
                )
        compiled = self._compile_schedule(lowered())
        program = executable.NativeExecutable(compiled[1], lambda: compiled)
        schedule_cache.save_schedule(key, compiled[1])
        return program

    @property
    def machine(self) -> "HostDescription":
        """The machine that programs are compiled for."""
        return target.host_machine() if self._machine is None else self._machine

    def _compile_schedule(self, module: Module) -> "FunctionSchedule":
        return module.main, build.compile_schedule(module.main, self.machine)


@cache
def _start_runtime() -> None:
    """Compile or load the runtime on another thread, mostly without the interpreter lock.

    If its code is not on disk, import the modules that compile programs meanwhile, and compile the
    kernel of most matrix products, for this process and for later ones, on a third thread.
    """
    # This thread imports the modules: a child that is forked now would lose a module whose import
    # is running on another thread.
    is_cached = workers.is_code_on_disk()
    # The next access to the pool raises any error again, and Python waits for the thread.
    _start_thread(workers.worker_pool)
    if not is_cached and object_cache.cache_folder() is not None:
        import_module("shardir.backends.cpu.codegen.kernel_table")
        import_module("shardir.backends.cpu.kernels.gemm.packed_kernel")
        _start_thread(_compile_common_kernel)
    import_module("shardir.backends.cpu.executable")
    import_module("shardir.backends.cpu.schedule.schedule_cache").source_fingerprint()
    if not is_cached:
        import_module("shardir.backends.cpu.schedule.build")


def _compile_common_kernel() -> None:
    """Compile the kernel that other libraries have before the first call of a program.

    LLVM takes two fifths of its time for a training step of dense layers for this kernel.
    """
    machine = target.host_machine()
    kernel_table.compile_ahead(packed_kernel.common_gemm_kernel(machine), machine)


def _start_thread(work: Callable[[], object]) -> None:
    llvm_threads.try_start_thread(
        Thread(target=_suppress_errors, args=(work,), name="shardir-prepare")
    )


def _suppress_errors(work: Callable[[], object]) -> None:
    with suppress(Exception):
        work()


BACKEND = NativeBackend()
