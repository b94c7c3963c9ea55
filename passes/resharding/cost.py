"""Cost of changing the sharding of a tensor: bytes that a device receives, and collectives."""

from dataclasses import replace
from functools import lru_cache

from shardir.ir.module import Value
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TensorType
from shardir.passes.resharding.planner import plan_reshard

COLLECTIVE_LATENCY_BYTES = 1 << 18
"""Bytes that one collective counts as, unless the program would send more bytes for it."""
BYTE_WEIGHT = 1 << 20
"""Weight of one byte. It exceeds the local steps of a whole program, which weigh 1 each."""


@lru_cache(maxsize=1 << 14)
def reshard_cost(source: Sharding, target: Sharding, type: TensorType) -> tuple[int, int]:
    """Return the bytes received and the number of collectives of the plan from `source` to
    `target`."""
    steps = plan_reshard(source, target, type)
    return sum(step.nbytes for step in steps), sum(step.nbytes > 0 for step in steps)


def scalar_cost(price: tuple[int, int], latency: int) -> int:
    """Return a cost as one integer, in which a collective weighs slightly more than `latency`
    bytes."""
    nbytes, collectives = price
    return (nbytes + latency * collectives) * BYTE_WEIGHT + (collectives << 8)


def sharding_or_unsharded(value: Value, mesh: str) -> Sharding:
    """Return the sharding of a value; unsharded on `mesh` if the value states none."""
    return value.sharding or Sharding.fully_replicated(mesh, value.type.rank)


@lru_cache(maxsize=1 << 14)
def with_unreduced(sharding: Sharding, axes: Axes, reduction: str = "add") -> Sharding:
    """Return `sharding` unreduced over `axes` by `reduction`, with the same dimension shardings."""
    return replace(sharding, unreduced=axes, reduction=reduction if axes else "add")
