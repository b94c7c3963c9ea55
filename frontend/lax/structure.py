"""Operations that move data, reduce, contract and sort, under the names of `jax.lax`."""

from collections.abc import Callable, Sequence
from typing import Any

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, broadcast as _broadcast, convert
from shardir.frontend.promotion import dtype_of
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.types import INTEGERS, TensorType

Ints = Sequence[int]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _axis(axis: int, rank: int, what: str) -> int:
    if not -rank <= axis < rank:
        raise OperationTypeError(point(f"{what}: axis {axis} of an array of rank {rank}"))
    return axis % rank


@public(static=("shape", "broadcast_dimensions"))
def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    """`operand` repeated to `shape`; its dimension i becomes `broadcast_dimensions[i]`."""
    tracer = as_tracer(operand)
    result = tracer.value.type.with_shape(shape)
    return emit("broadcast", tracer, dims=tuple(broadcast_dimensions), result=result)


@public(static=("sizes",))
def broadcast(operand: Any, sizes: Any) -> Any:
    """`operand` with new leading dimensions of `sizes`."""
    tracer = as_tracer(operand)
    return _broadcast(tracer, (*sizes, *tracer.shape))


@public(static=("new_sizes", "dimensions"))
def reshape(operand: Any, new_sizes: Any, dimensions: Any = None) -> Any:
    """`operand` with another shape of the same size."""
    tracer = as_tracer(operand)
    if dimensions is not None:
        tracer = emit("transpose", tracer, perm=tuple(dimensions))
    return emit("reshape", tracer, result=tracer.value.type.with_shape(new_sizes))


@public(static=("permutation",))
def transpose(operand: Any, permutation: Any) -> Any:
    """Dimension i of the result is dimension `permutation[i]` of `operand`."""
    return emit("transpose", as_tracer(operand), perm=tuple(permutation))


@public(static=("dimensions",))
def rev(operand: Any, dimensions: Any) -> Any:
    """`operand` backwards along `dimensions`."""
    return emit("reverse", as_tracer(operand), dims=tuple(dimensions))


@public(static=("dimensions",))
def expand_dims(array: Any, dimensions: Any) -> Any:
    """`array` with dimensions of size 1 where `dimensions` says."""
    tracer = as_tracer(array)
    rank = tracer.ndim + len(dimensions)
    new = {_axis(d, rank, "expand_dims") for d in dimensions}
    sizes = iter(tracer.shape)
    shape = tuple(1 if d in new else next(sizes) for d in range(rank))
    return emit("reshape", tracer, result=tracer.value.type.with_shape(shape))


@public(static=("dimensions",))
def squeeze(array: Any, dimensions: Any) -> Any:
    """`array` without the dimensions of size 1 that `dimensions` names."""
    tracer = as_tracer(array)
    gone = {_axis(d, tracer.ndim, "squeeze") for d in dimensions}
    shape = tuple(n for d, n in enumerate(tracer.shape) if d not in gone)
    return emit("reshape", tracer, result=tracer.value.type.with_shape(shape))


