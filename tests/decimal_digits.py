"""A decorator for computations with mpmath, whose precision is one global number."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import mpmath as mp

P = ParamSpec("P")
R = TypeVar("R")


def with_digits(count: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of functions that compute with `count` decimal digits."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with mp.workdps(count):
                return function(*args, **kwargs)

        return run

    return decorate
