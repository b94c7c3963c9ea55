"""Processes with little address space (`ulimit -v`): programs give correct results or are
rejected."""

import os
import subprocess
import sys
from threading import Thread

import numpy as np
import pytest

from shardir.backends.cpu.codegen import llvm_threads
from shardir.backends.cpu.codegen.emission import emit
from shardir.backends.cpu.codegen.target import host_machine
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.threads import address_space, workers
from tests.backends.cpu.sample_kernels import SCRATCH_SUM
from tests.process_control.threads import run_concurrently

linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux limits address space so"
)

PROGRAM = """
import faulthandler, resource, sys
import numpy as np
import shardir
import shardir.numpy as snp
from shardir.backends.cpu.threads.address_space import address_space_left

faulthandler.dump_traceback_later(120, exit=True)
where, more = sys.argv[1], int(sys.argv[2]) << 20
if where != "before import":
    import llvmlite.binding

def limit():
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.RLIM_INFINITY))
    assert 0 < address_space_left() <= more

if where.startswith("before"):
    limit()
x = np.arange(400, dtype=np.float32).reshape(20, 20) / 400
shardir.jit(lambda x: snp.sin(x) @ x)(x)
if where == "after":
    limit()
for size in (20, 300):
    x = np.linspace(-1, 1, size * size, dtype=np.float32).reshape(size, size)
    got = shardir.jit(lambda x: snp.sum(snp.tanh(x @ x), axis=0))(x)
    np.testing.assert_allclose(got, np.tanh(x @ x).sum(0), rtol=1e-3, atol=1e-3)
print("right")
"""
ERROR_STARTS = (
    "OutOfMemoryError: no memory for ",
    "OutOfMemoryError: compiling a program may take 32.0 MiB of address space, but less is left; "
    "allow this process more address space (ulimit -v)",
)


@linux_only
@pytest.mark.parametrize(
    ("limit_time", "more", "native"),
    [
        ("before import", 160, False),
        ("before", 64, False),
        ("before", 400, True),
        ("after", 8, True),
        ("after", 100, True),
    ],
)
def test_programs_are_correct_or_rejected(limit_time: str, more: int, native: bool) -> None:
    """The limit applies before the import of LLVM, before the start of the runtime, or after a
    first program, `more` MiB above the current use.

    Native compilation starts with at least 176 MiB, and 64 MiB for the heap of each thread. If LLVM
    were imported with 160 MiB, OpenBLAS would end the process.
    """
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, limit_time, str(more)],
        env={**os.environ, "SHARDIR_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    if more == 8:
        assert done.returncode == 1
        errors = [line for line in done.stderr.splitlines() if line.startswith("shardir.")]
        assert errors[-1].partition("errors.")[2].startswith(ERROR_STARTS)
        return
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    warning = "the address space of this process is limited (ulimit -v), and only"
    assert (warning in done.stderr) == (not native)


def test_threads_and_compilation_require_address_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without these checks, LLVM would end the process, and Python would wait forever for the
    thread."""
    monkeypatch.setattr(address_space, "address_space_left", lambda: 1 << 20)
    thread = Thread(target=lambda: None)
    assert not llvm_threads.try_start_thread(thread)
    assert not thread.is_alive()
    with pytest.raises(OutOfMemoryError) as error:
        emit([["define void @f() { ret void }"]], host_machine())
    assert str(error.value) == ERROR_STARTS[1].removeprefix("OutOfMemoryError: ")
    monkeypatch.setattr(address_space, "address_space_left", lambda: 1 << 30)
    assert llvm_threads.try_start_thread(thread)
    thread.join()
    assert emit([["define void @f() { ret void }"]], host_machine())


def test_a_pool_in_limited_address_space_has_few_caller_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Callers without a slot wait and get correct results; the number of workers does not grow."""
    monkeypatch.setattr(workers, "address_space_left", lambda: 1 << 30)
    pool = workers.WorkerPool(2)
    run = load_program([Phase(SCRATCH_SUM, (3000,), 8, 1e6)], 2, pool)
    pool.resize(8)
    assert pool.count == 2

    def call(_: int) -> None:
        for _ in range(20):
            words = np.zeros(8, np.int64)
            run(words.ctypes.data)
            assert words.tolist() == [sum(range(task, task + 3000)) for task in range(8)]

    run_concurrently(call, range(3 * workers.MAX_CALLERS_IN_LIMITED_MEMORY))
    pool.stop()
