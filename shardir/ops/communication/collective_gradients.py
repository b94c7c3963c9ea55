"""Cotangents of collectives: the transposed communication.

The cotangent of a replicated value is the sum of the devices' cotangents.
"""

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents, Symbol
from shardir.ops.communication.collective_attributes import (
    AllReduceAttributes,
    AllToAllAttributes,
    CollectivePermuteAttributes,
    ReduceScatterAttributes,
    ShardedDimAttributes,
)


def all_reduce_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: AllReduceAttributes
) -> Cotangents:
    """Return the cotangent; devices with equal extrema share it equally.

    Each device has its own cotangent and their sum counts; with `shared`, all devices have the same
    cotangent.
    """
    axes, op, shared = attributes.axes, attributes.op, attributes.shared
    if op not in ("add", "max", "min"):
        raise DifferentiateError(
            f"%{y.name} = all-reduce with op={op} has no derivative; gather the shards with "
            "all-gather and reduce them on each device"
        )
    total = b.vary(g, axes=axes) if shared else b.all_reduce(g, axes=axes, op=Symbol("add"))
    if op == "add":
        return (total,)
    y = b.vary(y, axes=axes) if shared else y
    best = b.convert(b.eq(x, y), result=x.type)
    count = b.all_reduce(best, axes=axes, op=Symbol("add"))
    share = b.div(total, count)
    return (b.mul(best, share),)


def all_gather_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: ShardedDimAttributes
) -> Cotangents:
    dim, axes = attributes.dim, attributes.axes
    return (b.reduce_scatter(g, dim=dim, axes=axes, op=Symbol("add")),)


def reduce_scatter_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: ReduceScatterAttributes
) -> Cotangents:
    if attributes.op != "add":
        raise DifferentiateError(
            f"%{y.name} = reduce-scatter with op={attributes.op} has no derivative; exchange the "
            "shards with all-to-all and reduce them on each device"
        )
    return (b.all_gather(g, dim=attributes.dim, axes=attributes.axes),)


def all_to_all_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: AllToAllAttributes
) -> Cotangents:
    split, concat = attributes.concat, attributes.split
    return (b.all_to_all(g, split=split, concat=concat, axes=attributes.axes),)


def collective_permute_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, attributes: CollectivePermuteAttributes
) -> Cotangents:
    if not attributes.axes:
        source, target = attributes.target, attributes.source
        return (b.collective_permute(g, source=source, target=target),)
    back = tuple((receiver, sender) for sender, receiver in attributes.pairs)
    return (b.collective_permute(g, axes=attributes.axes, pairs=back),)
