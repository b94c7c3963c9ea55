"""Examples of Hypothesis strategies outside of tests."""

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

Example = TypeVar("Example")


def draw_examples(strategy: SearchStrategy[Example], number: int, count: int) -> list[Example]:
    """Return `count` examples of a strategy, which depend only on the seed `number`."""
    examples: list[Example] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        derandomize=False,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(thing: Example) -> None:
        examples.append(thing)

    collect()
    return examples
