"""What there is once in a process, and the first calls of many threads."""

import subprocess
import sys
from contextlib import suppress

from shardir.backends.cpu.dispatch.once import memoize_once


def test_all_have_what_was_there_first() -> None:
    """Also who began to make it before, as a thread that has to wait meanwhile does."""
    first: list[object] = []

    @memoize_once
    def make(number: int) -> object:
        if not first:
            first.append(None)
            first[0] = make(number)
        return object()

    assert make(1) is first[0]
    assert make(1) is first[0]
    assert make(2) is not first[0]


def test_what_raises_is_tried_again() -> None:
    tried = []

    @memoize_once
    def make() -> int:
        tried.append(1)
        if len(tried) < 2:
            raise KeyboardInterrupt
        return 7

    with suppress(KeyboardInterrupt):
        make()
    assert make() == make() == 7
    assert len(tried) == 2


FIRST_CALLS = """
import sys
from threading import Barrier
import numpy as np
import shardir as sd, shardir.numpy as snp
from tests.process_control.threads import at_once

sys.setswitchinterval(1e-6)
both, passed = sd.jit(lambda x, y: (x + y, {"sum": (x * y).sum()})), sd.jit(lambda x: x * 2)
given = sd.jit(lambda x: x + 1, donate_argnums=0)
numbers, together = np.arange(12, dtype=np.float32), Barrier(8)

def work(_):
    together.wait()
    for _ in range(30):
        made, more = both(numbers, numbers)
        assert np.array_equal(made, numbers + numbers) and float(more["sum"]) == 506
        assert np.array_equal(given(passed(numbers)), numbers * 2 + 1)
        assert np.array_equal(snp.add(numbers, numbers), numbers + numbers)
        assert np.array_equal(snp.zeros_like(numbers)[1:3] + snp.asarray(numbers)[:2], numbers[:2])

at_once(work, range(8))
"""


def test_threads_may_make_the_first_calls_of_a_process_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
