"""Collective operations between the devices of a mesh; valid only in per-device programs.

An operation names the mesh axes along which devices exchange data, never devices, so the same
program is valid for a mesh of any size. `axes` are major to minor: the device at position p along
them holds shard p. `all-slice` and `axis-index` depend on the device but do not communicate.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product

import numpy as np

from shardir.ir.arithmetic import arithmetic_of_attribute
from shardir.ir.device_groups import device_groups, device_positions, permute_senders
from shardir.ir.mesh import Mesh
from shardir.ir.operation import Result, Varying, Vma, define_op
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.sub_axes import can_coexist, find_conflict
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import ShiftDims
from shardir.op_rules.factors import FactorRule, RuleBuilder
from shardir.op_rules.vma import exchange_varying, reduce_varying, vary_along
from shardir.ops.communication.collective_attributes import (
    AllReduceAttributes,
    AllToAllAttributes,
    AxesAttributes,
    CollectiveAttributes,
    CollectivePermuteAttributes,
    ReduceScatterAttributes,
    ShardedDimAttributes,
)
from shardir.ops.communication.collective_gradients import (
    all_gather_vjp,
    all_reduce_vjp,
    all_to_all_vjp,
    collective_permute_vjp,
    reduce_scatter_vjp,
)
from shardir.ops.elementwise import numerics
from shardir.ops.elementwise.numerics import is_narrow_float
from shardir.ops.type_checks import (
    ANY_DTYPE,
    ARITHMETIC,
    BITS,
    ORDERED,
    DtypeDomain,
    check_dim,
    format_list,
)

Array = NumpyArray
Parts = Sequence[tuple[Array, ...]]

REDUCTIONS: dict[str, tuple[Callable[[Array, Array], Array], DtypeDomain]] = {
    "add": (np.add, ARITHMETIC),
    "mul": (np.multiply, ARITHMETIC),
    "max": (numerics.maximum, ORDERED),
    "min": (numerics.minimum, ORDERED),
    "and": (np.bitwise_and, BITS),
    "or": (np.bitwise_or, BITS),
}
"""The NumPy function and the element types of each reduction."""


def _count_devices(axes: Axes, name: str = "axes") -> int:
    """Return the number of devices along `axes` after checking that the axes do not overlap."""
    if not axes:
        raise TypeError(f"{name}=[] contains no mesh axis")
    for axis in axes:
        if not isinstance(axis, Axis):
            raise TypeError(f"{name}={format_list(axes)} holds {axis!r}, which is not a mesh axis")
    if fault := find_conflict(axes):
        raise TypeError(f"{name}={format_list(axes)} uses {fault}")
    return count_positions(axes)


def _check_reduction(x: TensorType, op: str) -> None:
    if op not in REDUCTIONS:
        raise TypeError(f"op={op} is not a reduction; op is one of {', '.join(REDUCTIONS)}")
    try:
        REDUCTIONS[op][1].check(x)
    except TypeError as error:
        raise TypeError(f"with op={op} {error}") from None


def _split_type(x: TensorType, dim: int, count: int, name: str = "dim") -> TensorType:
    size = x.shape[check_dim(x, dim, name)]
    if size % count:
        raise TypeError(
            f"splits dimension {dim} of {x} into {count} shards, which do not divide it"
        )
    return _resize(x, dim, size // count)


def _resize(x: TensorType, dim: int, size: int) -> TensorType:
    return x.with_shape((*x.shape[:dim], size, *x.shape[dim + 1 :]))


def _factors(x: TensorType, *, result: TensorType, attributes: CollectiveAttributes) -> FactorRule:
    """Return the factors of dimensions that the collective does not change; they may be sharded
    along other axes.
    """
    builder = RuleBuilder([x.shape], [result.shape])
    return builder.add_pointwise(x.shape, skip=attributes.changed_dims).build()


def _exchange_groups(
    mesh: Mesh,
    parts: Parts,
    axes: Axes,
    combine: Callable[[list[Array]], Sequence[Array]],
) -> list[Array]:
    """Apply `combine` to the ordered arrays of each group; member i gets the i-th result.

    Groups with identical array objects are combined once.
    """
    results: list[Array] = [parts[0][0]] * mesh.size
    results_of_groups: dict[tuple[int, ...], Sequence[Array]] = {}
    for group in device_groups(mesh, axes):
        arrays = [parts[device][0] for device in group]
        key = tuple(map(id, arrays))
        if key not in results_of_groups:
            results_of_groups[key] = combine(arrays)
        for device, result in zip(group, results_of_groups[key], strict=True):
            results[device] = result
    return results


def reduce_arrays(arrays: list[Array], op: str) -> Array:
    """Reduce in order of position; 16-bit floats are accumulated in single precision."""
    function, dtype = REDUCTIONS[op][0], arrays[0].dtype
    with np.errstate(all="ignore"):
        if is_narrow_float(dtype):
            wide = reduce(function, (array.astype(np.float32) for array in arrays))
            return np.asarray(wide.astype(dtype))
        return np.asarray(reduce(function, arrays))


def _reduce_type(x: TensorType, *, attributes: AllReduceAttributes, result: Result) -> TensorType:
    _count_devices(attributes.axes)
    _check_reduction(x, attributes.op)
    return x


def _reduce(
    mesh: Mesh, parts: Parts, *, attributes: AllReduceAttributes, result: TensorType
) -> list[Array]:
    def reduce_group(arrays: list[Array]) -> list[Array]:
        return [reduce_arrays(arrays, attributes.op)] * len(arrays)

    return _exchange_groups(mesh, parts, attributes.axes, reduce_group)


all_reduce = define_op(
    "all-reduce",
    attributes=AllReduceAttributes,
    type=_reduce_type,
    factors=_factors,
    exchange=_reduce,
    batch=ShiftDims(),
    vjp=all_reduce_vjp,
    vma=reduce_varying,
    collective=True,
    spmd=True,
    arithmetic=arithmetic_of_attribute,
)
"""`all-reduce(x, axes, op)`: every device gets the reduction of all operands.

