"""Sampler of manual computations: per-device programs inside of global programs."""

from math import prod

from shardir.frontend.random_programs.isolated_scope import IsolatedScope
from shardir.frontend.random_programs.scope import INTEGERS, NUMBERS, ORDERED, Scope, sampler
from shardir.ir.operation import Symbol
from shardir.ir.sharding import Axes, Axis

DimAxes = tuple[Axes, ...]


@sampler("manual_computation")
def _(s: Scope, name: str) -> None:
    names = [axis for axis in s.mesh.sizes if s.flag()] or [s.choose(*s.mesh.sizes)]
    axes = tuple(Axis.full(axis, s.mesh) for axis in names)
    local, operands, in_axes = [], [], []
    for _ in range(s.integer(1, 2)):
        type = s.type(NUMBERS)
        operand_axes = _choose_axes(s, type.rank, axes, all=False)
        shape = [
            n * prod(a.size for a in dim_axes)
            for n, dim_axes in zip(type.shape, operand_axes, strict=True)
        ]
        local.append(type)
        in_axes.append(operand_axes)
        operands.append(s.value(type.with_shape(shape)))
    b = s.b.inner()
    params = [b.param(type, s.choose("", "c")) for type in local]
    inner = IsolatedScope(s.choices, b, s.mesh, [], list(params), s.inner, s.sizes)
    inner.some()
    for _ in range(inner.integer(0, 2)):
        _add_collective(inner, axes)
    inner.some()
    returns, out_axes = [], []
    for _ in range(inner.integer(1, 2)):
        result = inner.tensor(NUMBERS)
        spread = result.type.rank > 0 and inner.flag()
        if not spread:
            result = b.all_reduce(result, axes=axes, op=Symbol("add"))
        returns.append(result)
        out_axes.append(_choose_axes(inner, result.type.rank, axes if spread else (), all=True))
    s.emit(
        name,
        *operands,
        blocks=(b.block(params, returns),),
        axes=axes,
        in_axes=tuple(in_axes),
        out_axes=tuple(out_axes),
    )


def _choose_axes(s: Scope, rank: int, axes: Axes, *, all: bool) -> DimAxes:
    """Return the axes that shard each of `rank` dimensions: with `all` every axis shards one."""
    lists: list[list[Axis]] = [[] for _ in range(rank)]
    for axis in s.permutation(axes):
        if rank and (all or s.flag()):
            lists[s.integer(0, rank - 1)].append(axis)
    return tuple(map(tuple, lists))


def _add_collective(s: Scope, manual: Axes) -> None:
    """Append a collective along some of the manual axes."""
    axes = tuple(s.permutation(manual))[: s.integer(1, len(manual))]
    count = prod(axis.size for axis in axes)
    kind = s.integer(0, 4)
    if kind == 0:
        op = s.choose("add", "max", "min")
        x = s.tensor(NUMBERS if op == "add" else ORDERED)
        s.emit("all-reduce", x, axes=axes, op=Symbol(op))
    elif kind == 1:
        x = s.tensor(low=1, high=2)
        s.emit("all-gather", x, dim=s.dim(x), axes=axes)
    elif kind == 2:
        places = range(count)
        pairs = zip(places, s.permutation(places), strict=True)
        s.emit("collective-permute", s.tensor(), axes=axes, pairs=tuple(pairs)[: s.integer(0, 9)])
    elif kind == 3:
        index = s.emit("axis-index", axes=axes)
        x = s.tensor(INTEGERS)
        s.emit("add", x, s.b.broadcast(s.b.convert(index, result=x.type.with_shape(())),
                                       dims=(), result=x.type))  # fmt: skip
    else:
        x = s.tensor(NUMBERS, low=1, high=2)
        x = s.emit("all-gather", x, dim=0, axes=axes)
        s.emit("reduce-scatter", x, dim=0, axes=axes, op=Symbol("add"))
