"""Work in pieces: each is done once, whoever does it."""

import subprocess
import sys
import threading

import pytest

from shardir.backends.cpu.threads.workers import workers
from shardir.backends.numpy.threads import run_on_threads, split_range

PIECES = list(split_range(100, 3))


def test_each_piece_is_done_once() -> None:
    for count in (1, 4):
        done: list[slice] = []
        with workers(count):
            run_on_threads(done.append, PIECES)
        assert sorted(piece.start for piece in done) == list(range(0, 100, 3))


def test_the_caller_does_all_where_no_thread_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[slice] = []
    with workers(4):
        monkeypatch.setattr(threading.Thread, "start", refused)
        run_on_threads(done.append, PIECES)
    assert len(done) == len(PIECES)


def test_an_error_is_raised_when_all_have_ended() -> None:
    def work(piece: slice) -> None:
        if piece.start == 30:
            raise ValueError("thirty")

    with workers(4), pytest.raises(ValueError, match="thirty"):
        run_on_threads(work, PIECES)


def test_work_is_shared_by_nobody_while_python_ends() -> None:
    program = """
import atexit
import shardir.numpy as snp
x = snp.ones((512, 1038))  # of a length that is NumPy's
atexit.register(lambda: print(float(snp.fft.fft(x)[0, 0].real)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "1038.0\n")
