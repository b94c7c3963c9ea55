"""Elements that another thread changes between two looks go to wrong places of the result alone."""

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

SIZE, AROUND = 100_000, 200_000


@pytest.mark.parametrize("kind", ["i1", "i4", "f4", "f8"])
@pytest.mark.parametrize("places", [False, True])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_digits_that_changed_stay_within_the_line(kind: str, places: bool, step: int) -> None:
    for after in (0, 100):
        source = np.resize(np.array([0, 100], kind), (1, SIZE))
        memory = np.full(2 * SIZE + 2 * AROUND, 77, "i4" if places else kind)
        lines = memory[AROUND : AROUND + 2 * SIZE]
        target = lines[:: abs(step)][:SIZE][:: 1 if step > 0 else -1].reshape(1, SIZE)
        bench = RuleHarness()
        phases = radix_sort_phases(bench.view(source), bench.view(target), 1, places, bench)
        assert phases is not None
        bench.run(phases[:1])
        source[:] = after
        bench.run(phases[1:2])
        written = np.zeros(memory.shape, bool)
        written[AROUND : AROUND + 2 * SIZE][:: abs(step)][:SIZE] = True
        assert (memory[~written] == 77).all()
        bench.run(phases[2:])
        assert (memory[~written] == 77).all()


def test_a_place_among_elements_that_are_gone_is_a_number_all_the_same() -> None:
    source, target = np.zeros((1, SIZE), np.float32), np.ones((1, SIZE), np.float32)
    bench = RuleHarness()
    phases = radix_select_phases(bench.view(source), bench.view(target), 1, [SIZE // 2], bench)
    assert phases is not None
    bench.run(phases[:2])
    source[:] = -8.0
    bench.run(phases[2:])
    assert target[0, SIZE // 2].view(np.uint32) >> 21 == 0


def test_zeros_that_are_gone_are_not_looked_for_behind_the_line() -> None:
    source = np.resize(np.array([0.0, -0.0, 1.0], np.float32), (1, SIZE))
    target = np.sort(source)
    zeros, first = int((source == 0).sum()), target[0, 0]
    target[0, zeros - 1] = -first
    bench = RuleHarness()
    phases = signed_zero_phases(bench.view(source), bench.view(target), 1)
    source[:] = 1.0
    bench.run(phases)
    np.testing.assert_array_equal(target[0], [0.0] * zeros + [1.0] * (SIZE - zeros))


def test_complex_zeros_that_came_meanwhile_stay_within_the_line() -> None:
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
def written(array: np.ndarray, values: Sequence[float | np.ndarray]) -> Iterator[None]:
    """Another thread writes these values into an array, one after the other, all over it."""
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


def test_lines_side_by_side_are_sorted_while_zeros_come_and_go() -> None:
    array = np.zeros((64, 4000), np.float32)
    with written(array, [-1.0, -0.0]):
        for _ in range(100):
            assert np.isin(snp.sort(array, axis=0), [-1.0, 0.0]).all()


@pytest.mark.parametrize("size", [5000, 2_000_000])
def test_the_largest_is_looked_for_within_the_array_while_it_goes(size: int) -> None:
    array, falling = np.zeros(size, np.float32), np.arange(size, 0, -1, dtype=np.float32)
    with written(array, [falling, falling + 0.25]):
        for _ in range(200):
            assert 0 <= int(snp.argmax(array)) < size
