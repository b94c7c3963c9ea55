"""What is known of an array without its numbers."""

from typing import Any

import numpy as np

from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.operands import abstract_of
from shardir.frontend.tree_checks import check_ends
from shardir.types import COMPLEX, TensorType


def type_of(x: Any) -> TensorType:
    """Shape and element type of an array, a number or a nested list."""
    try:
        return _type_of(x)
    except RecursionError:  # Here, and not at the bottom, where there is no room to say anything.
        check_ends(x)
        raise


def _type_of(x: Any) -> TensorType:
    if isinstance(x, (list, tuple)):
        rows = [_type_of(item) for item in x]
        inner = rows[0] if rows else abstract_of(np.zeros(())).type
        return inner.with_shape((len(rows), *inner.shape))
    return abstract_of(x).type


def shape(a: Any) -> tuple[int, ...]:
    """The sizes of all axes."""
    return type_of(a).shape


def ndim(a: Any) -> int:
    """How many axes there are."""
    return type_of(a).rank


def size(a: Any, axis: Any = None) -> int:
    """How many elements there are, or the size of one axis."""
    found = type_of(a)
    return found.size if axis is None else found.shape[axis_of(axis, found.rank)]


def isscalar(element: Any) -> bool:
    """Whether it is a number or an array of rank 0."""
    if isinstance(element, (list, tuple, str)):
        return False
    return np.isscalar(element) or getattr(element, "shape", None) == ()


def iscomplexobj(x: Any) -> bool:
    """Whether the element type is complex."""
    return type_of(x).dtype in COMPLEX


def isrealobj(x: Any) -> bool:
    """Whether the element type is not complex."""
    return not iscomplexobj(x)
