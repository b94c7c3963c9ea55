"""A pause of the garbage collector while large programs are built."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MIN_FROZEN_OBJECTS = 100_000
"""The minimum number of new objects that a pause moves to the oldest generation at its end."""


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Do not search for reference cycles in this context.

    A large program consists of millions of objects that are alive until the end, and that each
    search visits again: a fifth of the time of a pipeline. Cycles that the context leaves are freed
    by later searches.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            if gc.get_count()[0] > MIN_FROZEN_OBJECTS and not gc.get_freeze_count():
                # Both move all objects to the oldest generation, so that the next allocation does
                # not start a search among those of the program.
                gc.freeze()
                gc.unfreeze()
            gc.enable()
