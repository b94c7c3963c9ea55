"""Concurrent calls of one function on several threads."""

from collections.abc import Callable, Iterable
from threading import Thread
from typing import TypeVar

Given = TypeVar("Given")


def run_concurrently(work: Callable[[Given], object], each: Iterable[Given]) -> None:
    """Call `work` for each item concurrently; raise the first exception of the calls."""
    errors: list[BaseException] = []

    def call(given: Given) -> None:
        try:
            work(given)
        except (
            BaseException
        ) as error:  # The exception is raised below, because a thread would only print it.
            errors.append(error)

    threads = [Thread(target=call, args=(given,)) for given in each]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