@public(static=("start_indices", "limit_indices", "strides"))
def slice(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    """The elements from `start_indices` up to `limit_indices`, `strides` apart."""
    tracer = as_tracer(operand)
    steps = tuple(strides) if strides is not None else (1,) * tracer.ndim
    starts = tuple(start_indices)
    spans = zip(starts, limit_indices, steps, strict=True)
    shape = tuple(max(0, -(-(stop - start) // step)) for start, stop, step in spans)
    result = tracer.value.type.with_shape(shape)
    return emit("slice", tracer, starts=starts, strides=steps, result=result)


@public(static=("start_index", "limit_index", "stride", "axis"))
def slice_in_dim(
    operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0
) -> Any:
    """`slice` along one dimension; negative and missing bounds as in Python."""
    tracer = as_tracer(operand)
    axis = _axis(axis, tracer.ndim, "slice_in_dim")
    span = range(tracer.shape[axis])[start_index:limit_index:stride]
    starts, limits, strides = [0] * tracer.ndim, list(tracer.shape), [1] * tracer.ndim
    starts[axis], limits[axis], strides[axis] = span.start, span.stop, span.step
    return slice(tracer, starts, limits, strides)


def _starts(indices: Any, rank: int, what: str) -> list[Tracer]:
    if isinstance(indices, (list, tuple)):
        starts = [as_tracer(i) for i in indices]
    else:
        packed = as_tracer(indices)
        starts = [packed[i] for i in range(packed.shape[0])]
    if len(starts) != rank:
        raise OperationTypeError(
            point(f"{what} takes one start for each of {rank} dimensions, got {len(starts)}")
        )
    for start in starts:
        if start.ndim or start.value.type.dtype not in INTEGERS:
            raise OperationTypeError(
                point(f"{what} starts at integers of rank 0, got {start.value.type}")
            )
    return [convert(start, "i32") for start in starts]


@public(static=("slice_sizes",))
def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any) -> Any:
    """The piece of `slice_sizes` that starts at traced indices, moved inside if it sticks out."""
    tracer = as_tracer(operand)
    starts = _wrapped(_starts(start_indices, tracer.ndim, "dynamic_slice"), tracer.shape)
    return emit("dynamic_slice", tracer, *starts, result=tracer.value.type.with_shape(slice_sizes))


def _wrapped(starts: list[Tracer], shape: tuple[int, ...]) -> list[Tracer]:
    """Negative starts count from the end, as in `jax.lax`."""
    from shardir.frontend import numpy as snp

    pairs = zip(starts, shape, strict=True)
    return [snp.where(start < 0, start + size, start) for start, size in pairs]


@public()
def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Any:
    """`operand` with `update` written at traced indices, moved inside if it sticks out."""
    tracer, piece = as_tracer(operand), as_tracer(update)
    starts = _wrapped(_starts(start_indices, tracer.ndim, "dynamic_update_slice"), tracer.shape)
    return emit("dynamic_update_slice", tracer, piece, *starts)


@public(static=("slice_size", "axis"))
def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    """`dynamic_slice` along one dimension."""
    tracer = as_tracer(operand)
    axis = _axis(axis, tracer.ndim, "dynamic_slice_in_dim")
    starts: list[Any] = [0] * tracer.ndim
    starts[axis] = start_index
    sizes = list(tracer.shape)
    sizes[axis] = slice_size
    return dynamic_slice(tracer, starts, sizes)


@public(static=("axis", "keepdims"))
def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    """One index along one dimension."""
    tracer = as_tracer(operand)
    piece = dynamic_slice_in_dim(tracer, index, 1, axis)
    return piece if keepdims else squeeze(piece, (axis,))


@public(static=("axis",))
def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int) -> Any:
    """`dynamic_update_slice` along one dimension."""
    tracer = as_tracer(operand)
    starts: list[Any] = [0] * tracer.ndim
    starts[_axis(axis, tracer.ndim, "dynamic_update_slice_in_dim")] = start_index
    return dynamic_update_slice(tracer, update, starts)


@public(static=("axis",))
def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int) -> Any:
    """One index along one dimension replaced."""
    tracer, piece = as_tracer(operand), as_tracer(update)
    if piece.ndim < tracer.ndim:
        piece = expand_dims(piece, (_axis(axis, tracer.ndim, "dynamic_update_index_in_dim"),))
    return dynamic_update_slice_in_dim(tracer, piece, index, axis)


@public(static=("dimension",))
def concatenate(operands: Any, dimension: int) -> Any:
    """Arrays of one element type, one after the other along `dimension`."""
    return emit("concatenate", *(as_tracer(x) for x in operands), dim=dimension)


@public(static=("padding_config",))
def pad(operand: Any, padding_value: Any, padding_config: Any) -> Any:
    """`operand` between `padding_value`; (low, high, interior) a dimension, negative cuts off."""
    tracer = as_tracer(operand)
    low, high, interior = zip(*padding_config, strict=True) if tracer.ndim else ((), (), ())
    value = convert(as_tracer(padding_value), tracer.value.type.dtype)
    return emit("pad", tracer, value, low=low, high=high, interior=interior)


@public(static=("dtype", "size"))
def iota(dtype: Any, size: int) -> Any:
    """0, 1, ..., size - 1."""
    return emit("iota", dim=0, result=TensorType((size,), dtype_of(dtype)))


@public(static=("dtype", "shape", "dimension"))
def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """The index along `dimension` of every element."""
    return emit("iota", dim=dimension, result=TensorType(tuple(shape), dtype_of(dtype)))


@public(static=("shape", "dtype"))
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """An array of `shape` whose every element is `fill_value`."""
    value = as_tracer(fill_value)
    if dtype is not None:
        value = convert(value, dtype_of(dtype))
    return _broadcast(value, tuple(shape))


def _reduction(name: str, core: str) -> Callable[..., Any]:
    @public(static=("axes",))
    def reduce(operand: Any, axes: Any) -> Any:
        tracer = as_tracer(operand)
        dims = tuple(_axis(axis, tracer.ndim, name) for axis in axes)
        return emit(core, tracer, dims=dims)

    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"The `{core}` of the elements along `axes`."
    function: Callable[..., Any] = reduce
    return function


reduce_sum, reduce_prod = _reduction("reduce_sum", "sum"), _reduction("reduce_prod", "prod")
reduce_max, reduce_min = _reduction("reduce_max", "max"), _reduction("reduce_min", "min")
reduce_and, reduce_or = _reduction("reduce_and", "all"), _reduction("reduce_or", "any")


def _position(name: str) -> Callable[..., Any]:
    @public(static=("axis", "index_dtype"))
    def position(operand: Any, axis: int, index_dtype: Any) -> Any:
        tracer = as_tracer(operand)
        dim = _axis(axis, tracer.ndim, name)
        shape = tracer.shape[:dim] + tracer.shape[dim + 1 :]
        return emit(name, tracer, dim=dim, result=TensorType(shape, dtype_of(index_dtype)))

    position.__name__ = position.__qualname__ = name
    position.__doc__ = f"The first index along `axis` of the {name[3:]}imum."
    function: Callable[..., Any] = position
    return function


argmax, argmin = _position("argmax"), _position("argmin")


def _cumulative(name: str) -> Callable[..., Any]:
    @public(static=("axis", "reverse"))
    def cumulate(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        tracer = as_tracer(operand)
        return emit(name, tracer, dim=_axis(axis, tracer.ndim, name), reverse=bool(reverse))

    cumulate.__name__ = cumulate.__qualname__ = name
    cumulate.__doc__ = f"`{name}` along `axis`, from its end when `reverse`."
    function: Callable[..., Any] = cumulate
    return function


cumsum, cumprod, cummax = _cumulative("cumsum"), _cumulative("cumprod"), _cumulative("cummax")
cummin, cumlogsumexp = _cumulative("cummin"), _cumulative("cumlogsumexp")


@public(static=("dimension", "is_stable", "num_keys"))
def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Sorted along `dimension`; of several arrays the first `num_keys` decide."""
    several = isinstance(operand, (list, tuple))
    arrays = [as_tracer(x) for x in (operand if several else [operand])]
    dim = _axis(dimension, arrays[0].ndim, "sort")
    results = emit("sort", *arrays, dim=dim, keys=num_keys, stable=bool(is_stable))
    return results if several else results[0] if isinstance(results, tuple) else results


@public(static=("k",))
def top_k(operand: Any, k: int) -> Any:
    """The `k` largest along the last dimension, largest first, and their i32 indices."""
    tracer = as_tracer(operand)
    if not tracer.ndim or not 0 <= k <= tracer.shape[-1]:
        raise OperationTypeError(point(f"top_k takes {k} of the last dimension of {tracer.shape}"))
    values = tracer.value.type.with_shape((*tracer.shape[:-1], k))
    return list(emit("top_k", tracer, result=(values, values.with_dtype("i32"))))


@public(static=("precision", "preferred_element_type"))
def dot(lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """The last dimension of `lhs` with the first of `rhs`, vectors and matrices only."""
    x, y = as_tracer(lhs), as_tracer(rhs)
    numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, numbers, precision, preferred_element_type)


@public(static=("dimension_numbers", "precision", "preferred_element_type"))
def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """A contraction: ((lhs contracting, rhs contracting), (lhs batch, rhs batch)) dimensions.

    The result has the batch dimensions, then what is left of `lhs`, then of `rhs`.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    letters = iter(LETTERS)
    left = [next(letters) for _ in range(x.ndim)]
    right = [next(letters) for _ in range(y.ndim)]
    for i, j in (*zip(contract_x, contract_y, strict=True), *zip(batch_x, batch_y, strict=True)):
        right[j] = left[i]
    gone = {left[i] for i in contract_x}
    batch = [left[i] for i in batch_x]
    kept = [c for c in left if c not in gone and c not in batch]
    kept += [c for c in right if c not in gone and c not in batch]
    dims = f"{''.join(left)},{''.join(right)}->{''.join((*batch, *kept))}"
    if preferred_element_type is None:
        return emit("dot", x, y, dims=dims)
    sizes = {**dict(zip(left, x.shape, strict=True)), **dict(zip(right, y.shape, strict=True))}
    shape = tuple(sizes[c] for c in (*batch, *kept))
    return emit("dot", x, y, dims=dims, result=TensorType(shape, dtype_of(preferred_element_type)))


@public(static=("dimension",))
def index_in_dim(operand: Any, index: Any, dimension: int = 0) -> Any:
    """One index along one dimension, which stays with size 1."""
    return dynamic_index_in_dim(operand, index, dimension)


@public()
def optimization_barrier(operand: Any) -> Any:
    """The same values; nothing is moved across. Takes containers."""
    from shardir.frontend import tree

    leaves, structure = tree.flatten(operand)
    results = emit("optimization_barrier", *(as_tracer(x) for x in leaves))
    return tree.unflatten(structure, results if isinstance(results, tuple) else [results])
