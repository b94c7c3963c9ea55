"""A heartbeat: calls a function at intervals from a thread of its own."""

import threading
from collections.abc import Callable
from contextlib import suppress


class Heartbeat:
    """Calls `beat` from a thread at intervals of `seconds`, until `stop`.

    If the system cannot start a thread, `beat` is not called.
    """

    def __init__(self, beat: Callable[[], None], seconds: float) -> None:
        self._beat, self._every = beat, seconds
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shardir heartbeat", daemon=True)
        with suppress(RuntimeError):
            self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._beat()

    def stop(self) -> None:
        """Stop the calls; return when no call is running."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
