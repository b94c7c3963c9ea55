"""Programs of phases: results, arguments, division between workers, table rows."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.dispatch.program_table import (
    MAX_ROWS_PER_PHASE,
    load_program,
    table_rows,
)
from shardir.backends.cpu.kernel_api import (
    TASKS_PER_WORKER,
    Kernel,
    Phase,
    choose_task_count,
)
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.workers import WorkerPool
from tests.backends.cpu.sample_kernels import (
    MULTIPLY_ADD,
    NEIGHBOR_HASH,
    SCRATCH_SUM,
    WORKER_INDEX,
    neighbor_hash,
)
from tests.process_control.threads import run_concurrently

pytestmark = pytest.mark.sample(3)

LONG_PHASE_NANOSECONDS = 1e6


@pytest.fixture(params=["futex", "condition"], scope="module")
def oversubscribed_pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Provide a pool of eight workers, more than cores, that sleep after a short spin."""
    pool = WorkerPool(8, request.param, spin=2000)
    yield pool
    pool.stop()


@pytest.mark.parametrize("cost", [0.0, LONG_PHASE_NANOSECONDS], ids=["alone", "shared"])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64])
def test_phases_run_in_order_and_every_task_once(
    oversubscribed_pool: WorkerPool, cost: float, tasks: int
) -> None:
    words = np.arange(tasks + 1, dtype=np.uint64)
    run = load_program(
        [Phase(MULTIPLY_ADD, (k,), tasks, cost) for k in range(50)], 2, oversubscribed_pool
    )
    want = words.copy()
    for k in range(50):
        want[:tasks] = want[:tasks] * np.uint64(3) + np.uint64(k)
    assert run(words.ctypes.data) is None
    assert (words == want).all()


def test_phases_see_the_writes_of_earlier_phases(oversubscribed_pool: WorkerPool) -> None:
    count = 40
    a, b = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)
    forward = Phase(NEIGHBOR_HASH, (1, 2, count, 300), count, LONG_PHASE_NANOSECONDS)
    backward = Phase(NEIGHBOR_HASH, (2, 1, count, 5), count, LONG_PHASE_NANOSECONDS)
    run = load_program([forward, backward] * 20, 3, oversubscribed_pool)
    want = a.copy()
    run(a.ctypes.data, b.ctypes.data)
    for _ in range(20):
        want = neighbor_hash(neighbor_hash(want, 300), 5)
    assert (a == want).all()


