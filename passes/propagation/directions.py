"""Which way cuts may move along a factor: from operands to results, back, both or neither."""

from enum import IntFlag


class Direction(IntFlag):
    """Union is `|`, intersection is `&`."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


Directions = tuple[Direction, ...]
"""The direction of each factor of an operation."""
