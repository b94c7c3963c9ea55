"""Data-dependent loops and branches in one native call: interruption, threads, forks, memory."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads import memory
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.call_count import count_calls
from tests.process_control.signals import Interrupted, alarm, assert_another_thread_ends
from tests.process_control.threads import run_concurrently

X = np.linspace(0.5, 2, 8, dtype=np.float32)


def double_or_increment(x: Any, limit: Any) -> Any:
    """Double or increment x until the sum reaches the limit; return the iteration count and x."""

    def below_limit(carried: Any) -> Any:
        return carried[1].sum() < limit

    def another(carried: Any) -> Any:
        count, y = carried
        return count + 1, lax.cond(count % 3 == 0, lambda z: z * 2, lambda z: z + 1, y)

    return lax.while_loop(below_limit, another, (0, x))


def double_or_increment_numpy(x: Any, limit: float) -> tuple[int, Any]:
    count = 0
    while x.sum() < limit:
        x = x * 2 if count % 3 == 0 else x + np.float32(1)
        count += 1
    return count, x


DOUBLE_OR_INCREMENT = sd.jit(double_or_increment)


@pytest.mark.parametrize("limit", [-1.0, 20.0, 25.0, 100.0, 1e4])
def test_iterations_and_branches_depend_on_data(limit: float) -> None:
    count, y = DOUBLE_OR_INCREMENT(X, limit)
    rounds, expected = double_or_increment_numpy(X, limit)
    assert int(count) == rounds
    np.testing.assert_array_equal(y, expected)


def test_iterations_run_no_python_code() -> None:
    x, few, many = (snp.asarray(each) for each in (X, np.float32(30), np.float32(1e30)))
    for limit in (few, many):
        DOUBLE_OR_INCREMENT(x, limit)
    assert count_calls(lambda: DOUBLE_OR_INCREMENT(x, many)) == count_calls(
        lambda: DOUBLE_OR_INCREMENT(x, few)
    )


def test_nested_loops_with_switches_match_python() -> None:
    def f(x: Any) -> Any:
        def body(carried: Any, row: Any) -> Any:
            def another(inner: Any) -> Any:
                y, i = inner
                ways = [lambda z: z + row, lambda z: z * 2, snp.abs, lambda z: z - 1]
                return lax.switch(i % 6 - 1, ways, y) + 1, i + 1

            y, i = lax.while_loop(lambda inner: inner[0].sum() < 40, another, (carried, 0))
            return y / 9, (y, i)

        return lax.scan(body, x[0], x, reverse=True)

    x = np.random.default_rng(0).uniform(0.1, 1, (7, 4)).astype(np.float32)
    last, (stacked, rounds) = sd.jit(f)(x)
    rows: list[Any] = []
    counts: list[int] = []
    carried = x[0]
    for row in x[::-1]:
        y, i = carried, 0
        while y.sum() < 40:
            way = min(max(i % 6 - 1, 0), 3)
            y = [y + row, y * 2, np.abs(y), y - 1][way] + 1
            i += 1
        carried = y / np.float32(9)
        rows.insert(0, y)
        counts.insert(0, i)
    assert rounds.tolist() == counts
    np.testing.assert_allclose(stacked, rows, rtol=1e-5)
    np.testing.assert_allclose(last, carried, rtol=1e-5)


@pytest.mark.parametrize("limit", [20.0, 25.0, 100.0])
def test_python_continues_native_loops_around_numpy_calls(limit: float) -> None:
    """A loop leaves its results in one of two buffers, depending on the number of iterations."""

    def f(x: Any, limit: Any) -> Any:
        def body(i: Any, carried: Any) -> Any:
            count, y = double_or_increment(carried, limit + i)
            _, least = lax.sort((y + 1j, y), num_keys=1)  # NumPy executes sorts of complex numbers
            return y / 3 + least.sum() * 0 + count * 0

        return lax.fori_loop(0, 3, body, x)

    y = X
    for i in range(3):
        y = double_or_increment_numpy(y, limit + i)[1] / np.float32(3)
    np.testing.assert_allclose(sd.jit(f)(X, limit), y, rtol=1e-5)


def test_loops_on_eight_devices_match_python() -> None:
    mesh = sd.make_mesh((8,), ("x",))
    x = sd.device_put(X, NamedSharding(mesh, P("x")))
    count, y = DOUBLE_OR_INCREMENT(x, 1e4)
    rounds, expected = double_or_increment_numpy(X, 1e4)
    assert int(count) == rounds
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("size", [8, 1 << 16, 1 << 21])
def test_an_endless_loop_can_be_interrupted(size: int) -> None:
    """Iterations may take nanoseconds or milliseconds; later calls still work."""
    endless = sd.jit(lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: snp.sin(y), x))
    x = snp.ones(size) / 2
    # Compile first: Python suppresses exceptions of signal handlers in destructors, which
    # compilation runs.
    endless(x + 9)
    with pytest.raises(Interrupted), alarm(0.3):
        endless(x)
    np.testing.assert_array_equal(x, np.full(size, 0.5, np.float32))
    np.testing.assert_array_equal(endless(x + 9), np.full(size, 9.5, np.float32))


def test_other_threads_run_during_a_loop() -> None:
    """Loops whose iterations are too short to release the GIL release it periodically."""
    endless = sd.jit(lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: y * 0.5, x))
    x = snp.ones(8)
    endless(x + 9)  # It is compiled before the time of the other thread starts.

    def run() -> None:
        assert int(DOUBLE_OR_INCREMENT(X, 100.0)[0]) == double_or_increment_numpy(X, 100.0)[0]

    assert_another_thread_ends(lambda: endless(x), run)


def test_threads_may_run_one_program_concurrently() -> None:
    limits = [20.0 * 3**k for k in range(8)]
    expected = [double_or_increment_numpy(X, limit) for limit in limits]
    mismatches: list[Any] = []

    def call(start: int) -> None:
        for k in range(40):
            number = (start + k) % 8
            count, y = DOUBLE_OR_INCREMENT(X, limits[number])
            if int(count) != expected[number][0] or not np.array_equal(y, expected[number][1]):
                mismatches.append((number, count, y))

    run_concurrently(call, range(4))
    assert not mismatches


def test_a_loop_without_memory_raises_before_it_starts() -> None:
    x = snp.ones(1 << 20)
    loop = sd.jit(lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: y + snp.flip(y), x))
    expected = np.asarray(loop(x))
    memory.trim()
    with memory.limit_memory(1), pytest.raises(OutOfMemoryError):
        loop(x)
    np.testing.assert_array_equal(loop(x), expected)


ENDINGS = {
    "fork": """
