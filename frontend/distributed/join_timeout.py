"""The timeout of joining: a process ends if another one never joins."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from shardir.frontend.distributed import join_watchdog
from shardir.frontend.distributed.launcher_environment import LauncherInfo

LOCAL_RANKS_VARIABLE = "MPI_LOCALNRANKS"
"""Environment variable in which mpiexec gives the number of processes on this machine."""


@contextmanager
def limit_join_time(found: LauncherInfo, seconds: float) -> Iterator[None]:
    """End this process with a message if the block takes more than `seconds`.

    It also ends when a process for which it waits has ended.
    """
    watcher = _start_watchdog(found, seconds)
    if watcher is None:
        yield
        return
    try:
        with _default_alarm():
            yield
    finally:
        watcher.communicate()


def _start_watchdog(found: LauncherInfo, seconds: float) -> "subprocess.Popen[bytes] | None":
    """Start the process that watches this one; return `None` where that is not possible."""
    if os.name != "posix" or not sys.executable:
        return None
    count = os.environ.get(LOCAL_RANKS_VARIABLE, "")
    words = (os.getpid(), found.rank, found.size, count if count.isdecimal() else 0, seconds)
    # -I and -S skip the environment and site-packages, so that the watchdog starts quickly.
    command = [sys.executable, "-I", "-S", join_watchdog.__file__, *map(str, words)]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    except OSError:
        return None


@contextmanager
def _default_alarm() -> Iterator[None]:
    """Make SIGALRM end this process inside the block, regardless of handlers of the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGALRM, before)
