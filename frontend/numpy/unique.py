"""The different values of an array.

How many there are shows only in the numbers. Outside of a trace they are looked at; inside one,
`size=` has to say how many the result has: too many are cut off, too few are filled up.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardir.frontend.eager import public
from shardir.frontend.errors import TracedValueError
from shardir.frontend.locations import point
from shardir.frontend.numpy.along import counted
from shardir.frontend.numpy.axes import axis_of
from shardir.frontend.numpy.known import is_known
from shardir.frontend.operands import as_tracer, kind_of, reshape, to_numpy
from shardir.frontend.promotion import result_type
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT, NUMPY_DTYPES, TensorType


def known_in_numpy(what: str, *xs: Any) -> list[npt.NDArray[Any]]:
    """Known arrays in NumPy, promoted to one element type."""
    if not is_known(xs):
        raise TracedValueError(
            point(
                f"how many values {what} has depends on the numbers, which are traced; "
                "state how many there are at most with size="
            )
        )
    arrays = [to_numpy(np.asarray(x)) for x in xs]
    dtype, _ = result_type(*(kind_of(array) for array in arrays))
    return [array.astype(NUMPY_DTYPES[dtype], copy=False) for array in arrays]


HOST: Any = np
"""NumPy, whose own types say less here than it costs to repeat them."""


def from_numpys(numbers: npt.NDArray[Any]) -> Any:
    from shardir.frontend import numpy as snp

    return snp.asarray(numbers)


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """The different values (along `axis`, slices), sorted.

    Also, where asked for: the place of the first of each, for each element the place of its value,
    and how many there are of each. `size` states how many values there are; what is too few is
    `fill_value`, the smallest value unless told, and counts 0.
    """
    flags = (return_index, return_inverse, return_counts)
    if size is not None:
        made = _unique(ar, fill_value, flags, axis, equal_nan, size)
        return made if any(flags) else made[0]
    (array,) = known_in_numpy("unique", ar)
    found = None if axis is not None or any(flags) else _counted_values(array)
    if found is None:
        found = HOST.unique(array, *flags, axis=axis, equal_nan=equal_nan)
    if not any(flags):
        return from_numpys(found)
    return tuple(from_numpys(each) for each in found)


def _counted_values(array: npt.NDArray[Any]) -> npt.NDArray[Any] | None:
    """The different values of integers that are no further apart than there are many, which takes
    no sorting; `None` for others."""
    if array.dtype.kind not in "iu" or not array.size:
        return None
    least, most = int(array.min()), int(array.max())
    if most - least >= array.size:
        return None
    wide = array.dtype if array.dtype.kind == "u" else np.dtype(np.int64)
    above = (array.ravel().astype(wide, copy=False) - wide.type(least)).astype(np.int64, copy=False)
    values = np.flatnonzero(np.bincount(above)).astype(wide, copy=False) + wide.type(least)
    return values.astype(array.dtype, copy=False)


@public(static=("flags", "axis", "equal_nan", "size"))
def _unique(
    ar: Any,
    fill_value: Any,
    flags: tuple[bool, bool, bool],
    axis: int | None,
    equal_nan: bool,
    size: int,
) -> Any:
    from shardir.frontend import numpy as snp

    x = as_tracer(ar)
    shape = x.shape
    if axis is None:
        dim, rows = 0, reshape(x, (x.size,))
    else:
        dim = axis_of(axis, x.ndim)
        rows = snp.moveaxis(x, dim, 0)
    count = rows.shape[0]
    if not count:
        empty = snp.full((size, *rows.shape[1:]), 0 if fill_value is None else fill_value, x.dtype)
        none = snp.zeros((size,), np.int32)
        inverse = snp.zeros(shape if axis is None else (0,), np.int32)
        wanted = (none, inverse, none)
        return [
            snp.moveaxis(empty, 0, dim),
            *(w for w, flag in zip(wanted, flags, strict=True) if flag),
        ]
    arranged, order, new = _arranged(rows, equal_nan)
    first = snp.nonzero(new, size=size)[0]
    values = snp.take(arranged, first, axis=0, mode="clip")
    if fill_value is not None:
        there = snp.arange(size) < snp.sum(new, dtype=np.int32)
        there = reshape(there, (size, *(1,) * (rows.ndim - 1)))
        values = snp.where(there, values, snp.asarray(fill_value, x.dtype))
    results = [snp.moveaxis(values, 0, dim) if axis is not None else values]
    if flags[0]:
        results.append(snp.take(order, first, mode="clip"))
    if flags[1]:
        number = counted(new) - 1
        inverse = snp.zeros((count,), np.int32).at[order].set(number)
        results.append(reshape(inverse, shape) if axis is None else inverse)
    if flags[2]:
        bounds = snp.nonzero(new, size=size + 1, fill_value=count)[0]
        results.append(bounds[1:] - bounds[:-1])
    return results


def _arranged(rows: Tracer, equal_nan: bool) -> tuple[Tracer, Tracer, Tracer]:
    """Rows in order, where each was, and whether it differs from the one before."""
    from shardir.frontend import numpy as snp

    count = rows.shape[0]
    flat = reshape(rows, (count, -1 if not rows.size else rows.size // count))
    columns = [flat[:, i] for i in range(flat.shape[1])]
    places = emit("iota", dim=0, result=TensorType((count,), "i32"))
    keys = max(len(columns), 1)
    operands = [*columns, places] if columns else [places]
    found = emit("sort", *operands, dim=0, keys=keys, stable=True)
    order = found[-1] if isinstance(found, tuple) else found
    arranged = snp.take(rows, order, axis=0, mode="clip") if rows.ndim > 1 else found[0]
    lines = (
        snp.take(flat, order, axis=0, mode="clip")
        if rows.ndim > 1
        else reshape(found[0], (count, 1))
    )
    here, before = lines[1:], lines[:-1]
    other = here != before
    if equal_nan and rows.value.type.dtype in INEXACT:
        other = other & ~(snp.isnan(here) & snp.isnan(before))
    differs = snp.concatenate([snp.ones((1,), bool), snp.any(other, axis=1)])
    return arranged, order, differs


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Any
    inverse_indices: Any


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """The different values, where the first of each is, the inverse, and counts; NaNs differ."""
    found = unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueAll(*found)


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """The different values and how many there are of each; NaNs differ."""
    found = unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueCounts(*found)


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """The different values and for each element the place of its value; NaNs differ."""
    found = unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value)
    return UniqueInverse(*found)


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The different values; NaNs differ."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)
