"""Lifetime of native call caches and of their objects, across threads and processes."""

import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.backends.cpu.threads.memory import statistics
from shardir.frontend.arrays.array import Array
from shardir.frontend.dispatch import native_call_cache
from shardir.frontend.errors import DeletedArrayError, NumberRangeError
from tests.call_count import count_calls
from tests.frontend.dispatch.native_call_samples import (
    WHOLE,
    A,
    X,
    Y,
    insert_every_call as insert_every_call,
    plus,
    scaled,
)
from tests.process_control.threads import run_concurrently


def test_settings_are_thread_local() -> None:
    wrong: list[object] = []
    turn = threading.Barrier(2)

    def work(wide: bool) -> None:
        with sd.enable_x64(wide):
            for _ in range(200):
                turn.wait()
                if (WHOLE * 1.5).dtype != (np.float64 if wide else np.float32):
                    wrong.append(wide)

    run_concurrently(work, (True, False))
    assert wrong == []


def test_threads_call_while_the_cache_is_cleared() -> None:
    fun = sd.jit(lambda x: x + 1)
    wrong: list[object] = []

    def work(number: int) -> None:
        arrays = [snp.asarray(np.full(size, number, np.float32)) for size in range(1, 6)]
        for turn in range(100):
            for array in arrays:
                made = fun(array) + array * float(turn)
                if not (np.asarray(made) == number + 1 + number * turn).all():
                    wrong.append(number)
            if turn % 20 == number:
                fun.clear_cache()

    run_concurrently(work, range(4))
    assert wrong == []


def test_a_function_keeps_its_call_cache() -> None:
    """Threads may create caches concurrently."""
    fun = sd.jit(lambda x: x + 1)
    fun(X)
    first = fun.call_cache
    assert first is not None
    assert native_call_cache.call_cache_of(fun, ((), ())) is first
    calls = count_calls(lambda: fun(X))
    np.testing.assert_array_equal(fun(X), A + 1)
    assert calls == count_calls(lambda: None)


def test_a_deleted_argument_is_an_error_on_a_cache_hit() -> None:
    gone = snp.asarray(A + 1)
    calls: list[Callable[[], Any]] = [
        lambda: X + gone, lambda: gone[0], lambda: gone.sum(), lambda: -gone,
    ]  # fmt: skip
    assert snp.ones_like(gone).shape == gone.shape
    for call in calls:
        call(), call()
    gone.delete()
    for call in calls:
        for _ in range(2):
            with pytest.raises(DeletedArrayError):
                call()


def test_calls_leave_reference_counts_unchanged() -> None:
    gc.freeze()  # Collecting the objects of earlier tests takes seconds.
    gone = snp.asarray(A)
    gone.delete()

    def calls() -> None:
        snp.add(X, Y), X * 2.5, 3 - X, X[1:2], X.reshape(4, 3), snp.zeros_like(X), plus(X, Y)
        snp.sum(X, axis=0), snp.split(X, 2, axis=1), scaled(X, 3), snp.concatenate([X, Y])
        for array, number in ((X, gone), (WHOLE, 2**40)):
            with pytest.raises((DeletedArrayError, NumberRangeError)):
                array + number

    for _ in range(3):
        calls()
    gc.collect()
    things = [X, Y, X.buffers, Y.buffers, X.signature, X.sharding, X.buffers.owner]
    things += [snp.add, scaled, Array]
    things += [type(X.buffers), X.buffers.shape, X.buffers.dtype, gone, (1, 2), 2.5, "", True]
    nothing, memory = sys.getrefcount(None), statistics().in_use
    before = [sys.getrefcount(each) for each in things]
    for _ in range(100):
        calls()
    gc.collect()
    assert [sys.getrefcount(each) for each in things] == before
    assert abs(sys.getrefcount(None) - nothing) < 50
    assert statistics().in_use == memory


@pytest.mark.parametrize("size", [5, 5000, 2_000_000])
def test_results_keep_their_memory_alive(size: int) -> None:
    numbers = np.arange(size, dtype=np.float32)
    x = snp.asarray(numbers)
    kept = [x * float(k) for k in range(5)]
    views = [np.asarray(snp.reshape(x + 1.0, (1, size))) for _ in range(3)]
    for k, each in enumerate(kept):
        np.testing.assert_array_equal(each, numbers * k)
    for view in views:
        np.testing.assert_array_equal(view[0], numbers + 1)


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_process_uses_the_cache() -> None:
    run("""
import os, sys
import shardir.numpy as snp
x, y = snp.arange(5), snp.ones(5)
for _ in range(3):
    made = x + y, x * 7.0
child = os.fork()
made = (x + y)[4].item(), (x * 7.0)[1].item()
if child == 0:
    os._exit(0 if made == (5, 7) else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""")


def test_results_may_outlive_the_interpreter_state() -> None:
    run("""
import builtins
import shardir as sd, shardir.numpy as snp
x = snp.ones((3, 4))
f = sd.jit(lambda x: (x + 1, x.sum()))
class Late:
    def __init__(self, held):
        self.held = held
    def __del__(self):
        self.held = None
builtins.kept = [x + 1 for _ in range(5)], f(x), f(x), Late(x * 2), x[0], snp.ones_like(x)
""")
