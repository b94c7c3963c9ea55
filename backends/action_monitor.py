"""A monitor process that names the action in which a process of a pipeline was killed.

The launcher of an MPI job kills the other processes when one is killed, so none of them can report
it. The monitor waits until the pipe from its process closes, and reads the action that the process
ran from a file that both share.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from mmap import mmap

MAX_ACTION_BYTES = 512

_MONITOR = f"""
import os, sys
sys.stdin.buffer.read()
text = os.pread(int(sys.argv[1]), {MAX_ACTION_BYTES}, 0).rstrip(b"\\0").decode()
if text:
    print(f"shardir: {{text}}", file=sys.stderr, flush=True)
"""


class ActionMonitor:
    """States the action that this process runs to its monitor."""

    def __init__(self) -> None:
        # It stays open until this process ends.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._file.truncate(MAX_ACTION_BYTES)
        self._shared = mmap(self._file.fileno(), MAX_ACTION_BYTES)
        self._process: subprocess.Popen[bytes] | None = None
        # Without a monitor, the launcher still reports that a process was killed.
        with suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _MONITOR, str(self._file.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(self._file.fileno(),),
                start_new_session=True,
            )

    def state(self, text: str) -> None:
        """State the action that runs from now on; empty if none runs."""
        self._shared[:] = text.encode()[:MAX_ACTION_BYTES].ljust(MAX_ACTION_BYTES, b"\0")


_monitors: dict[int, ActionMonitor] = {}


def action_monitor() -> ActionMonitor:
    """Return the monitor of this process."""
    if os.getpid() not in _monitors:
        _monitors[os.getpid()] = ActionMonitor()
    return _monitors[os.getpid()]
