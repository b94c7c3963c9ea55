"""Shape and element type of arrays, without access to their elements."""

from math import prod

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.ir.types import COMPLEX, TensorType


def tensor_type_of(x: ArrayLike) -> TensorType:
    """Return the shape and element type of an array, a scalar or a nested list."""
    try:
        return _tensor_type_of(x)
    # The error is raised here because at the recursion limit no stack space is left for a message.
    except RecursionError:
        check_acyclic(x)
        raise


def _tensor_type_of(x: ArrayLike) -> TensorType:
    if isinstance(x, (list, tuple)):
        rows = [_tensor_type_of(item) for item in x]
        inner = rows[0] if rows else abstract_of(np.zeros(())).type
        return inner.with_shape((len(rows), *inner.shape))
    return abstract_of(x).type


def shape(a: ArrayLike) -> tuple[int, ...]:
    """Return the sizes of all axes."""
    return tensor_type_of(a).shape


def ndim(a: ArrayLike) -> int:
    """Return the number of axes."""
    return tensor_type_of(a).rank


def size(a: ArrayLike, axis: AxisLike = None) -> int:
    """Return the number of elements, along one axis or several if given."""
    kind = tensor_type_of(a)
    return prod(kind.shape[dim] for dim in canonicalize_axes(axis, kind.rank))


def isscalar(element: ArrayLike) -> bool:
    """Return whether the object is a scalar or an array of rank 0."""
    if isinstance(element, (list, tuple, str)):
        return False
    return np.isscalar(element) or getattr(element, "shape", None) == ()


def iscomplexobj(x: ArrayLike) -> bool:
    """Return whether the element type is complex."""
    return tensor_type_of(x).dtype in COMPLEX


def isrealobj(x: ArrayLike) -> bool:
    """Return whether the element type is not complex."""
    return not iscomplexobj(x)