def test_each_worker_has_its_own_scratch_memory(oversubscribed_pool: WorkerPool) -> None:
    out = np.zeros(100, np.int64)
    run = load_program(
        [Phase(SCRATCH_SUM, (5000,), 100, LONG_PHASE_NANOSECONDS)], 2, oversubscribed_pool
    )
    for _ in range(20):
        out[:] = 0
        run(out.ctypes.data)
        assert (out == np.arange(100) * 5000 + 5000 * 4999 // 2).all()


def test_long_phases_are_divided_between_workers(oversubscribed_pool: WorkerPool) -> None:
    out = np.full(64, -1)
    run = load_program(
        [Phase(WORKER_INDEX, (100_000,), 64, LONG_PHASE_NANOSECONDS)], 2, oversubscribed_pool
    )
    found: set[int] = set()
    for _ in range(50):
        run(out.ctypes.data)
        assert ((out >= 0) & (out < oversubscribed_pool.count)).all()
        found |= set(out.tolist())
    assert 0 in found
    assert len(found) > 2


def test_short_phases_run_on_the_calling_thread(oversubscribed_pool: WorkerPool) -> None:
    out = np.full(64, -1)
    load_program([Phase(WORKER_INDEX, (10,), 64, 1000.0)], 2, oversubscribed_pool)(out.ctypes.data)
    assert (out == 0).all()


def test_threads_may_call_programs_concurrently(oversubscribed_pool: WorkerPool) -> None:
    """One call uses the workers; the others run alone with their own scratch memory."""
    want = np.arange(200) * 3000 + 3000 * 2999 // 2
    run = load_program(
        [Phase(SCRATCH_SUM, (3000,), 200, LONG_PHASE_NANOSECONDS)] * 3, 2, oversubscribed_pool
    )
    mismatch_counts: list[int] = []

    def call(_: int) -> None:
        out = np.zeros(200, np.int64)
        for _ in range(20):
            out[:] = 0
            run(out.ctypes.data)
            mismatch_counts.append(int((out != want).sum()))

    run_concurrently(call, range(6))
    assert mismatch_counts == [0] * 120


def test_long_programs_release_the_gil(oversubscribed_pool: WorkerPool) -> None:
    """A long program releases the GIL; a short program keeps it."""
    out = np.full(4, -1)
    counter = [0]
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            counter[0] += 1

    # The long program is so long that the switching time during the short program does not matter.
    long = load_program([Phase(WORKER_INDEX, (120_000_000,), 4, 30e3)], 2, oversubscribed_pool)
    short = load_program([Phase(WORKER_INDEX, (20_000_000,), 4, 10e3)], 2, oversubscribed_pool)
    threading.Thread(target=count).start()
    before = counter[0]
    long(out.ctypes.data)
    while_released = counter[0] - before
    # A switch to another thread and back takes at most the switch interval of Python.
    begin = time.perf_counter()
    before = counter[0]
    short(out.ctypes.data)
    while_kept = counter[0] - before
    assert time.perf_counter() - begin > 0.02
    ended.set()
    assert while_released > 2 * max(while_kept, 1)


def test_more_callers_than_slots_wait(oversubscribed_pool: WorkerPool) -> None:
    run = load_program(
        [Phase(WORKER_INDEX, (2_000_000,), 4, LONG_PHASE_NANOSECONDS)], 2, oversubscribed_pool
    )
    outs = [np.full(4, -1) for _ in range(at.MAX_CALLERS + 8)]
    run_concurrently(run, [out.ctypes.data for out in outs])
    assert all((out >= 0).all() for out in outs)


def test_wrong_arguments_are_rejected(oversubscribed_pool: WorkerPool) -> None:
    run = load_program([Phase(MULTIPLY_ADD, (0,), 1, 0.0)], 2, oversubscribed_pool)
    with pytest.raises(
        TypeError, match=r"^a program takes one address for each slot except slot 0$"
    ):
        run()
    with pytest.raises(TypeError, match=r"^an integer is required$"):
        run("1")
    with pytest.raises(OverflowError):
        run(1 << 70)


def test_a_program_without_phases_does_nothing(oversubscribed_pool: WorkerPool) -> None:
    assert load_program([], 1, oversubscribed_pool)() is None
    assert load_program([Phase(MULTIPLY_ADD, (0,), 0, 0.0)], 2, oversubscribed_pool)(0) is None


def test_phases_with_memory_for_fewer_workers_run_on_the_caller(
    oversubscribed_pool: WorkerPool,
) -> None:
    """Kernels compute addresses of this memory from the index of the worker."""

    def indices(max_workers: int) -> set[int]:
        out = np.full(64, -1)
        phase = Phase(WORKER_INDEX, (100_000,), 64, LONG_PHASE_NANOSECONDS, "", max_workers)
        load_program([phase], 2, oversubscribed_pool)(out.ctypes.data)
        return set(out.tolist())

    assert indices(oversubscribed_pool.count - 1) == {0}
    assert any(indices(oversubscribed_pool.count) - {0} for _ in range(50))


def test_table_rows_have_flags_for_parallel_phases_and_wakeups() -> None:
    def phase(tasks: int, cost: float) -> Phase:
        return Phase(MULTIPLY_ADD, (0,), tasks, cost)

    parallel_and_wake = at.FLAG_PARALLEL | at.FLAG_WAKE
    assert table_rows([phase(8, 1000.0), phase(8, 150e3), phase(1, 1e6), phase(8, 70e3)], 2) == [
        (0, 0, 8, 0),
        (1, 0, 8, parallel_and_wake),  # 220 us of parallel work follow
        (2, 0, 1, 0),
        (3, 0, 8, at.FLAG_PARALLEL),
    ]


def test_table_rows_split_long_phases_to_check_signals() -> None:
    long = Phase(MULTIPLY_ADD, (0,), 10, 350e6)
    parallel_and_wake = at.FLAG_PARALLEL | at.FLAG_WAKE
    assert table_rows([long], 1) == [
        (0, 0, 3, parallel_and_wake | at.FLAG_CHECK_SIGNALS),
        (0, 3, 3, parallel_and_wake | at.FLAG_CHECK_SIGNALS),
        (0, 6, 4, parallel_and_wake | at.FLAG_CHECK_SIGNALS),
    ]
    endless = Phase(MULTIPLY_ADD, (0,), 1 << 60, 1e30)
    assert len(table_rows([endless], 2)) == MAX_ROWS_PER_PHASE
    many = [Phase(MULTIPLY_ADD, (0,), 1, 30e6)] * 5
    assert [flags for *_, flags in table_rows(many, 2)] == [0, 0, 0, at.FLAG_CHECK_SIGNALS, 0]


@pytest.mark.parametrize(
    ("tasks", "seconds", "workers", "sizes"),
    [
        (32, 2.5, 2, [16, 16]),  # 8 tasks per worker
        (31, 2.5, 2, [31]),
        (3, 30, 2, [3]),
        (99, 0.4, 2, [50, 49]),  # 0.2 s with two workers
        (1000, 4, 8, [200, 200, 200, 200, 200]),
        (1, 30, 2, [1]),
    ],
)
def test_rows_of_long_phases_have_several_tasks_for_each_worker(
    tasks: int, seconds: float, workers: int, sizes: list[int]
) -> None:
    """The workers wait for each other at the end of a row."""
    rows = table_rows([Phase(MULTIPLY_ADD, (0,), tasks, seconds * 1e9)], workers)
    assert [count for _, _, count, _ in rows] == sizes
    assert [first for _, first, _, _ in rows] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert all(flags & at.FLAG_CHECK_SIGNALS for *_, flags in rows)


@pytest.mark.parametrize("workers", [1, 2, 8, 64])
def test_long_work_has_enough_tasks_for_checks_of_signals(workers: int) -> None:
    """Work of 1 s for each worker has ten rows, and work of 1 ms has a row of a few tasks."""

    def row_sizes(cost: float) -> list[int]:
        phase = Phase(MULTIPLY_ADD, (0,), choose_task_count(cost, workers), cost)
        return [count for _, _, count, _ in table_rows([phase], workers)]

    assert row_sizes(1e9 * workers) == [8 * workers] * 10
    assert row_sizes(1e6 * workers) == [TASKS_PER_WORKER * workers]


def test_split_phases_run_every_task_once(oversubscribed_pool: WorkerPool) -> None:
    words = np.zeros(1001, np.uint64)
    load_program([Phase(MULTIPLY_ADD, (7,), 1001, 5e9)] * 2, 2, oversubscribed_pool)(
        words.ctypes.data
    )
    assert (words == 28).all()


def test_kernels_are_those_of_the_machine_of_the_program() -> None:
    def text(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        f = LLVMFunction(module, "add_cache_bytes", ["ptr", "ptr", "i64", "i64"])
        target = f.load(f.offset(f.params[0], 8), "ptr")
        f.store(f.load(target, "i64") + machine.l1_bytes, target)
        f.ret()
        return module.text()

    phases = [Phase(Kernel("add_cache_bytes", text), (), 1, 0.0)]
    word = np.ones(1, np.int64)
    load_program(phases, 2, machine=replace(host_machine(), l1_bytes=1234))(word.ctypes.data)
    assert word.tolist() == [1235]
    load_program(phases, 2)(word.ctypes.data)
    assert word.tolist() == [1235 + host_machine().l1_bytes]
