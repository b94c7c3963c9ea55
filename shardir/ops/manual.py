"""Programs of one device inside programs of all of them.

`manual_computation` is what `shard_map` and `pmap` become: along its axes every device runs the
body on its own piece and speaks to the others through collectives; along all other axes, the free
ones, the body is a program over whole values as any other, for the compiler to cut.

The body takes all it needs as operands, because only they say how they are cut: it uses no values
of the blocks around it. Its parameters and all that is made inside are local along the manual
axes, and their shardings tell of the free axes alone.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from shardir.axes import append
from shardir.factors import pointwise
from shardir.ir import Block, Value
from shardir.ops.check import show
from shardir.opset import Symbol, define
from shardir.placement import Axes, Axis, Sharding, size_of
from shardir.tangents import linear
from shardir.types import TensorType
from shardir.vma import made_varying

Cuts = tuple[Axes, ...]
"""The manual axes of each dimension of a tensor, in front of the free ones that cut it."""


def _pieces(type: TensorType, cuts: object, axes: Axes, word: str) -> list[int]:
    """Into how many pieces the manual axes cut each dimension, checked."""
    if not isinstance(cuts, tuple) or not all(isinstance(dim, tuple) for dim in cuts):
        raise TypeError(f"{word} has a list of mesh axes for each dimension of {type}")
    if len(cuts) != type.rank:
        raise TypeError(f"{word} speaks of {len(cuts)} dimensions of {type}")
    used = [axis for dim in cuts for axis in dim]
    for i, axis in enumerate(used):
        if not isinstance(axis, Axis) or not any(manual.contains(axis) for manual in axes):
            name = axis.name if isinstance(axis, Axis) else axis
            raise TypeError(f"{word} cuts {type} along {name!r}, which is not in axes={show(axes)}")
        if any(axis.overlaps(other) for other in used[:i]):
            raise TypeError(f"{word} cuts {type} along {axis.name!r} twice")
    return [size_of(dim) for dim in cuts]


def local_type(type: TensorType, cuts: Cuts, axes: Axes, word: str = "in_axes") -> TensorType:
    """What a device has of a tensor that `cuts` cut along the manual `axes`.

    Raises `TypeError`, speaking of `word`, unless the cuts are of these axes and divide it.
    """
    pieces = _pieces(type, cuts, axes, word)
    for dim, (size, count) in enumerate(zip(type.shape, pieces, strict=True)):
        if size % count:
            raise TypeError(
                f"{word} cuts dimension {dim} of {type} into {count} pieces, which do not divide it"
            )
    return type.with_shape([n // count for n, count in zip(type.shape, pieces, strict=True)])


def whole_type(type: TensorType, cuts: Cuts, axes: Axes) -> TensorType:
    """Of what tensor a device's piece is a part."""
    pieces = _pieces(type, cuts, axes, "out_axes")
    return type.with_shape([n * count for n, count in zip(type.shape, pieces, strict=True)])


def _type(
    *xs: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    axes: Axes,
    in_axes: tuple[Cuts, ...],
    out_axes: tuple[Cuts, ...],
    check_vma: bool = True,
) -> tuple[TensorType, ...]:
    if len(blocks) != 1:
        raise TypeError(f"has one block, got {len(blocks)}")
    for i, axis in enumerate(axes):
        if not isinstance(axis, Axis):
            raise TypeError(f"axes={show(axes)} holds {axis!r}, which is no mesh axis")
        if any(axis.overlaps(other) for other in axes[:i]):
            raise TypeError(f"axes={show(axes)} uses a part of {axis.name!r} twice")
    (body,) = blocks
    if len(in_axes) != len(xs):
        raise TypeError(f"in_axes says of {len(in_axes)} operands how they are cut, not {len(xs)}")
    if len(out_axes) != len(body.returns):
        raise TypeError(
            f"out_axes says of {len(out_axes)} results how they are cut, not {len(body.returns)}"
        )
    wanted = [local_type(x, cuts, axes) for x, cuts in zip(xs, in_axes, strict=True)]
    params = [param.type for param in body.params]
    if params != wanted:
        raise TypeError(f"its body takes ({_list(params)}), wanted ({_list(wanted)})")
    returned = (value.type for value in body.returns)
    return tuple(
        whole_type(type, cuts, axes) for type, cuts in zip(returned, out_axes, strict=True)
    )


def _list(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types))


def with_cuts(free: Sharding, cuts: Cuts) -> Sharding:
    """The sharding of a whole tensor, from that of its pieces along the free axes."""
    dims = []
    for dim, manual in zip(free.dims, cuts, strict=True):
        axes: Axes = ()
        for axis in (*manual, *dim.axes):
            axes = append(axes, axis)
        dims.append(replace(dim, axes=axes))
    return replace(free, dims=tuple(dims))


manual_computation = define("manual_computation", type=_type, blocks=1)
"""The body on the pieces that `in_axes` cut the operands into along the manual `axes`; what the
devices return are the pieces of the results as `out_axes` say.

Both have, for each operand or result and each of its dimensions, the manual axes that cut it, in
front of all others. What is not cut along a manual axis is the same on all devices along it.

`check_vma` is about derivatives alone. Where it is true, a value of the body varies along the
manual axes that follow from how it was made (see `shardir.vma`). Where it is false, every value
varies along all of them: each device has its own.
"""


def _vary_type(x: TensorType, *, axes: Axes, result: object) -> TensorType:
    return x


def _vary_vjp(b: Any, g: Value, x: Value, y: Value, *, axes: Axes) -> Any:
    return (b.all_reduce(g, axes=axes, op=Symbol("add"), shared=True),)


vary = define(
    "vary",
    type=_vary_type,
    factors=lambda x, *, result, axes: pointwise([x.shape], [result.shape]),
    reference=lambda x, *, result, axes: x,
    vjp=_vary_vjp,
    jvp=linear,
    vma=made_varying,
    elementwise=True,
    spmd=True,
)
"""What is the same along the axes, as a value that each position along them has for itself.

It changes no number and is gone before anything is partitioned. It is there for derivatives: the
identity forward, and in reverse the sum over the devices, because the cotangents of one value that
devices share are added up where each device takes it for itself. See `shardir.passes.varying`.
"""
