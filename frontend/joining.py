"""The time until all processes have joined, which comes to an end if one of them never does."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardir.frontend import vigil
from shardir.frontend.launched import Launch

NEIGHBOURS = "MPI_LOCALNRANKS"
"""Where mpiexec says how many processes it started on this machine."""


@contextmanager
def watched(found: Launch, seconds: float) -> Iterator[None]:
    """End this process, with a message, if it is in here for more than `seconds`, or once a
    process that it waits for has ended."""
    watcher = _watcher(found, seconds)
    if watcher is None:
        yield
        return
    try:
        with _default_alarm():
            yield
    finally:
        watcher.communicate()


def _watcher(found: Launch, seconds: float) -> "subprocess.Popen[bytes] | None":
    """What watches this process; `None` where there can be nobody."""
    if os.name != "posix" or not sys.executable:
        return None
    count = os.environ.get(NEIGHBOURS, "")
    words = (os.getpid(), found.rank, found.size, count if count.isdecimal() else 0, seconds)
    # Without its environment's settings, site-packages or this package: it is there at once.
    command = [sys.executable, "-I", "-S", vigil.__file__, *map(str, words)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except OSError:
        return None


@contextmanager
def _default_alarm() -> Iterator[None]:
    """An alarm ends this process meanwhile, whatever the program does with alarms otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGALRM, before)
