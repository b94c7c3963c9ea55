"""What it costs to move a tensor: bytes that a device receives, and collectives."""

from dataclasses import replace
from functools import lru_cache

from shardir.ir import Value
from shardir.passes.planner import plan
from shardir.placement import Axes, Sharding
from shardir.types import TensorType

LATENCY = 1 << 18
"""As how many bytes a collective counts, where that does not make a program send more."""
BYTE = 1 << 20
"""What a byte weighs: more than all the local steps of a program, which weigh 1."""


@lru_cache(maxsize=1 << 14)
def price(source: Sharding, target: Sharding, type: TensorType) -> tuple[int, int]:
    """The bytes and the number of collectives of the plan from one sharding to another."""
    steps = plan(source, target, type)
    return sum(step.nbytes for step in steps), sum(step.nbytes > 0 for step in steps)


def weight(price: tuple[int, int], latency: int) -> int:
    """A price as one number; a collective weighs as much as `latency` bytes, and a bit."""
    nbytes, collectives = price
    return (nbytes + latency * collectives) * BYTE + (collectives << 8)


def place_of(value: Value, mesh: str) -> Sharding:
    """How a value is cut; whole where nothing is said."""
    return value.sharding or Sharding.whole(mesh, value.type.rank)


def pending_over(sharding: Sharding, axes: Axes, reduction: str = "add") -> Sharding:
    """The same cuts with sums, or other reductions, pending over `axes`."""
    return replace(sharding, unreduced=axes, reduction=reduction if axes else "add")
