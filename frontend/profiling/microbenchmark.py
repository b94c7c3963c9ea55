"""The benchmark of one compiled function: the fastest call of each round."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Any

from shardir.frontend.arrays.device_transfer import block_until_ready

Key = tuple[str, str, int, float]
"""The identity of a benchmark: section, dtype or kind, group size, and flops, bytes or elements."""


MIN_CALLS = 4
"""The minimum number of calls in a round: other programs delay most long calls."""


@dataclass
class Microbenchmark:
    """A compiled function with its arguments, which is called for some time in each round."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    fastest: list[float] = field(default_factory=list)
    """The time of the fastest call of each round."""

    def run(self, seconds: float, clock: Callable[[], float]) -> None:
        """Run one round: call the function for some time, and at least `MIN_CALLS` times."""
        block_until_ready(self.function(*self.arguments))
        end = clock() + seconds
        fastest, stop, count = inf, -inf, 0
        while stop <= end or count < MIN_CALLS:
            start = clock()
            block_until_ready(self.function(*self.arguments))
            stop = clock()
            fastest = min(fastest, stop - start)
            count += 1
        self.fastest.append(fastest)

    @property
    def seconds(self) -> float:
        """The median over rounds of the fastest call."""
        return median(self.fastest)