thread = threading.Thread(target=lambda: [f(x, 1e30) for _ in range(200)])
thread.start()
codes = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        os._exit(0 if int(f(x, 1e30)[0]) == want else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
print(codes)
sys.exit(any(codes))
""",
    "ctrl-c": """
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    sd.jit(lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: y * 0.5, x))(x)
except KeyboardInterrupt:
    sys.exit(int(f(x, 1e30)[0]) != want)
sys.exit(2)
""",
    "exit while a thread is inside": """
endless = sd.jit(lambda x: lax.while_loop(lambda y: y[0] < 9, lambda y: y * 0.5, x))
threading.Thread(target=lambda: endless(x), daemon=True).start()
time.sleep(0.3)
sys.exit(0)
""",
}
SETUP = """
import os, signal, sys, threading, time, warnings
warnings.simplefilter("ignore")
import numpy as np, shardir as sd
from shardir import lax
def count(x, n):
    return lax.while_loop(lambda c: c[1][0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, x))
f = sd.jit(count)
x = sd.numpy.ones(8)
want = int(f(x, 1e30)[0])
assert want == 100
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_forks_interrupts_and_exits_during_loops_succeed(name: str) -> None:
    words = [sys.executable, "-c", SETUP + ENDINGS[name]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("second", [False, True])
def test_in_place_updates_in_one_branch_are_correct_in_the_other(second: bool) -> None:
    """The buffer of the result may not contain the operand in the other branch."""

    def function(choice: Any, x: Any) -> Any:
        in_place, reversed_sum = lambda x: snp.cumsum(x) * 2 + 1, lambda x: snp.cumsum(x)[::-1]
        return snp.cumsum(lax.cond(choice, in_place, reversed_sum, x))

    x = np.arange(4096, dtype=np.int32) % 7
    sums = np.cumsum(x, dtype=np.int32)
    expected = np.cumsum(sums * 2 + 1 if second else sums[::-1], dtype=np.int32)
    np.testing.assert_array_equal(sd.jit(function)(second, x), expected)
