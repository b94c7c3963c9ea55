"""Programs of phases: results, arguments, sharing, cutting."""

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from shardir.backends.cpu.dispatch.program_table import load_program, table_rows
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.workers import WorkerPool
from tests.backends.cpu.sample_kernels import MIX, MULTIPLY_ADD, SCRATCH, WHO, mixed
from tests.process_control.threads import at_once

LONG = 1e6


@pytest.fixture(params=["futex", "condition"], scope="module")
def crowd(request: pytest.FixtureRequest) -> Iterator[WorkerPool]:
    """Eight threads, more than there are cores, that sleep at once."""
    pool = WorkerPool(8, request.param, spin=2000)
    yield pool
    pool.stop()


@pytest.mark.parametrize("cost", [0.0, LONG], ids=["alone", "shared"])
@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 64])
def test_phases_run_in_order_and_every_task_once(
    crowd: WorkerPool, cost: float, tasks: int
) -> None:
    words = np.arange(tasks + 1, dtype=np.uint64)
    run = load_program([Phase(MULTIPLY_ADD, (k,), tasks, cost) for k in range(50)], 2, crowd)
    want = words.copy()
    for k in range(50):
        want[:tasks] = want[:tasks] * np.uint64(3) + np.uint64(k)
    assert run(words.ctypes.data) is None
    assert (words == want).all()


def test_phases_see_what_others_before_them_wrote(crowd: WorkerPool) -> None:
    count = 40
    a, b = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)
    there = Phase(MIX, (1, 2, count, 300), count, LONG)
    back = Phase(MIX, (2, 1, count, 5), count, LONG)
    run = load_program([there, back] * 20, 3, crowd)
    want = a.copy()
    run(a.ctypes.data, b.ctypes.data)
    for _ in range(20):
        want = mixed(mixed(want, 300), 5)
    assert (a == want).all()


def test_each_worker_has_scratch_memory_of_its_own(crowd: WorkerPool) -> None:
    out = np.zeros(100, np.int64)
    run = load_program([Phase(SCRATCH, (5000,), 100, LONG)], 2, crowd)
    for _ in range(20):
        out[:] = 0
        run(out.ctypes.data)
        assert (out == np.arange(100) * 5000 + 5000 * 4999 // 2).all()


def test_long_phases_are_shared_between_workers(crowd: WorkerPool) -> None:
    out = np.full(64, -1)
    run = load_program([Phase(WHO, (100_000,), 64, LONG)], 2, crowd)
    found: set[int] = set()
    for _ in range(50):
        run(out.ctypes.data)
        assert ((out >= 0) & (out < crowd.count)).all()
        found |= set(out.tolist())
    assert 0 in found
    assert len(found) > 2


def test_short_phases_stay_with_the_caller(crowd: WorkerPool) -> None:
    out = np.full(64, -1)
    load_program([Phase(WHO, (10,), 64, 1000.0)], 2, crowd)(out.ctypes.data)
    assert (out == 0).all()


def test_threads_may_call_at_once(crowd: WorkerPool) -> None:
    """One has the workers, the others run alone, in scratch memory of their own."""
    want = np.arange(200) * 3000 + 3000 * 2999 // 2
    run = load_program([Phase(SCRATCH, (3000,), 200, LONG)] * 3, 2, crowd)
    faults: list[int] = []

    def call(_: int) -> None:
        out = np.zeros(200, np.int64)
        for _ in range(20):
            out[:] = 0
            run(out.ctypes.data)
            faults.append(int((out != want).sum()))

    at_once(call, range(6))
    assert faults == [0] * 120


def test_other_python_threads_run_meanwhile(crowd: WorkerPool) -> None:
    """A program that is worth it gives up the GIL, and a short one keeps it."""
    out = np.full(4, -1)
    counted = [0]
    ended = threading.Event()

    def count() -> None:
        while not ended.is_set():
            counted[0] += 1

    # So much longer that what the other thread gets beside the short one does not matter.
    long = load_program([Phase(WHO, (120_000_000,), 4, 30e3)], 2, crowd)
    keeping = load_program([Phase(WHO, (20_000_000,), 4, 10e3)], 2, crowd)
    threading.Thread(target=count).start()
    before = counted[0]
    long(out.ctypes.data)
    while_released = counted[0] - before
    # The switch to and from the other thread takes no longer than Python's interval.
    begin = time.perf_counter()
    before = counted[0]
    keeping(out.ctypes.data)
    while_kept = counted[0] - before
    assert time.perf_counter() - begin > 0.02
    ended.set()
    assert while_released > 2 * max(while_kept, 1)


def test_more_threads_than_places_wait_for_one(crowd: WorkerPool) -> None:
    run = load_program([Phase(WHO, (2_000_000,), 4, LONG)], 2, crowd)
    outs = [np.full(4, -1) for _ in range(at.MAX_CALLERS + 8)]
    at_once(run, [out.ctypes.data for out in outs])
    assert all((out >= 0).all() for out in outs)


def test_wrong_arguments_are_refused(crowd: WorkerPool) -> None:
    run = load_program([Phase(MULTIPLY_ADD, (0,), 1, 0.0)], 2, crowd)
    with pytest.raises(
        TypeError, match=r"^a program takes one address for each slot except slot 0$"
    ):
        run()
    with pytest.raises(TypeError, match=r"^an integer is required$"):
        run("1")
    with pytest.raises(OverflowError):
        run(1 << 70)


def test_a_program_without_phases_does_nothing(crowd: WorkerPool) -> None:
    assert load_program([], 1, crowd)() is None
    assert load_program([Phase(MULTIPLY_ADD, (0,), 0, 0.0)], 2, crowd)(0) is None


def test_rows_say_what_is_shared_and_what_wakes() -> None:
    def phase(tasks: int, cost: float) -> Phase:
        return Phase(MULTIPLY_ADD, (0,), tasks, cost)

    both = at.FLAG_PARALLEL | at.FLAG_WAKE
    assert table_rows([phase(8, 1000.0), phase(8, 150e3), phase(1, 1e6), phase(8, 70e3)]) == [
        (0, 0, 8, 0),
        (1, 0, 8, both),  # 220 us of shared work are still to come
        (2, 0, 1, 0),
        (3, 0, 8, at.FLAG_PARALLEL),
    ]


def test_rows_cut_long_phases_so_that_signals_are_seen() -> None:
    long = Phase(MULTIPLY_ADD, (0,), 10, 350e6)
    both = at.FLAG_PARALLEL | at.FLAG_WAKE
    assert table_rows([long]) == [
        (0, 0, 3, both | at.FLAG_CHECK_SIGNALS),
        (0, 3, 3, both | at.FLAG_CHECK_SIGNALS),
        (0, 6, 4, both | at.FLAG_CHECK_SIGNALS),
    ]
    many = [Phase(MULTIPLY_ADD, (0,), 1, 30e6)] * 5
    assert [flags for *_, flags in table_rows(many)] == [0, 0, 0, at.FLAG_CHECK_SIGNALS, 0]


def test_phases_in_pieces_run_every_task_once(crowd: WorkerPool) -> None:
    words = np.zeros(1001, np.uint64)
    load_program([Phase(MULTIPLY_ADD, (7,), 1001, 5e9)] * 2, 2, crowd)(words.ctypes.data)
    assert (words == 28).all()
