"""Functions of shapes and element types with the names of `jax.lax`."""

from collections.abc import Sequence

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import MAX_RANK, canonicalize_shape, check_integer
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import NumberRangeError, ShardingTypeError
from shardir.frontend.lax.data_movement import full
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.shardings.requested_sharding import ShardingRequest, resolve_out_sharding
from shardir.frontend.shardings.resharding import apply_out_sharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, operand_dtype, reshape
from shardir.frontend.tracing.promotion import DType, dtype_of, user_dtype
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import find_explicit_sharding, typeof
from shardir.ir.types import NumpyArray


@with_argument_errors
def dtype(x: ArrayLike | DTypeLike) -> DType:
    """Return the element type of an array or scalar, or the one that a name or a class denotes."""
    is_scalar_type = hasattr(x, "dtype") and not hasattr(x, "shape")
    if isinstance(x, (type, str, np.dtype)) or is_scalar_type:
        return user_dtype(dtype_of(x))
    return user_dtype(operand_dtype(x)[0])


@with_argument_errors
def empty(
    shape: Sequence[int], dtype: DTypeLike, *, out_sharding: ShardingRequest = None
) -> Tracer:
    """Return an array of `shape` filled with zeros, whose elements callers must not rely on."""
    return full(shape, 0, dtype, sharding=resolve_out_sharding(out_sharding, "out_sharding"))


@public(static=("rank",))
def broadcast_to_rank(x: ArrayLike, rank: int) -> Tracer:
    """Add leading dimensions of size 1 so that `x` has the rank `rank`."""
    array = as_tracer(x)
    count = check_integer("the rank of broadcast_to_rank", rank, 0, MAX_RANK) - array.ndim
    if count < 0:
        raise OperationTypeError(
            with_location(
                f"broadcast_to_rank adds dimensions, and shape {array.shape} has more than {rank}"
            )
        )
    return reshape(array, (1,) * count + array.shape)


@with_argument_errors
def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Tracer:
    """Broadcast `arr` to the shape of `like_arr`, with the sharding in its type.

    Raises `ShardingTypeError` if a sharded dimension of `arr` has another sharding there.
    """
    shape = abstract_of(like_arr, "like_arr of broadcast_like").type.shape
    result = reshaping.broadcast_to(arr, shape)
    sharding = find_explicit_sharding(like_arr)
    if sharding is not None:
        own = typeof(result).sharding.spec
        for dim in range(len(shape)):
            axes = own.axes(dim)
            if axes and axes != sharding.spec.axes(dim):
                raise ShardingTypeError(
                    with_location(
                        f"arr of broadcast_like is {typeof(arr)}, and like_arr is "
                        f"{typeof(like_arr)}, which has another sharding along dimension {dim} of "
                        "the result; reshard one of them (sharding.reshard)"
                    )
                )
    return apply_out_sharding(result, sharding)


@with_argument_errors
def shape_as_value(shape: Sequence[int]) -> NumpyArray:
    """Return the sizes of a shape as an array of i32."""
    sizes = canonicalize_shape(shape)
    if max(sizes, default=0) > np.iinfo(np.int32).max:
        raise NumberRangeError(
            with_location(
                f"shape_as_value returns sizes as int32, which cannot represent those of {sizes}"
            )
        )
    return np.asarray(sizes, np.int32)
