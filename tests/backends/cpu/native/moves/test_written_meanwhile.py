"""Elements that another thread changes between two looks go to wrong places of the result alone."""

import numpy as np
import pytest

from shardir.backends.cpu.native.moves.picking import picked_phases
from shardir.backends.cpu.native.moves.radix import sorted_phases
from tests.backends.cpu.native.running import Bench

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
        bench = Bench()
        phases = sorted_phases(bench.view(source), bench.view(target), 1, places, bench)
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
    bench = Bench()
    phases = picked_phases(bench.view(source), bench.view(target), 1, [SIZE // 2], bench)
    assert phases is not None
    bench.run(phases[:2])
    source[:] = -8.0
    bench.run(phases[2:])
    assert target[0, SIZE // 2].view(np.uint32) >> 21 == 0
