"""Random things, drawn before tests are collected or programs are written."""

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

Thing = TypeVar("Thing")


def drawn(things: SearchStrategy[Thing], number: int, count: int) -> list[Thing]:
    """So many of `things`, the same for the same number."""
    found: list[Thing] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(things)
    def collect(thing: Thing) -> None:
        found.append(thing)

    collect()
    return found
