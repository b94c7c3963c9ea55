"""Objects that exist once per process, and concurrent first calls."""

import subprocess
import sys
from contextlib import suppress

from shardir.backends.cpu.dispatch.entry_point import memoize_once


def test_the_first_created_object_is_used_by_all() -> None:
    """A recursive call may create the object first, as another thread may during a wait."""
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


def test_creation_is_retried_after_an_exception() -> None:
    attempts = []

    @memoize_once
    def make() -> int:
        attempts.append(1)
        if len(attempts) < 2:
            raise KeyboardInterrupt
        return 7

    with suppress(KeyboardInterrupt):
        make()
    assert make() == make() == 7
    assert len(attempts) == 2


FIRST_CALLS = """
import sys
from threading import Barrier
import numpy as np
import shardir as sd, shardir.numpy as snp
from tests.process_control.threads import run_concurrently

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

run_concurrently(work, range(8))
"""


def test_the_first_calls_of_a_process_may_be_concurrent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALLS], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")
