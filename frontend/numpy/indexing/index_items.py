"""Validation of the parts of an index expression."""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.errors import IndexingError, TracedMaskError
from shardir.frontend.pytree.tree_checks import check_acyclic
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, operand_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import INTEGERS, NumpyArray

IndexArray: TypeAlias = Operators | NumpyArray
"""An array of indices, or a mask."""

IndexItem: TypeAlias = IndexArray | slice | int | EllipsisType | None
"""One part of a canonical index; `True` and `False` are masks of rank 0."""

Index: TypeAlias = ArrayLike | slice | EllipsisType | Sequence["Index"] | None
"""An index expression before canonicalization; a tuple has one entry for each indexed dimension,
`...`, new axis or mask."""


def canonicalize_item(item: Any) -> IndexItem:
    """Return one part of an index as None, `...`, a bool, an int, a slice, or an array."""
    if item is None or isinstance(item, (EllipsisType, bool, slice)):
        return item
    if isinstance(item, (int, np.integer)):
        return int(item)
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (list, tuple)):
        item = _list_to_array(item)
    dtype = _checked_dtype(item)
    if dtype == "bool":
        mask = item.find_elements() if isinstance(item, Tracer) else np.asarray(item)
        if mask is None:
            raise TracedMaskError(
                with_location(
                    "the size of x[mask] depends on the elements of the mask, which is traced; "
                    "select elementwise with snp.where(mask, x, y), or state a maximum "
                    "with x[snp.nonzero(mask, size=...)]"
                )
            )
        return mask if mask.ndim else bool(mask)
    if isinstance(item, np.ndarray) and item.ndim == 0:
        return int(item)
    array: IndexArray = item
    return array


def _list_to_array(item: Sequence[ArrayLike]) -> Tracer | NumpyArray:
    """Convert a list to an array of indices."""
    if not len(item):
        return np.zeros((0,), np.int32)
    try:
        return as_tracer(item) if _has_traced(item) else np.asarray(item)
    except RecursionError:
        check_acyclic(item)
        raise
    except ValueError as error:
        raise IndexingError(
            with_location(f"a list of different lengths is not an index: {error}")
        ) from None


def _has_traced(item: object) -> bool:
    if isinstance(item, (list, tuple)):
        return any(map(_has_traced, item))
    return isinstance(item, Tracer)


def _checked_dtype(item: object) -> str:
    if isinstance(item, (str, float, complex)) or not hasattr(item, "shape"):
        raise IndexingError(
            with_location(
                f"{brief_with_type(item)} is not an index; indices are integers, "
                "slices, ..., None, and arrays of integers or bools"
            )
        )
    dtype, _ = operand_dtype(item)
    if dtype not in INTEGERS and dtype != "bool":
        raise IndexingError(
            with_location(f"an array of {dtype} is not an index; convert it with .astype(int)")
        )
    return dtype


def is_mask(item: object) -> TypeGuard[NumpyArray]:
    """Return whether a part of an index is a boolean array."""
    return isinstance(item, np.ndarray) and item.dtype == np.bool_
