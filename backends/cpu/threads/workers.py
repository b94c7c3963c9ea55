"""The worker threads that share the tasks of phases.

The caller of a program is worker 0. The others are Python threads, each inside of one call that
released the GIL and returns when the pool stops: the call needs no Python, and all threads are
known to Python. They start when the first program that can use them runs, sleep when there is no
work, and stop when the interpreter exits.

One caller at a time owns the workers. A concurrent caller runs its phases by itself: on a machine
whose cores are busy with the first caller's tasks this costs nothing, and no caller waits.

A forked child has only the thread that forked: its pool starts afresh.
"""

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import final

from shardir.backends.cpu.codegen.compiler import NativeLibrary, compile_cached, is_on_disk
from shardir.backends.cpu.codegen.llvm_text import LLVMModule
from shardir.backends.cpu.codegen.llvm_threads import try_start_thread
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.dispatch import control_interpreter
from shardir.backends.cpu.dispatch.entry_point import define_entry_points
from shardir.backends.cpu.dispatch.python_api import (
    declare_python,
    function_address,
    python_addresses,
)
from shardir.backends.cpu.errors import OutOfMemoryError, SettingError
from shardir.backends.cpu.threads import cgroups, shared_memory_layout as at
from shardir.backends.cpu.threads.address_space import address_space_left
from shardir.backends.cpu.threads.memory_mapping import map_memory
from shardir.backends.cpu.threads.parking import libc_symbols, sleep_method
from shardir.backends.cpu.threads.phase_interpreter import define_interpreter
from shardir.backends.fork_handlers import register_fork_lock
from shardir.text.number_text import parse_natural_number

MAX_SPIN_NANOSECONDS = 50_000
"""The time a worker spins before it sleeps: longer than Python needs between two steps, shorter
than it takes to wake the worker."""


MAX_CALLERS_IN_LIMITED_MEMORY = 4
"""Concurrent callers with scratch memory if the address space is limited; more callers wait."""


@cache
def runtime_code(how: str = "") -> NativeLibrary:
    """Return the code of interpreter and entry points; `how` overrides the way in which threads
    sleep."""
    machine, chosen = _target_of_code(how)
    libc = ctypes.CDLL(None)
    imports = python_addresses()
    imports |= {name: function_address(libc[name]) for name in libc_symbols(chosen)}
    exports = ["work", "rouse", "entry", "run", "loop", "acquire", "release"]
    return compile_cached(
        machine, _code_name(chosen), lambda: _runtime_text(machine, chosen), exports, imports
    )


def is_code_on_disk() -> bool:
    """Return whether the code of this module will most likely be loaded from disk."""
    machine, how = _target_of_code()
    return is_on_disk(machine, _code_name(how))


def _target_of_code(how: str = "") -> tuple[HostDescription, str]:
    """Return the machine that the code is compiled for, and the way in which threads sleep."""
    machine = host_machine()  # The threads of this process run this code.
    return machine, how or sleep_method(machine.triple)


def _code_name(how: str) -> str:
    return f"runtime {how}"


def _runtime_text(machine: HostDescription, how: str) -> str:
    module = LLVMModule(machine)
    declare_python(module)
    define_interpreter(module, machine.triple, how)
    define_entry_points(module)
    control_interpreter.define_control_interpreter(module)
    return module.text()


_processes_on_host = [1]
"""The number of processes that compute on the same cores, including this one."""


def share_cores(processes: int) -> None:
    """Divide the cores that this process may use among `processes`."""
    _processes_on_host[0] = processes


def allowed_worker_count() -> int:
    """Return the number of workers: cores that this process may use, limited by
    `SHARDIR_CPU_THREADS`.

    Raises `SettingError` if the variable is not a positive integer.
    """
    cores = min(_affinity_count(), cgroups.core_limit() or at.MAX_WORKERS)
    given = os.environ.get("SHARDIR_CPU_THREADS", "")
    if not given:
        return max(1, cores // _processes_on_host[0])
    count = parse_natural_number(given)
    if not count:
        raise SettingError(
            f"SHARDIR_CPU_THREADS is {given!r}, which is not a number of threads; "
            "set it to an integer of at least 1, or unset it to use all cores"
        )
    return min(cores, count)


def _affinity_count() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), at.MAX_WORKERS)
    return min(os.cpu_count() or 1, at.MAX_WORKERS)


