"""The life cycle of workers: start, stop, fork, interruption, shutdown; and concurrent calls."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.errors import SettingError
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.threads import cgroups, workers
from shardir.backends.cpu.threads.workers import WorkerPool
from tests.backends.cpu.sample_kernels import (
    MULTIPLY_ADD,
    NEIGHBOR_HASH,
    WORKER_INDEX,
    neighbor_hash,
)
from tests.process_control.signals import Interrupted, alarm
from tests.process_control.threads import run_concurrently

LONG_PHASE_NANOSECONDS = 1e6
ROOT = Path(__file__).parents[4]


@pytest.fixture
def pool_of_four() -> Iterator[WorkerPool]:
    pool = WorkerPool(4, spin=2000)
    yield pool
    pool.stop()


def worker_threads() -> int:
    return sum(thread.name.startswith("shardir-worker") for thread in threading.enumerate())


def test_workers_start_with_the_first_parallel_program(pool_of_four: WorkerPool) -> None:
    before = worker_threads()
    words = np.zeros(8, np.uint64)
    load_program([Phase(MULTIPLY_ADD, (1,), 8, 0.0)], 2, pool_of_four)(words.ctypes.data)
    assert worker_threads() == before
    shared = load_program([Phase(MULTIPLY_ADD, (1,), 8, LONG_PHASE_NANOSECONDS)], 2, pool_of_four)
    assert worker_threads() == before
    shared(words.ctypes.data)
    assert worker_threads() == before + 3
    shared(words.ctypes.data)
    assert worker_threads() == before + 3
    pool_of_four.stop()
    assert worker_threads() == before
    shared(words.ctypes.data)
    assert worker_threads() == before + 3
    assert (words == 40).all()


def test_idle_workers_sleep(pool_of_four: WorkerPool) -> None:
    words = np.zeros(8, np.uint64)
    load_program([Phase(MULTIPLY_ADD, (1,), 8, LONG_PHASE_NANOSECONDS)], 2, pool_of_four)(
        words.ctypes.data
    )
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


def test_pools_can_be_resized_during_programs(pool_of_four: WorkerPool) -> None:
    words = np.zeros(50, np.uint64)
    run = load_program(
        [Phase(MULTIPLY_ADD, (k,), 50, LONG_PHASE_NANOSECONDS) for k in range(200)], 2, pool_of_four
    )
    want = 0
    for k in range(200):
        want = (want * 3 + k) % 2**64
    ended = threading.Event()
    mismatch_counts = []

    def call() -> None:
        while not ended.is_set():
            words[:] = 0
            run(words.ctypes.data)
            mismatch_counts.append(int((words != want).sum()))

    caller = threading.Thread(target=call)
    caller.start()
    for count in (1, 3, 8, 2, 6, 1, 4):
        pool_of_four.resize(count)
        time.sleep(0.01)
    ended.set()
    caller.join()
    assert len(mismatch_counts) > 1
    assert set(mismatch_counts) == {0}


def test_phases_of_a_call_have_memory_for_the_workers_during_a_change_of_their_number(
    pool_of_four: WorkerPool,
) -> None:
    out = np.zeros(64, np.int64)
    phase = Phase(WORKER_INDEX, (100_000,), 64, LONG_PHASE_NANOSECONDS, max_workers=4)
    run = load_program([phase] * 4, 2, pool_of_four)
    parallel = load_program([phase._replace(max_workers=0)], 2, pool_of_four)
    other = np.zeros(64, np.int64)
    ended = threading.Event()
    highest = []

    def call() -> None:
        while not ended.is_set():
            run(out.ctypes.data)
            highest.append(int(out.max()))

    caller = threading.Thread(target=call)
    caller.start()
    for count in (8, 4, 8, 2, 8, 4, 8):
        pool_of_four.resize(count)
        parallel(other.ctypes.data)  # It starts the workers.
    ended.set()
    caller.join()
    assert max(highest) <= 3


def test_the_number_of_workers_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = 7
    monkeypatch.setattr(workers, "_affinity_count", lambda: cores)
    monkeypatch.setattr(cgroups, "core_limit", lambda: None)
    monkeypatch.delenv("SHARDIR_CPU_THREADS", raising=False)
    assert workers.allowed_worker_count() == cores
    monkeypatch.setenv("SHARDIR_CPU_THREADS", "1")
    assert workers.allowed_worker_count() == 1
    monkeypatch.setenv("SHARDIR_CPU_THREADS", "1000")
    assert workers.allowed_worker_count() == cores
    for wrong in ("0", "-1", "two"):
        monkeypatch.setenv("SHARDIR_CPU_THREADS", wrong)
        with pytest.raises(SettingError) as caught:
            workers.allowed_worker_count()
        assert str(caught.value) == (
            f"SHARDIR_CPU_THREADS is '{wrong}', which is not a number of threads; "
            "set it to an integer of at least 1, or unset it to use all cores"
        )


@pytest.mark.parametrize(("core_limit", "count"), [(None, 3), (2, 2), (5, 3)])
def test_a_cpu_quota_limits_the_number_of_workers(
    core_limit: int | None, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHARDIR_CPU_THREADS", raising=False)
    monkeypatch.setattr(workers, "_affinity_count", lambda: 3)
    monkeypatch.setattr(cgroups, "core_limit", lambda: core_limit)
    assert workers.allowed_worker_count() == count


def test_the_worker_count_can_be_set_in_a_context() -> None:
    before = workers.worker_count()
    with workers.workers(5):
        assert workers.worker_count() == 5
        words = np.zeros(64, np.uint64)
        load_program([Phase(MULTIPLY_ADD, (1,), 64, LONG_PHASE_NANOSECONDS)], 2)(words.ctypes.data)
        assert (words == 1).all()
    assert workers.worker_count() == before


def test_a_signal_interrupts_a_program_between_phases(pool_of_four: WorkerPool) -> None:
    out = np.full(4, -1)
    long = load_program([Phase(WORKER_INDEX, (10_000_000,), 4, 40e6)] * 2000, 2, pool_of_four)
    began = time.perf_counter()
    with pytest.raises(Interrupted), alarm(0.1):
        long(out.ctypes.data)
    assert time.perf_counter() - began < 20
    words = np.zeros(64, np.uint64)
    load_program([Phase(MULTIPLY_ADD, (1,), 64, LONG_PHASE_NANOSECONDS)] * 3, 2, pool_of_four)(
        words.ctypes.data
    )
    assert (words == 13).all()


def test_a_signal_handler_may_run_programs(pool_of_four: WorkerPool) -> None:
    words = np.zeros(64, np.uint64)
    inner = load_program([Phase(MULTIPLY_ADD, (1,), 64, LONG_PHASE_NANOSECONDS)], 2, pool_of_four)
    out = np.full(4, -1)
    long = load_program([Phase(WORKER_INDEX, (10_000_000,), 4, 40e6)] * 10, 2, pool_of_four)
    calls = []

    def run_inner_program(number: int, frame: FrameType | None) -> None:
        inner(words.ctypes.data)
        calls.append(number)

    with alarm(0.05, run_inner_program):
        long(out.ctypes.data)
        # The signal may arrive after the end of the program.
        while not calls:
            time.sleep(0.01)
    assert (words == 1).all()
    assert (out >= 0).all()


def run_python(program: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in its own process, which may fork; since Python 3.12, a fork in a process with
    threads gives a warning."""
    return subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


