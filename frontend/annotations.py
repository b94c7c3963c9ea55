"""Shardings asked for while a function is traced, before the program's mesh is known.

Which mesh a program runs on is settled when its trace ends, because any sharding met on the way
has a say in it. Until then a user's sharding stands in the program as a token: a sharding over a
mesh of its own, called `?0`, `?1`, ... in order of appearance, that has one axis for each
dimension that is cut. Tokens are shardings like any other, so transformations may carry them to
gradients, or give them another dimension; `resolve` puts the axes of the real mesh in their place.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shardir import ops
from shardir.frontend.digits import pieces
from shardir.frontend.partition_spec import UNCONSTRAINED, Unconstrained
from shardir.frontend.trace import Program, emit, require
from shardir.ir import Block, Op, Value
from shardir.placement import OPEN, Axes, Axis, Dim, Sharding

if TYPE_CHECKING:
    from shardir.frontend.shardings import Sharding as UserSharding
    from shardir.frontend.tracer import Tracer


def constrain(tracer: "Tracer", sharding: "UserSharding") -> "Tracer":
    """The traced value, held to `sharding` from here on.

    Raises `ShardingError` when a value of this rank cannot have it. Dimensions need not divide.
    """
    program = require("with_sharding_constraint").program
    constrained: Tracer = emit(
        ops.sharding_constraint,
        tracer,
        sharding=token(program, sharding, tracer.ndim),
        weak=tracer.weak_type,
    )
    return constrained


def token(program: Program, sharding: "UserSharding", rank: int) -> Sharding:
    """What stands for `sharding` until the program's mesh is known."""
    cuts = sharding.digits(rank)
    mesh = f"?{program.asked.setdefault((sharding, rank), len(program.asked))}"
    dims = []
    for i, cut in enumerate(cuts):
        if cut is UNCONSTRAINED:
            dims.append(OPEN)
        else:
            count = pieces(cut)
            dims.append(Dim((Axis(f"{i}", 1, count),) if count > 1 else (), open=False))
    return Sharding(mesh, tuple(dims))


Expressed = Sequence[tuple[Axes | Unconstrained, ...]]


def resolved(token: Sharding, mesh: str, expressed: Expressed) -> Sharding:
    """The sharding over `mesh` that a token means; `expressed[n]` has the axes for `?n`."""
    asked = expressed[int(token.mesh[1:])]
    dims = []
    for dim in token.dims:
        axes: list[Axis] = []
        for axis in dim.axes:
            cut = asked[int(axis.name)]
            assert cut is not UNCONSTRAINED
            axes.extend(cut)
        dims.append(Dim(tuple(axes), dim.open, dim.priority))
    return Sharding(mesh, tuple(dims))


def resolve(block: Block, sharded: Callable[[Value], Sharding | None]) -> Block:
    """The block with the sharding that `sharded` says for each value."""
    new: dict[Value, Value] = {}

    def value_of(value: Value) -> Value:
        sharding = sharded(value)
        if sharding is not value.sharding:
            new[value] = Value(value.type, value.name, sharding)
        return new.get(value, value)

    def rebuilt(block: Block) -> Block:
        params = tuple(map(value_of, block.params))
        ops = []
        for op in block.ops:
            operands = tuple([new.get(v, v) for v in op.operands])
            results = tuple(map(value_of, op.results))
            blocks = tuple(map(rebuilt, op.blocks))
            ops.append(Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why))
        return Block(params, tuple(ops), tuple([new.get(v, v) for v in block.returns]))

    return rebuilt(block)
