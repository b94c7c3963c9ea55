"""Directions of propagation along a factor: from operands to results, backward, both or neither."""

from enum import IntFlag


class PropagationDirection(IntFlag):
    """Set of directions: union is `|`, intersection is `&`."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


FactorDirections = tuple[PropagationDirection, ...]
"""Direction of each factor of an operation."""
