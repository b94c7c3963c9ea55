"""Conversion of a pytree of arrays to one vector."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.errors import StructureError
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.creation.filling import zeros
from shardir.frontend.numpy.dtypes import result_type
from shardir.frontend.numpy.shaping.concatenation import concatenate
from shardir.frontend.numpy.shaping.reshaping import ravel, reshape
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.tracing.promotion import DType

__all__ = ["ravel_pytree"]


@with_argument_errors
def ravel_pytree(pytree: PyTree) -> tuple[PyTree, Callable[[PyTree], PyTree]]:
    """Return all elements in one array of rank 1, and the function that restores the pytree.

    Arrays of different element types are promoted, and converted back by that function. If all have
    one type, the restored arrays have the type of the vector. The functions of pytrees of equal
    structure and types are equal, so that they can be static arguments.
    """
    leaves, structure = tree.flatten(pytree)
    arrays = [asarray(leaf) for leaf in leaves]
    dtypes = tuple(array.dtype for array in arrays)
    common = result_type(*dtypes) if dtypes else None
    flat = concatenate([ravel(x).astype(common) for x in arrays]) if arrays else zeros(0)
    return flat, _Unravel(structure, tuple(array.shape for array in arrays), dtypes, common)


@dataclass(frozen=True)
class _Unravel:
    """The function that restores the arrays of a pytree from one vector."""

    structure: tree.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DType, ...]
    common: DType | None

    def __call__(self, vector: Array) -> PyTree:
        """Return the pytree with the elements of `vector`."""
        ends = list(accumulate(map(prod, self.shapes), initial=0))
        if vector.shape != (ends[-1],):
            raise StructureError(
                f"the vector to unravel must have the shape {(ends[-1],)}, got {vector.shape}"
            )
        mixed = len(set(self.dtypes)) > 1
        if mixed and vector.dtype != self.common:
            raise StructureError(
                f"the vector to unravel must be of type {self.common}, got {vector.dtype}"
            )
        parts = [
            reshape(vector[start:end], shape).astype(dtype if mixed else vector.dtype)
            for start, end, shape, dtype in zip(
                ends, ends[1:], self.shapes, self.dtypes, strict=False
            )
        ]
        return tree.unflatten(self.structure, parts)
