"""Arrays of the empty element type `float0`: the gradients and tangents of integers.

They have no data, so a program neither takes nor returns them. Where they occur among arguments or
results, they are part of the pytree structure.
"""

from dataclasses import dataclass

import numpy as np

from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree

FLOAT0 = np.dtype([("float0", np.void, 0)])
"""The element type `float0` of gradients and tangents of integers."""


@dataclass(frozen=True)
class Float0Node:
    """A pytree node without leaves that represents an array of `float0`."""

    shape: tuple[int, ...]


tree.register_node(
    Float0Node,
    lambda node: ((), node.shape),
    lambda shape, children: np.zeros(shape, FLOAT0),
)


def is_float0(x: object) -> bool:
    """Return whether `x` is an array of `float0`."""
    return isinstance(x, np.ndarray) and x.dtype == FLOAT0


def without_axis(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    """Return the shape of a slice along an axis; the same shape if it is `None`."""
    return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])


def replace_float0(x: object) -> PyTree:
    """Return the pytree with a `Float0Node` for each array of `float0`; the same object if there is
    none.
    """
    if not any(map(is_float0, tree.leaves(x))):
        return x
    return tree.map(lambda leaf: Float0Node(leaf.shape) if is_float0(leaf) else leaf, x)
