"""Count of function calls as a measure of work that does not depend on machine load."""

import sys
from collections.abc import Callable


def count_calls(run: Callable[[], object]) -> int:
    """Return the number of calls of Python and built-in functions during `run`."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return calls
