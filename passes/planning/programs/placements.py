"""Placements of values over whole mesh axes, and the least communication between two of them."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod

UNSHARDED, PARTIAL = -1, -2
"""Places of a mesh axis that shards no dimension of a value: devices along it have the same values,
or terms whose sum is the value."""

Placement = tuple[int, ...]
"""For each mesh axis the dimension that it shards, `UNSHARDED` or `PARTIAL`."""


def has_partial(placement: Placement) -> bool:
    """Return whether a value is a sum of the terms of several devices."""
    return PARTIAL in placement


@lru_cache(maxsize=1 << 16)
def sent_part(source: Placement, target: Placement, sizes: tuple[int, ...]) -> Fraction:
    """Return a lower bound of the data that each device sends from one placement to another one, as
    a part of the whole value.

    Each device of the target has to receive the elements of its shard that it does not have in the
    source. A sum of n terms on n devices takes at least n - 1 messages, and one more for each
    further device that needs it. A shard, or a part of a value that several devices have, is the
    term of one device, and the terms of the others are zero. The bound holds for every sequence of
    collectives.
    """
    # The devices along these axes need each element once, as a term of one of them.
    sharing = prod(
        n for old, new, n in zip(source, target, sizes, strict=True)
        if new == PARTIAL and old == UNSHARDED
    )  # fmt: skip
    target = tuple(old if new == PARTIAL else new for old, new in zip(source, target, strict=True))
    terms = prod(n for place, n in zip(source, sizes, strict=True) if place == PARTIAL)
    left = prod(n for place, n in zip(target, sizes, strict=True) if place == PARTIAL)
    shards = prod(n for place, n in zip(target, sizes, strict=True) if place >= 0)
    if terms != left:
        devices = prod(sizes)
        copies = devices // (left * shards * sharing)
        return Fraction(terms - left + left * (copies - 1), devices)
    return (Fraction(1, shards) - _kept_part(source, target, sizes)) / sharing


def _kept_part(source: Placement, target: Placement, sizes: Sequence[int]) -> Fraction:
    """Return the largest part of a value that a device has in both placements."""
    moved = [
        (old, new, n)
        for old, new, n in zip(source, target, sizes, strict=True)
        if old >= 0 and new >= 0 and old != new
    ]
    both = prod(
        n for old, new, n in zip(source, target, sizes, strict=True) if old >= 0 or new >= 0
    )
    factors = [n for _, _, n in moved]
    # Axes that exchange dimensions may keep the same elements on a device.
    misplaced = max(factors, default=1) if _has_cycle(moved) else prod(factors)
    return Fraction(1, both * misplaced)


def _has_cycle(moved: Sequence[tuple[int, int, int]]) -> bool:
    """Return whether axes move between dimensions in a cycle."""
    edges = {(old, new) for old, new, _ in moved}
    while edges:
        ends = {new for _, new in edges}
        kept = {edge for edge in edges if edge[0] in ends}
        if kept == edges:
            return True
        edges = kept
    return False