`shared` only affects gradients: the result counts as one value that all devices share instead of
one value per device (see `shardir.passes.autodiff.varying`).
"""


def _gather_type(x: TensorType, *, attributes: ShardedDimAttributes, result: Result) -> TensorType:
    dim, axes = attributes.dim, attributes.axes
    ANY_DTYPE.check(x)
    return _resize(x, dim, x.shape[check_dim(x, dim)] * _count_devices(axes))


def _gather(
    mesh: Mesh, parts: Parts, *, attributes: ShardedDimAttributes, result: TensorType
) -> list[Array]:
    def gather_group(arrays: list[Array]) -> list[Array]:
        return [np.concatenate(arrays, attributes.dim)] * len(arrays)

    return _exchange_groups(mesh, parts, attributes.axes, gather_group)


all_gather = define_op(
    "all-gather",
    attributes=ShardedDimAttributes,
    type=_gather_type,
    factors=_factors,
    exchange=_gather,
    batch=ShiftDims("dim"),
    vjp=all_gather_vjp,
    vma=exchange_varying,
    collective=True,
    spmd=True,
    arithmetic=None,
)
"""`all-gather(x, dim, axes)`: every device gets all shards, concatenated along `dim`."""


def _slice_type(x: TensorType, *, attributes: ShardedDimAttributes, result: Result) -> TensorType:
    return _split_type(x, attributes.dim, _count_devices(attributes.axes))


def _slice(
    mesh: Mesh, parts: Parts, *, attributes: ShardedDimAttributes, result: TensorType
) -> list[Array]:
    dim, axes = attributes.dim, attributes.axes
    slices: dict[tuple[int, int], Array] = {}
    results = []
    for (array,), position in zip(parts, device_positions(mesh, axes).tolist(), strict=True):
        key = (id(array), position)
        if key not in slices:
            slices[key] = split_array(array, dim, count_positions(axes))[position]
        results.append(slices[key])
    return results


def split_array(array: Array, dim: int, count: int) -> list[Array]:
    """Return an array split along a dimension."""
    return np.split(array, count, axis=dim)


all_slice = define_op(
    "all-slice",
    attributes=ShardedDimAttributes,
    type=_slice_type,
    exchange=_slice,
    batch=ShiftDims("dim"),
    vma=exchange_varying,
    spmd=True,
    arithmetic=None,
)
"""`all-slice(x, dim, axes)`: every device keeps its own shard of a replicated operand."""


def _reduce_scatter_type(
    x: TensorType, *, attributes: ReduceScatterAttributes, result: Result
) -> TensorType:
    _check_reduction(x, attributes.op)
    return _split_type(x, attributes.dim, _count_devices(attributes.axes))


def _reduce_scatter(
    mesh: Mesh, parts: Parts, *, attributes: ReduceScatterAttributes, result: TensorType
) -> list[Array]:
    def reduce_and_split(arrays: list[Array]) -> list[Array]:
        return split_array(reduce_arrays(arrays, attributes.op), attributes.dim, len(arrays))

    return _exchange_groups(mesh, parts, attributes.axes, reduce_and_split)


reduce_scatter = define_op(
    "reduce-scatter",
    attributes=ReduceScatterAttributes,
    type=_reduce_scatter_type,
    factors=_factors,
    exchange=_reduce_scatter,
    batch=ShiftDims("dim"),
    vjp=reduce_scatter_vjp,
    vma=exchange_varying,
    collective=True,
    spmd=True,
    arithmetic=arithmetic_of_attribute,
)
"""`reduce-scatter(x, dim, axes, op)`: every device gets its shard of the reduction."""


def _all_to_all_type(
    x: TensorType, *, attributes: AllToAllAttributes, result: Result
) -> TensorType:
    split, concat = attributes.split, attributes.concat
    if split == concat:
        raise TypeError(f"split and concat are both {split}; they are different dimensions")
    count = _count_devices(attributes.axes)
    split_type = _split_type(x, split, count, "split")
    return _resize(split_type, concat, x.shape[check_dim(x, concat, "concat")] * count)


def _all_to_all(
    mesh: Mesh, parts: Parts, *, attributes: AllToAllAttributes, result: TensorType
) -> list[Array]:
    def turn(arrays: list[Array]) -> list[Array]:
        rows = [split_array(array, attributes.split, len(arrays)) for array in arrays]
        return [np.concatenate(column, attributes.concat) for column in zip(*rows, strict=True)]

    return _exchange_groups(mesh, parts, attributes.axes, turn)


all_to_all = define_op(
    "all-to-all",
    attributes=AllToAllAttributes,
    type=_all_to_all_type,
    factors=_factors,
    exchange=_all_to_all,
    batch=ShiftDims("split", "concat"),
    vjp=all_to_all_vjp,
    vma=exchange_varying,
    collective=True,
    spmd=True,
    arithmetic=None,
)
"""`all-to-all(x, split, concat, axes)`: moves the sharding from `concat` to `split`."""


def _permute_type(
    x: TensorType, *, attributes: CollectivePermuteAttributes, result: Result
) -> TensorType:
    source, target = attributes.source, attributes.target
    axes, pairs = attributes.axes, attributes.pairs
    ANY_DTYPE.check(x)
    if not axes:
        if _count_devices(source, "source") != _count_devices(target, "target"):
            raise TypeError(
                f"source={format_list(source)} and target={format_list(target)} differ in number "
                "of devices"
            )
        for a, b in product(source, target):
            if not can_coexist(a, b):
                raise TypeError(
                    f"source={format_list(source)} and target={format_list(target)}: {a} and {b} "
                    f"are not parts of one split of {a.name!r}"
                )
        return x
    count = _count_devices(axes)
    for column, what in ((0, "sends"), (1, "receives")):
        places = [pair[column] for pair in pairs]
        if any(not 0 <= position < count for position in places):
            raise TypeError(
                f"pairs={format_list(pairs)} leave the {count} positions along {format_list(axes)}"
            )
        if len(set(places)) < len(places):
            raise TypeError(f"pairs={format_list(pairs)} hold a position that {what} twice")
    return x


def _permute(
    mesh: Mesh, parts: Parts, *, attributes: CollectivePermuteAttributes, result: TensorType
) -> list[Array]:
    if not attributes.axes:
        senders = permute_senders(mesh, attributes.source, attributes.target)
        return [parts[sender][0] for sender in senders.tolist()]
    sender_of = {target: source for source, target in attributes.pairs}
    zeros = np.zeros(result.shape, result.numpy)

    def move(arrays: list[Array]) -> list[Array]:
        places = range(len(arrays))
        return [arrays[sender_of[p]] if p in sender_of else zeros for p in places]

    return _exchange_groups(mesh, parts, attributes.axes, move)


def _permute_varying(
    operands: Sequence[Varying], *, attributes: CollectivePermuteAttributes
) -> Vma:
    axes = (*attributes.axes, *attributes.source, *attributes.target)
    return vary_along(operands, axes)


collective_permute = define_op(
    "collective-permute",
    attributes=CollectivePermuteAttributes,
    type=_permute_type,
    factors=_factors,
    exchange=_permute,
    batch=ShiftDims(),
    vjp=collective_permute_vjp,
    vma=_permute_varying,
    collective=True,
    spmd=True,
    arithmetic=None,
)
"""`collective-permute(x, source, target)`: moves the shard at position c along `source` to position
c along `target`. `collective-permute(x, axes, pairs)`: moves the array between positions along
`axes` for each (from, to) of `pairs`; other receivers get zeros.
"""


def _axis_index_type(*, attributes: AxesAttributes, result: Result) -> TensorType:
    _count_devices(attributes.axes)
    return TensorType((), "i32")


def _axis_index(
    mesh: Mesh, parts: Parts, *, attributes: AxesAttributes, result: TensorType
) -> list[Array]:
    axes = attributes.axes
    numbers = [np.asarray(i, np.int32) for i in range(count_positions(axes))]
    return [numbers[position] for position in device_positions(mesh, axes).tolist()]


axis_index = define_op(
    "axis-index",
    attributes=AxesAttributes,
    type=_axis_index_type,
    exchange=_axis_index,
    vma=exchange_varying,
    spmd=True,
)
"""`axis-index(axes)`: the device's position along `axes`."""
