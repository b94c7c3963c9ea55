"""A clock for time limits that do not depend on the speed of the machine and on its other work."""

import itertools
import time

import pytest

SECONDS_PER_CALL = 1e-3


def count_clock_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each call of the clock of a search take `SECONDS_PER_CALL`."""
    calls = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(calls) * SECONDS_PER_CALL)
