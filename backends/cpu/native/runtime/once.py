"""What there is once in a process, however many threads ask for it first.

Machine code knows objects by their addresses: all have to have the same one, which stays. What
`functools.cache` keeps of two calls at once is the later result, and that of the earlier goes.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Made = TypeVar("Made")


def once(make: Callable[..., Made]) -> Callable[..., Made]:
    """`make`, of whose results for the same arguments the first is given to all, and kept.

    Threads may be in it at once: there is no lock, so none has to be given up by forks or where a
    signal's handler raises.
    """
    known: dict[tuple[Any, ...], Made] = {}

    @wraps(make)
    def found(*given: Any) -> Made:
        if given not in known:
            known.setdefault(given, make(*given))
        return known[given]

    return found
