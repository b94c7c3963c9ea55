"""Conversion of a pytree of arrays to one vector."""

from collections.abc import Callable
from itertools import accumulate

from shardir.frontend.arrays.array import Array
from shardir.frontend.errors import StructureError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.creation.filling import zeros
from shardir.frontend.numpy.dtypes import result_type
from shardir.frontend.numpy.shaping.concatenation import concatenate
from shardir.frontend.numpy.shaping.reshaping import ravel, reshape
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree

__all__ = ["ravel_pytree"]


def ravel_pytree(pytree: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Return all elements in one array of rank 1, and the function that restores the pytree.

    Arrays of different element types are promoted, and converted back by that function. If all have
    one type, the restored arrays have the type of the vector.
    """
    leaves, structure = tree.flatten(pytree)
    arrays = [asarray(leaf) for leaf in leaves]
    shapes = [array.shape for array in arrays]
    dtypes = [array.dtype for array in arrays]
    ends = list(accumulate((array.size for array in arrays), initial=0))
    common = result_type(*dtypes) if dtypes else None
    flat = concatenate([ravel(x).astype(common) for x in arrays]) if arrays else zeros(0)

    def unravel(vector: Array) -> object:
        if vector.shape != (ends[-1],):
            raise StructureError(f"the vector has the shape {(ends[-1],)}, not {vector.shape}")
        mixed = len(set(dtypes)) > 1
        if mixed and vector.dtype != common:
            raise StructureError(f"the vector is of type {vector.dtype}, not {common}")
        parts = [
            reshape(vector[start:end], shape).astype(dtype if mixed else vector.dtype)
            for start, end, shape, dtype in zip(ends, ends[1:], shapes, dtypes, strict=False)
        ]
        return tree.unflatten(structure, parts)

    return flat, unravel
