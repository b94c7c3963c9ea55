"""Memoize a function so that all threads of a process share its first result.

Native code refers to objects by address, so all callers must get the same object. With concurrent
calls `functools.cache` keeps the later result and drops the earlier one.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Result = TypeVar("Result")


def memoize_once(make: Callable[..., Result]) -> Callable[..., Result]:
    """Return `make` with its first result for equal arguments memoized forever.

    Threads may run it concurrently: there is no lock that a fork or a signal handler could leave
    held.
    """
    results: dict[tuple[int, ...], Result] = {}

    @wraps(make)
    def call_once(*given: int) -> Result:
        if given not in results:
            results.setdefault(given, make(*given))
        return results[given]

    return call_once
