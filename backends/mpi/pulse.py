"""A pulse: what a process does every few seconds beside its program."""

import threading
from collections.abc import Callable
from contextlib import suppress

LONGEST_SECONDS = 10.0


class Pulse:
    """Calls `beat` from a thread of its own, four times in `seconds` at least, until `stop`.

    Where the system has no thread for it, nothing is called.
    """

    def __init__(self, beat: Callable[[], None], seconds: float) -> None:
        self._beat, self._every = beat, min(LONGEST_SECONDS, seconds / 4)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardir pulse", daemon=True)
        with suppress(RuntimeError):
            self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._beat()

    def stop(self) -> None:
        """Return when nothing is called any more."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
