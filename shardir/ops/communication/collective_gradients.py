"""Cotangents of collectives: the transposed communication.

The cotangent of a replicated value is the sum of the devices' cotangents.
"""

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents, Symbol
from shardir.ir.sharding import Axes

Pairs = tuple[tuple[int, int], ...]


def all_reduce_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, axes: Axes, op: str, shared: bool = False
) -> Cotangents:
    """Return the cotangent; devices with equal extrema share it equally.

    Each device has its own cotangent and their sum counts; with `shared`, all devices have the same
    cotangent.
    """
    if op not in ("add", "max", "min"):
        raise DifferentiateError(f"%{y.name} = all-reduce with op={op} has no derivative")
    total = b.vary(g, axes=axes) if shared else b.all_reduce(g, axes=axes, op=Symbol("add"))
    if op == "add":
        return (total,)
    y = b.vary(y, axes=axes) if shared else y
    best = b.convert(b.eq(x, y), result=x.type)
    count = b.all_reduce(best, axes=axes, op=Symbol("add"))
    share = b.div(total, count)
    return (b.mul(best, share),)


def all_gather_vjp(b: Builder, g: Value, x: Value, y: Value, *, dim: int, axes: Axes) -> Cotangents:
    return (b.reduce_scatter(g, dim=dim, axes=axes, op=Symbol("add")),)


def reduce_scatter_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, dim: int, axes: Axes, op: str
) -> Cotangents:
    if op != "add":
        raise DifferentiateError(f"%{y.name} = reduce-scatter with op={op} has no derivative")
    return (b.all_gather(g, dim=dim, axes=axes),)


def all_to_all_vjp(
    b: Builder, g: Value, x: Value, y: Value, *, split: int, concat: int, axes: Axes
) -> Cotangents:
    return (b.all_to_all(g, split=concat, concat=split, axes=axes),)


def collective_permute_vjp(
    b: Builder,
    g: Value,
    x: Value,
    y: Value,
    *,
    source: Axes = (),
    target: Axes = (),
    axes: Axes = (),
    pairs: Pairs = (),
) -> Cotangents:
    if not axes:
        return (b.collective_permute(g, source=target, target=source),)
    back = tuple((receiver, sender) for sender, receiver in pairs)
    return (b.collective_permute(g, axes=axes, pairs=back),)
