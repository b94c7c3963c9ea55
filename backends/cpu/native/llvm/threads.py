"""Starting a thread, where one can be had; and having work done on threads of its own."""

import sys
from collections.abc import Callable, Sequence
from threading import Thread
from typing import TypeVar

Made = TypeVar("Made")


def started(thread: Thread) -> bool:
    """Start a thread; false where the system has none to give, or Python is ending.

    Before Python 3.12 one that is started while Python ends would be waited for in vain.
    """
    if sys.is_finalizing():
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    except KeyError as error:
        # CPython's `start` stumbles over what the handler of a signal raises in there.
        raise error.__context__ or error from None
    return True


def done_apart(works: Sequence[Callable[[], Made]]) -> list[Made]:
    """What each of the works returns, all at the same time; raises what one of them raises.

    No part is the caller's: that may be Python's main thread, and what the handler of a signal
    raises there, Ctrl-C for one, would leave LLVM's objects owned twice, and its lock taken.
    """
    made: dict[int, Made] = {}
    errors: list[BaseException] = []

    def do(number: int) -> None:
        try:
            made[number] = works[number]()
        except BaseException as error:  # Raised again where it is wanted.
            errors.append(error)

    threads = [Thread(target=do, args=(number,)) for number in range(len(works))]
    working = []
    try:
        for number, thread in enumerate(threads):
            if started(thread):
                working.append(thread)
            else:
                do(number)
        _wait(working)
    except BaseException:
        _wait(working)  # A fork must find nobody in LLVM.
        raise
    if errors:
        raise errors[0]
    return [made[number] for number in range(len(works))]


def _wait(threads: Sequence[Thread]) -> None:
    for thread in threads:
        thread.join()
