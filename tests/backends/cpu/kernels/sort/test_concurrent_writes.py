"""Concurrent writes to an array during a sort affect only the result, and no other memory."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

import shardir.numpy as snp
from shardir.backends.cpu.kernel_api import BufferView, Phase
from shardir.backends.cpu.kernels.selection.radix_select import radix_select_phases
from shardir.backends.cpu.kernels.sort.complex_sort import complex_sort_phases
from shardir.backends.cpu.kernels.sort.radix_sort import radix_sort_phases
from shardir.backends.cpu.kernels.sort.signed_zeros import signed_zero_phases
from tests.backends.cpu.phase_runner import RuleHarness

SIZE, SURROUNDING_SIZE = 100_000, 200_000


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["i1", "i4", "f4", "f8"])
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_changed_digits_stay_within_the_line(kind: str, places: bool, step: int) -> None:
    for after in (0, 100):
        source = np.resize(np.array([0, 100], kind), (1, SIZE))
        memory = np.full(2 * SIZE + 2 * SURROUNDING_SIZE, 77, "i4" if places else kind)
        lines = memory[SURROUNDING_SIZE : SURROUNDING_SIZE + 2 * SIZE]
        target = lines[:: abs(step)][:SIZE][:: 1 if step > 0 else -1].reshape(1, SIZE)
        bench = RuleHarness()
        phases = radix_sort_phases(bench.view(source), bench.view(target), 1, places, bench)
        assert phases is not None
        bench.run(phases[:1])
        source[:] = after
        bench.run(phases[1:2])
        write_concurrently = np.zeros(memory.shape, bool)
        write_concurrently[SURROUNDING_SIZE : SURROUNDING_SIZE + 2 * SIZE][:: abs(step)][:SIZE] = (
            True
        )
        assert (memory[~write_concurrently] == 77).all()
        bench.run(phases[2:])
        assert (memory[~write_concurrently] == 77).all()


def test_positions_of_overwritten_elements_are_valid() -> None:
    source, target = np.zeros((1, SIZE), np.float32), np.ones((1, SIZE), np.float32)
    bench = RuleHarness()
    phases = radix_select_phases(bench.view(source), bench.view(target), 1, [SIZE // 2], bench)
    assert phases is not None
    bench.run(phases[:2])
    source[:] = -8.0
    bench.run(phases[2:])
    assert target[0, SIZE // 2].view(np.uint32) >> 21 == 0


def test_overwritten_zeros_are_not_searched_beyond_the_line() -> None:
    source = np.resize(np.array([0.0, -0.0, 1.0], np.float32), (1, SIZE))
    target = np.sort(source)
    zeros, first = int((source == 0).sum()), target[0, 0]
    target[0, zeros - 1] = -first
    bench = RuleHarness()
    phases = signed_zero_phases(bench.view(source), bench.view(target), 1)
    source[:] = 1.0
    bench.run(phases)
    np.testing.assert_array_equal(target[0], [0.0] * zeros + [1.0] * (SIZE - zeros))


def test_added_complex_zeros_stay_within_the_line() -> None:
    size = 1000
    source = np.resize(np.array([-1, complex(-0.0, 0)], np.complex64), (1, size))
    memory = np.full(3 * size, 77, np.complex64)
    target = memory[size : 2 * size].reshape(1, size)
    bench = RuleHarness()

    def sort(x: BufferView, y: BufferView) -> list[Phase] | None:
        return radix_sort_phases(x, y, 1, False, bench)

    phases = complex_sort_phases(bench.view(source), bench.view(target), 1, sort, bench)
    assert phases is not None
    bench.run(phases[:-1])
    for wrong in (complex(-0.0, 0), complex(5, -0.0)):
        source[:] = wrong
        bench.run(phases[-1:])
        assert (memory[:size] == 77).all()
        assert (memory[2 * size :] == 77).all()


@contextmanager
def write_concurrently(array: np.ndarray, values: Sequence[float | np.ndarray]) -> Iterator[None]:
    """Let another thread write these values repeatedly to all elements of an array."""
    going = [True]

    def write() -> None:
        while going[0]:
            for value in values:
                array[:] = value

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        going[0] = False
        thread.join()


def test_adjacent_lines_are_sorted_during_concurrent_writes() -> None:
    array = np.zeros((64, 4000), np.float32)
    with write_concurrently(array, [-1.0, -0.0]):
        for _ in range(100):
            assert np.isin(snp.sort(array, axis=0), [-1.0, 0.0]).all()


@pytest.mark.parametrize("size", [5000, 2_000_000])
def test_argmax_stays_within_the_array_during_concurrent_writes(size: int) -> None:
    array, falling = np.zeros(size, np.float32), np.arange(size, 0, -1, dtype=np.float32)
    with write_concurrently(array, [falling, falling + 0.25]):
        for _ in range(200):
            assert 0 <= int(snp.argmax(array)) < size
