"""Per-device computations inside global programs.

`shard_map` and `pmap` become a `manual_computation`: along its manual axes every device runs the
body on its own shard and communicates with collectives; along all other (free) axes, the body is a
program over global values that the compiler partitions.

The body receives all values as operands, since only operands state their sharding; it captures no
values of enclosing blocks. The values inside are local along the manual axes, and their shardings
use only the free axes.
"""

from dataclasses import dataclass, replace

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.builder import Builder
from shardir.ir.module import Block, Value
from shardir.ir.operation import Cotangents, Symbol, define_op
from shardir.ir.sharding import Axes, Axis, Sharding, count_positions
from shardir.ir.sub_axes import append_axis, find_conflict
from shardir.ir.types import TensorType
from shardir.op_rules.factors import pointwise_rule
from shardir.op_rules.tangents import linear_tangent
from shardir.op_rules.vma import make_varying
from shardir.ops.communication.collective_attributes import AxesAttributes
from shardir.ops.control_flow.block_types import check_types, only_block
from shardir.ops.type_checks import format_list

ManualDimAxes = tuple[Axes, ...]
"""The manual axes that shard each dimension of a tensor; they precede the free axes."""


def _shard_counts(type: TensorType, dim_axes: object, axes: Axes, word: str) -> list[int]:
    """Return the number of shards along the manual axes for each dimension, after validation."""
    if not isinstance(dim_axes, tuple) or not all(isinstance(dim, tuple) for dim in dim_axes):
        raise TypeError(f"{word} has a list of mesh axes for each dimension of {type}")
    if len(dim_axes) != type.rank:
        raise TypeError(f"{word} lists {count_noun(len(dim_axes), 'dimension')} for {type}")
    used = [axis for dim in dim_axes for axis in dim]
    for axis in used:
        if not isinstance(axis, Axis) or not any(manual.contains(axis) for manual in axes):
            name = axis if isinstance(axis, Axis) else repr(axis)
            raise TypeError(
                f"{word} shards {type} along {name}, which is not in axes={format_list(axes)}"
            )
    if fault := find_conflict(used):
        raise TypeError(f"{word} shards {type} along {fault}")
    return [count_positions(dim) for dim in dim_axes]


def manual_local_type(type: TensorType, dim_axes: ManualDimAxes, axes: Axes) -> TensorType:
    """Return the local type of a tensor that is sharded by `dim_axes` along the manual `axes`.

    Raises `TypeError` unless the sharding uses these axes and divides the tensor.
    """
    pieces = _shard_counts(type, dim_axes, axes, "in_axes")
    for dim, (size, count) in enumerate(zip(type.shape, pieces, strict=True)):
        if size % count:
            raise TypeError(
                f"in_axes splits dimension {dim} of {type} into {count_noun(count, 'shard')}, "
                "which do not divide it"
            )
    return type.with_shape([n // count for n, count in zip(type.shape, pieces, strict=True)])


def manual_global_type(type: TensorType, dim_axes: ManualDimAxes, axes: Axes) -> TensorType:
    """Return the global type of a tensor given the type of a local shard."""
    pieces = _shard_counts(type, dim_axes, axes, "out_axes")
    return type.with_shape([n * count for n, count in zip(type.shape, pieces, strict=True)])


@dataclass(frozen=True, slots=True)
class ManualComputationAttributes(Attributes):
    """The attributes of a manual computation."""

    axes: Axes
    in_axes: tuple[ManualDimAxes, ...]
    out_axes: tuple[ManualDimAxes, ...]
    check_vma: bool = True


def _type(
    *xs: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    attributes: ManualComputationAttributes,
) -> tuple[TensorType, ...]:
    axes, in_axes, out_axes = attributes.axes, attributes.in_axes, attributes.out_axes
    body = only_block(blocks)
    for axis in axes:
        if not isinstance(axis, Axis):
            raise TypeError(f"axes={format_list(axes)} holds {axis!r}, which is not a mesh axis")
    if fault := find_conflict(axes):
        raise TypeError(f"axes={format_list(axes)} uses {fault}")
    if len(in_axes) != len(xs):
        raise TypeError(f"in_axes lists {count_noun(len(in_axes), 'operand')}, not {len(xs)}")
    if len(out_axes) != len(body.returns):
        raise TypeError(
            f"out_axes lists {count_noun(len(out_axes), 'result')}, not {len(body.returns)}"
        )
    expected = [
        manual_local_type(x, dim_axes, axes) for x, dim_axes in zip(xs, in_axes, strict=True)
    ]
    check_types("its body takes", body.params, expected)
    return tuple(
        manual_global_type(value.type, dim_axes, axes)
        for value, dim_axes in zip(body.returns, out_axes, strict=True)
    )


def add_manual_axes(free: Sharding, dim_axes: ManualDimAxes) -> Sharding:
    """Return the sharding of a global tensor from that of its shards along the free axes."""
    dims = []
    for dim, manual in zip(free.dims, dim_axes, strict=True):
        axes: Axes = ()
        for axis in (*manual, *dim.axes):
            axes = append_axis(axes, axis)
        dims.append(replace(dim, axes=axes))
    return replace(free, dims=tuple(dims))


manual_computation = define_op(
    "manual_computation", attributes=ManualComputationAttributes, type=_type, blocks=1
)
"""The body applied to the shards of the operands given by `in_axes` along the manual `axes`; the
results of the devices are shards of the results given by `out_axes`.

Both state, for each operand or result and each of its dimensions, the manual axes that shard it,
before all other axes. A value that is not sharded along a manual axis is equal on all devices along
it.

`check_vma` only affects derivatives. If it is true, a value of the body varies along the manual
axes that follow from its computation (see `shardir.op_rules.vma`). If it is false, every value
varies along all of them.
"""


def _vary_type(x: TensorType, *, attributes: AxesAttributes, result: object) -> TensorType:
    return x


def _vary_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: AxesAttributes
) -> Cotangents:
    return (b.all_reduce(g, axes=attributes.axes, op=Symbol("add"), shared=True),)


vary = define_op(
    "vary",
    attributes=AxesAttributes,
    type=_vary_type,
    factors=lambda x, *, result, attributes: pointwise_rule([x.shape], [result.shape]),
    reference=lambda x, *, result, attributes: x,
    vjp=_vary_vjp,
    jvp=linear_tangent,
    vma=make_varying,
    elementwise=True,
    spmd=True,
    arithmetic=None,
)
"""The operand, marked as varying along the axes.

It does not change values and is removed before partitioning. It exists for derivatives: it is the
identity forward, and in reverse a sum over the devices, because the cotangents of a shared value
are added where each device starts to use it separately. See `shardir.passes.autodiff.varying`.
"""
