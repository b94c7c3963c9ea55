"""Shapes, and arrays made for their shapes, under the names of `jax.lax`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.lax.movement import full
from shardir.frontend.locations import point
from shardir.frontend.operands import kind_of
from shardir.frontend.promotion import user_dtype


def dtype(x: Any) -> Any:
    """The element type of anything that is an array, or taken for one."""
    return user_dtype(kind_of(x)[0])


def empty(shape: Sequence[int], dtype: Any, *, out_sharding: Any = None) -> Any:
    """An array of `shape`; its elements are zeros, which nobody should count on."""
    return full(shape, 0, dtype, sharding=out_sharding)


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """`x` with dimensions of size 1 in front, so that it has `rank`."""
    from shardir.frontend import numpy as snp

    shape = np.shape(x)
    if rank < len(shape):
        raise OperationTypeError(
            point(f"broadcast_to_rank adds dimensions, and shape {shape} has more than {rank}")
        )
    return snp.reshape(x, (1,) * (rank - len(shape)) + shape)


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """`arr` repeated so that it has the shape of `like_arr`."""
    from shardir.frontend import numpy as snp

    return snp.broadcast_to(arr, np.shape(like_arr))


def shape_as_value(shape: Sequence[int]) -> Any:
    """The sizes of a shape as an array of i32."""
    return np.asarray(tuple(shape), np.int32)
