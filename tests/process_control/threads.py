"""Concurrent calls of one function on several threads."""

from collections.abc import Callable, Iterable
from threading import Thread
from typing import TypeVar

Given = TypeVar("Given")


def at_once(work: Callable[[Given], object], each: Iterable[Given]) -> None:
    """Call `work` for each, all at the same time; raises the first of what the calls raise."""
    errors: list[BaseException] = []

    def call(given: Given) -> None:
        try:
            work(given)
        except BaseException as error:  # Raised again below: a thread would only print it.
            errors.append(error)

    threads = [Thread(target=call, args=(given,)) for given in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