@final
class WorkerPool:
    """Worker threads, the memory that they share, and their scratch memory.

    `count` includes the caller. It may exceed the cores, which is slow but correct. For tests,
    `how` selects how threads sleep (`futex` or `condition`), and `spin` after how many nanoseconds.
    A pool's memory is never freed, because programs and threads refer to its address.
    """

    def __init__(self, count: int, how: str = "", spin: int = MAX_SPIN_NANOSECONDS) -> None:
        self.count = max(1, min(count, at.MAX_WORKERS))
        self.code = runtime_code(how)
        self._spin = spin
        self._lock = threading.RLock()
        self._threads: list[threading.Thread] = []
        self._starter = self.start
        # Scratch memory is reserved for the maximum number of threads: no page of it is touched.
        self._max_count, self._max_callers = at.MAX_WORKERS, at.MAX_CALLERS
        if address_space_left() is not None:  # Reserved memory counts towards the limit.
            self._max_count, self._max_callers = self.count, MAX_CALLERS_IN_LIMITED_MEMORY
        control, scratch = (
            map_memory(at.CONTROL_BYTES, huge=False),
            map_memory((self._max_count + self._max_callers - 1) * at.SCRATCH_BYTES_PER_WORKER),
        )
        if control is None or scratch is None:
            raise OutOfMemoryError(
                "no address space for the scratch memory of CPU workers; "
                "allow this process more address space (ulimit -v)"
            )
        self.control, self._scratch = control, scratch
        self._reset()
        _all_pools.append(self)

    def start(self) -> None:
        """Start the workers, unless they run."""
        with self._lock:
            if self._word(at.STARTED).value:
                return
            self._word(at.STARTED).value = 1
            work = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.code["work"])
            for worker in range(1, self.count):
                thread = threading.Thread(
                    target=work,
                    args=(self.control, worker),
                    name=f"shardir-worker-{worker}",
                    daemon=True,
                )
                if not try_start_thread(thread):  # The workers that were started do the work.
                    return
                self._threads.append(thread)

    def stop(self, patience: float | None = None) -> None:
        """Stop the workers within `patience` seconds; the next call starts new ones.

        A concurrent call continues alone.
        """
        with self._lock:
            rouse = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code["rouse"])
            end = None if patience is None else time.monotonic() + patience
            self._word(at.STOP).value = 1
            for thread in self._threads:
                # A worker that was about to sleep misses a wakeup, so the wakeup is repeated.
                while thread.is_alive() and (end is None or time.monotonic() < end):
                    rouse(self.control)
                    thread.join(0.001)
            if any(thread.is_alive() for thread in self._threads):
                return
            self._threads.clear()
            self._word(at.STOP).value = 0
            self._word(at.STARTED).value = 0

    def resize(self, count: int) -> None:
        """Set the number of workers, when the call that uses them has ended.

        A phase of that call may have memory for the former number of workers only. The number
        cannot exceed the initial one if the address space is limited.
        """
        acquire = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(
            self.code["acquire"]
        )
        release = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(self.code["release"])
        owned = acquire(self.control, at.FLAG_OWN_WORKERS)
        try:
            self.stop()
            self.count = max(1, min(count, self._max_count))
            self._word(at.COUNT).value = self.count
        finally:
            release(self.control, owned)

    def record(self, rings: int) -> None:
        """Record tasks in the ring buffers at an address from now on; 0 stops recording."""
        self._word(at.RINGS).value = rings

    def reset_in_child(self) -> None:
        """Discard the threads that do not exist in a forked child."""
        self._lock = threading.RLock()
        self._threads = []
        self._reset()

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.control + offset)

    def _reset(self) -> None:
        """Reset the shared memory; in a forked child other threads may have left it in any
        state."""
        ctypes.memset(self.control, 0, at.CONTROL_BYTES)
        self._word(at.STARTER).value = id(self._starter)
        self._word(at.COUNT).value = self.count
        self._word(at.SCRATCH).value = self._scratch
        self._word(at.CALLERS_SCRATCH).value = (
            self._scratch + self._max_count * at.SCRATCH_BYTES_PER_WORKER
        )
        # The bits of callers without scratch memory are always set.
        self._word(at.BUSY).value = (1 << at.MAX_CALLERS) - (1 << self._max_callers)
        self._word(at.SPIN).value = self._spin
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_init(ctypes.c_void_p(self.control + at.MUTEX), None)
        libc.pthread_cond_init(ctypes.c_void_p(self.control + at.CONDITION), None)


_all_pools: list[WorkerPool] = []
_process_pool: list[WorkerPool] = []
"""The pool of this process, once it exists."""
_pool_lock = threading.RLock()
"""Held while the pool is created, instead of the compiler's lock: other threads may compile."""


def worker_pool() -> WorkerPool:
    """Return the workers of this process."""
    with _pool_lock:
        if not _process_pool:
            _process_pool.append(WorkerPool(allowed_worker_count()))
        return _process_pool[0]


def worker_count() -> int:
    """Return how many threads share the tasks of a phase, the caller included.

    Does not wait for a pool that is being created.
    """
    return _process_pool[0].count if _process_pool else allowed_worker_count()


@contextmanager
def workers(count: int) -> Iterator[None]:
    """Use `count` workers in this process inside of the block, even more than cores."""
    shared = worker_pool()
    before = shared.count
    shared.resize(count)
    try:
        yield
    finally:
        shared.resize(before)


def _reset_pools_in_child() -> None:
    for each in _all_pools:
        each.reset_in_child()


def _stop_pools() -> None:
    for each in _all_pools:
        each.stop(patience=1.0)


def _release_and_reset() -> None:
    _pool_lock.release()
    _reset_pools_in_child()


register_fork_lock(_pool_lock.acquire, _pool_lock.release, _release_and_reset)
atexit.register(_stop_pools)
