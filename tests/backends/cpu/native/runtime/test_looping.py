"""Rounds of a program in one call: rows, places that are changed, signals, other threads."""

import signal
import threading
import time
from types import FrameType

import numpy as np
import pytest

from shardir.backends.cpu.native.data import Phase
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.runtime.looping import looper
from shardir.backends.cpu.native.runtime.program import load
from shardir.backends.cpu.native.runtime.workers import pool
from tests.backends.cpu.native.runtime.samples import kernel


def _step(f: Function, bases: Value, record: Value, task: Value, worker: Value) -> None:
    """The word in slot 2 becomes that in slot 1 times 3, plus that in slot 3, which is doubled."""
    read, write, row = (f.load(f.offset(bases, 8 * slot), "ptr") for slot in (1, 2, 3))
    shown = f.load(row, "i64")
    f.store(f.load(read, "i64") * 3 + shown, write)
    f.store(shown * 2, row)


STEP = load([Phase(kernel("looping_step", _step), (), 1, 10.0)], 5)
CODE = pool().code["loop"]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_rows_move_on_and_places_are_changed(length: int, backwards: bool) -> None:
    words, rows = np.array([5, 0]), np.arange(1, 21)
    run = looper(CODE, STEP, length, backwards, [(3, 4, 8, 16)], [(1, 2)], 10.0)
    run(words.ctypes.data, words.ctypes.data + 8, 0, rows.ctypes.data)
    carried, after = 5, np.arange(1, 21)
    for i in range(length)[::-1] if backwards else range(length):
        carried = carried * 3 + int(after[1 + 2 * i])
        after[1 + 2 * i] *= 2
    assert words[length % 2] == carried
    assert np.array_equal(rows, after)


def test_slots_are_counted_and_addresses_are_numbers() -> None:
    run = looper(CODE, STEP, 3, False, [], [], 10.0)
    with pytest.raises(TypeError, match="one address for each of its slots"):
        run(1, 2)
    with pytest.raises(TypeError):
        run(1, 2, 3, "text")


def long_loop() -> None:
    words, row = np.zeros(2, np.int64), np.zeros(1, np.int64)
    run = looper(CODE, STEP, 1 << 40, False, [(3, 4, 0, 0)], [(1, 2)], 10.0)
    run(words.ctypes.data, words.ctypes.data + 8, 0, row.ctypes.data)


def test_a_signal_ends_a_long_loop() -> None:
    class Interrupted(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            long_loop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_other_threads_get_their_turn() -> None:
    class Enough(Exception):
        pass

    def handler(number: int, frame: FrameType | None) -> None:
        raise Enough

    before = signal.signal(signal.SIGUSR1, handler)
    main, begun = threading.main_thread().ident, threading.Event()
    assert main is not None

    def send() -> None:
        begun.wait()
        # To go on after this, it needs what the loop holds.
        time.sleep(0.02)
        signal.pthread_kill(main, signal.SIGUSR1)

    def wait() -> None:
        begun.set()
        long_loop()

    other = threading.Thread(target=send)
    other.start()
    try:
        with pytest.raises(Enough):
            wait()
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)