SETUP = """
import os, threading, time
import numpy as np
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.threads.workers import WorkerPool
from tests.backends.cpu.sample_kernels import MULTIPLY_ADD, WORKER_INDEX
pool = WorkerPool(4)
words = np.zeros(64, np.uint64)
run = load_program([Phase(MULTIPLY_ADD, (1,), 64, 1e6)] * 4, 2, pool)
run(words.ctypes.data)
assert (words == 40).all()
"""


def test_python_exits_while_workers_wait() -> None:
    done = run_python(SETUP + "print('end')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_call_after_the_end_of_the_workers_runs_on_one_thread() -> None:
    program = """
import os, sys
os.environ["SHARDIR_CACHE_DIR"] = ""  # no cached code for the dispatch
import shardir as sd, shardir.numpy as snp
x = snp.ones((1024, 1024))
f = sd.jit(lambda x: snp.sin(x) @ x)
f(x)
class Last:
    def __init__(self):
        self.f, self.x = f, x
    def __del__(self):
        print(self.f(self.x).shape)
sys.modules["last"] = Last()
"""
    done = run_python(program)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "(1024, 1024)\n")


def test_programs_run_during_shutdown() -> None:
    done = run_python(
        SETUP.replace(
            "pool = WorkerPool(4)",
            """
import atexit
def late():
    words[:] = 0
    run(words.ctypes.data)
    print((words == 40).all())
atexit.register(late)
from shardir.backends.cpu.threads import cgroups, workers
pool = WorkerPool(4)
def later():
    workers._stop_pools()
    late()
atexit.register(later)
""",
        )
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")


def test_python_exits_during_a_program_of_another_thread() -> None:
    done = run_python(
        SETUP
        + """
out = np.full(64, -1)
long = load_program([Phase(WORKER_INDEX, (1_000_000,), 64, 1e6)] * 100_000, 2, pool)
threading.Thread(target=long, args=(out.ctypes.data,), daemon=True).start()
time.sleep(0.1)
print('end')
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


FORK = """
import sys, warnings
warnings.simplefilter("ignore")
def fork():
    child = os.fork()
    if child == 0:
        words[:] = 0
        run(words.ctypes.data)
        good = (words == 40).all() and threading.active_count() == 4
        os._exit(0 if good else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_has_its_own_workers() -> None:
    done = run_python(SETUP + FORK + "print([fork() for _ in range(5)])")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 0, 0, 0, 0]\n", "")


def test_a_fork_may_happen_during_programs_of_other_threads() -> None:
    done = run_python(
        SETUP
        + FORK
        + """
mine = np.zeros(64, np.uint64)
going = True
def call():
    while going:
        run(mine.ctypes.data)
threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads: thread.start()
print([fork() for _ in range(10)])
going = False
for thread in threads: thread.join()
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{[0] * 10}\n", "")


def test_a_fork_waits_for_compilation() -> None:
    done = run_python(
        SETUP
        + FORK
        + """
from tests.backends.cpu.sample_kernels import make_kernel, _multiply_add
going = True
def compile():
    number = 0
    while going:
        number += 1
        load_program([Phase(make_kernel(f"fresh{number}", _multiply_add), (1,), 4, 0.0)], 2, pool)
thread = threading.Thread(target=compile)
thread.start()
def fork_and_run():
    child = os.fork()
    if child == 0:
        mine = np.zeros(8, np.uint64)
        phase = Phase(make_kernel("in_child", _multiply_add), (1,), 8, 0.0)
        load_program([phase], 2, pool)(mine.ctypes.data)
        os._exit(0 if (mine == 1).all() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print([fork_and_run() for _ in range(10)])
going = False
thread.join()
""",
        SHARDIR_CACHE_DIR="",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{[0] * 10}\n", "")


@pytest.mark.parametrize("where", ["shardir", "llvmlite", "numpy"])
def test_a_fork_waits_for_imports(where: str, tmp_path: Path) -> None:
    (tmp_path / "imported_slowly.py").write_text(
        "import time; time.sleep(0.5); there = True", "utf-8"
    )
    done = run_python(
        f"""
import os, signal, threading, time, {where}
import shardir.backends.fork_handlers
{where}.__path__.append({str(tmp_path)!r})
def look():
    from {where}.imported_slowly import there
thread = threading.Thread(target=look)
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    signal.alarm(5)
    look()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_fork_waits_for_host_detection_in_llvm() -> None:
    done = run_python(
        """
import os, signal, threading, time
from llvmlite.binding import ffi
from shardir.backends.cpu.codegen.target import host_machine
asks = threading.Event()
def slowly():
    asks.set()
    time.sleep(0.5)
ffi.register_lock_callback(slowly, lambda: None)
thread = threading.Thread(target=host_machine)
thread.start()
asks.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)
    for _ in range(4):  # other thread ids
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    host_machine()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    )
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_a_signal_handler_may_fork_during_compilation() -> None:
    done = run_python(
        SETUP
        + """
import signal
from shardir.backends.cpu.codegen.compiler import compile
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import host_machine
def text(name):
    module = LLVMModule(host_machine())
    LLVMFunction(module, name, [], "void").ret()
    return module.text()
def compile_new_program(number):
    return compile(host_machine(), text(f"made{number}"), [f"made{number}"])[f"made{number}"] != 0
def fork(*_):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        os._exit(0 if compile_new_program(-1) else 1)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ends = []
signal.signal(signal.SIGALRM, fork)
number = 0
while len(ends) < 20:
    number += 1
    signal.setitimer(signal.ITIMER_REAL, 0.0005 * (number % 20 + 1))
    compile_new_program(number)
signal.setitimer(signal.ITIMER_REAL, 0)
print(set(ends))
""",
        SHARDIR_CACHE_DIR="",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "{0}\n", "")


def test_ctrl_c_interrupts_a_long_program() -> None:
    done = run_python(
        SETUP
        + """
import signal
out = np.full(64, -1)
long = load_program([Phase(WORKER_INDEX, (10_000_000,), 64, 64 * 10e6)] * 10_000, 2, pool)
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.perf_counter()
try:
    long(out.ctypes.data)
except KeyboardInterrupt:
    print('interrupted', time.perf_counter() - began < 60)  # the full program takes an hour
words[:] = 0
run(words.ctypes.data)
print((words == 40).all())
"""
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted True\nTrue\n", "")


def random_program(
    random: random.Random, pool: WorkerPool
) -> tuple[object, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return a program on a buffer of three parts, its initial contents and its expected
    results."""
    count = random.choice([1, 2, 3, 17, 64])
    start = np.array([[random.getrandbits(64) for _ in range(count)] for _ in range(3)], np.uint64)
    want = start.copy()
    phases = []
    for _ in range(random.randint(1, 12)):
        source, target = random.sample(range(3), 2)
        hash_rounds = random.choice([0, 10, 1000])
        cost = random.choice([0.0, 70e3, LONG_PHASE_NANOSECONDS, 150e6])
        phases.append(
            Phase(NEIGHBOR_HASH, (1 + source, 1 + target, count, hash_rounds), count, cost)
        )
        want[target] = neighbor_hash(want[source], hash_rounds)
    return load_program(phases, 4, pool), start, want


@pytest.mark.parametrize(("count", "sleep_method"), [(2, "futex"), (8, "futex"), (4, "condition")])
def test_random_concurrent_programs_give_the_expected_results(
    request: pytest.FixtureRequest, count: int, sleep_method: str
) -> None:
    rounds = 20_000 if request.config.getoption("--long") else 300
    pool = WorkerPool(count, sleep_method, spin=random.Random(count).choice([0, 2000]))
    programs = [random_program(random.Random(seed), pool) for seed in range(40)]
    mismatch_counts: list[int] = []

    def call(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(rounds):
            run, start, want = choose.choice(programs)
            parts = start.copy()
            assert callable(run)
            run(*(part.ctypes.data for part in parts))
            mismatch_counts.append(int((parts != want).sum()))

    run_concurrently(call, range(5))
    pool.stop()
    assert mismatch_counts == [0] * (5 * rounds)
