"""Work divided into pieces: threads run each piece exactly once."""

import subprocess
import sys
import threading

import pytest

from shardir.backends.cpu.threads.workers import workers
from shardir.backends.numpy.threads import run_on_threads, split_range

PIECES = list(split_range(100, 3))


def test_each_piece_runs_once() -> None:
    for count in (1, 4):
        completed: list[slice] = []
        with workers(count):
            run_on_threads(completed.append, PIECES)
        assert sorted(piece.start for piece in completed) == list(range(0, 100, 3))


def test_the_caller_runs_all_pieces_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    completed: list[slice] = []
    with workers(4):
        monkeypatch.setattr(threading.Thread, "start", refuse_start)
        run_on_threads(completed.append, PIECES)
    assert len(completed) == len(PIECES)


def test_an_error_is_raised_after_all_pieces() -> None:
    def work(piece: slice) -> None:
        if piece.start == 30:
            raise ValueError("thirty")

    with workers(4), pytest.raises(ValueError, match="thirty"):
        run_on_threads(work, PIECES)


def test_the_caller_runs_all_pieces_during_shutdown() -> None:
    program = """
import atexit
import shardir.numpy as snp
x = snp.ones((512, 1038))  # a length that the NumPy kernel transforms
atexit.register(lambda: print(float(snp.fft.fft(x)[0, 0].real)))
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (completed.returncode, completed.stderr, completed.stdout) == (0, "", "1038.0\n")
