"""Shape and element type of arrays, without access to their elements."""

from math import prod

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.tracing.operands import unequal_shapes_error
from shardir.ir.types import COMPLEX, TensorType


def tensor_type_of(x: object) -> TensorType:
    """Return the shape and element type of an array, a scalar or a nested list."""
    try:
        return _tensor_type_of(x)
    # The error is raised here because at the recursion limit no stack space is left for a message.
    except RecursionError:
        check_acyclic(x)
        raise


def _tensor_type_of(x: object) -> TensorType:
    if isinstance(x, (list, tuple)):
        rows = [_tensor_type_of(item) for item in x] or [abstract_of(np.zeros(())).type]
        shapes = list(dict.fromkeys(row.shape for row in rows))
        if len(shapes) > 1:
            raise unequal_shapes_error(shapes)
        dtype = next((row.dtype for row in rows if row.dtype in COMPLEX), rows[0].dtype)
        return TensorType((len(x), *shapes[0]), dtype)
    return abstract_of(x).type


@with_argument_errors
def shape(a: ArrayLike) -> tuple[int, ...]:
    """Return the sizes of all axes."""
    return tensor_type_of(a).shape


@with_argument_errors
def ndim(a: ArrayLike) -> int:
    """Return the number of axes."""
    return tensor_type_of(a).rank


@with_argument_errors
def size(a: ArrayLike, axis: AxisLike = None) -> int:
    """Return the number of elements, along one axis or several if given."""
    kind = tensor_type_of(a)
    return prod(kind.shape[dim] for dim in canonicalize_axes(axis, kind.rank))


@with_argument_errors
def isscalar(element: ArrayLike) -> bool:
    """Return whether the object is a scalar or an array of rank 0."""
    if isinstance(element, (list, tuple, str)):
        return False
    return np.isscalar(element) or getattr(element, "shape", None) == ()


@with_argument_errors
def iscomplexobj(x: object) -> bool:
    """Return whether the element type is complex; that of text and of other objects is not."""
    if isinstance(x, (list, tuple)) or is_array_like(x):
        return tensor_type_of(x).dtype in COMPLEX
    return False


@with_argument_errors
def isrealobj(x: object) -> bool:
    """Return whether the element type is not complex."""
    return not iscomplexobj(x)
