"""Records of tasks with their worker and time, and the roofline of the machine."""

import time
from contextlib import ExitStack

import numpy as np

from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.threads import shared_memory_layout as at, task_recording
from shardir.backends.cpu.threads.roofline import Roofline, measure, roofline
from shardir.backends.cpu.threads.task_recording import RecordedTask
from shardir.backends.cpu.threads.workers import WorkerPool
from shardir.backends.numpy.marks import record_mark, record_marks
from tests.backends.cpu.sample_kernels import MULTIPLY_ADD, WORKER_INDEX

LONG_PHASE_NANOSECONDS = 1e6


def test_every_task_is_recorded_with_its_worker() -> None:
    pool = WorkerPool(3, spin=2000)
    out = np.full(40, -1)
    run = load_program(
        [
            Phase(WORKER_INDEX, (20_000,), 40, LONG_PHASE_NANOSECONDS, "first"),
            Phase(MULTIPLY_ADD, (0,), 2, 0.0, "second"),
        ],
        2,
        pool,
        causes=["one", "two"],
    )
    run(out.ctypes.data)
    with task_recording.record_tasks(pool) as record:
        began = time.monotonic_ns()
        run(out.ctypes.data)
        ended = time.monotonic_ns()
        tasks = record.take()
        assert record.take() == []
    pool.stop()
    found = sorted((each.phase, each.task) for each in tasks)
    assert found == [(0, task) for task in range(40)] + [(1, 0), (1, 1)]
    worker_of_task = {each.task: each.thread for each in tasks if each.phase == 0}
    out[:2] //= 3  # the second phase multiplied these by 3
    assert [worker_of_task[task] for task in range(40)] == out.tolist()
    assert all(began <= each.begin <= each.end <= ended for each in tasks)
    first_end = max(each.end for each in tasks if each.phase == 0)
    assert all(each.begin >= first_end for each in tasks if each.phase == 1)
    assert {each.program.phases[each.phase].label for each in tasks} == {"first", "second"}
    assert {each.program.causes[each.phase] for each in tasks} == {"one", "two"}


def test_runs_outside_the_context_are_not_recorded() -> None:
    pool = WorkerPool(2)
    words = np.zeros(4, np.uint64)
    run = load_program([Phase(MULTIPLY_ADD, (1,), 4, LONG_PHASE_NANOSECONDS)], 2, pool)
    with task_recording.record_tasks(pool) as record:
        pass
    run(words.ctypes.data)
    assert record.take() == []
    pool.stop()


def test_long_recordings_keep_the_latest_tasks() -> None:
    pool = WorkerPool(1)
    words = np.zeros(1, np.uint64)
    run = load_program([Phase(MULTIPLY_ADD, (1,), 1, 0.0)] * 1000, 2, pool)
    with task_recording.record_tasks(pool) as record:
        for _ in range(70):
            run(words.ctypes.data)
        tasks = record.take()
        assert len(tasks) == at.RING_RECORDS
        assert record.dropped_tasks == 70_000 - at.RING_RECORDS
        assert max(each.phase for each in tasks) == 999
        run(words.ctypes.data)
        assert [each.phase for each in record.take()] == [*range(1000)]
        assert record.dropped_tasks == 0


def test_recordings_may_overlap_and_end_in_any_order() -> None:
    pool = WorkerPool(1)
    words = np.zeros(1, np.uint64)
    run = load_program([Phase(MULTIPLY_ADD, (1,), 1, 0.0)] * 3, 2, pool)
    first, second = task_recording.record_tasks(pool), task_recording.record_tasks(pool)
    with ExitStack() as stack:
        one = stack.enter_context(first)
        run(words.ctypes.data)
        with second as two:
            run(words.ctypes.data)
            assert len(two.take()) == 3
            assert len(one.take()) == 6
            stack.close()
            run(words.ctypes.data)
            assert len(two.take()) == 3
    run(words.ctypes.data)
    assert two.take() == []


def test_marks_of_python_code_are_recorded() -> None:
    begin = time.monotonic_ns()
    record_mark("outside", begin)
    with record_marks() as marks:
        record_mark("inside", begin)
    record_mark("outside", begin)
    assert [(each.subject, each.begin) for each in marks] == [("inside", begin)]
    assert begin <= marks[0].end <= time.monotonic_ns()


def test_collections_of_marks_may_overlap_and_end_in_any_order() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(record_marks())
        with record_marks() as second:
            record_mark("both", 0)
            stack.close()
            record_mark("second", 0)
    record_mark("none", 0)
    assert [each.subject for each in first] == ["both"]
    assert [each.subject for each in second] == ["both", "second"]


def test_tasks_are_ordered_by_their_start() -> None:
    pool = WorkerPool(1)
    words = np.zeros(3, np.uint64)
    run = load_program([Phase(MULTIPLY_ADD, (1,), 3, 0.0)] * 5, 2, pool)
    with task_recording.record_tasks(pool) as record:
        run(words.ctypes.data)
        tasks: list[RecordedTask] = record.take()
    assert [(each.phase, each.task) for each in tasks] == [
        (p, t) for p in range(5) for t in (0, 1, 2)
    ]


def test_the_measured_roofline_is_plausible() -> None:
    pool = WorkerPool(2)
    found = measure(pool)
    pool.stop()
    assert 1e8 < found.bandwidth < 1e13
    assert 1e8 < found.flops < 1e15
    assert roofline() is roofline()


def test_the_time_bound_is_the_larger_of_memory_and_compute() -> None:
    limits = Roofline(1e9, 1e10)
    assert limits.seconds(1_000_000, 0) == 1e-3
    assert limits.seconds(1_000_000, 100_000_000) == 1e-2
