"""Shardings asked for while a function is traced, before the program's mesh is known.

Which mesh a program runs on is settled when its trace ends, because any sharding met on the way
has a say in it. Until then a user's sharding stands in the program as a token: a sharding over a
mesh of its own, called `?0`, `?1`, ... in order of appearance, that has one axis for each
dimension that is cut. Tokens are shardings like any other, so transformations may carry them to
gradients, or give them another dimension; `resolve` puts the axes of the real mesh in their place.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING

from shardir import ops as ops_
from shardir.frontend.digits import pieces
from shardir.frontend.errors import ShardingError
from shardir.frontend.locations import point
from shardir.frontend.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.shardings import NamedSharding
from shardir.frontend.trace import emit, require
from shardir.frontend.traced_program import Program
from shardir.ir import Block, Op, Value
from shardir.opset import Attr
from shardir.placement import OPEN, Axes, Axis, Dim, Sharding

if TYPE_CHECKING:
    from shardir.frontend.mesh import Mesh
    from shardir.frontend.shardings import Sharding as UserSharding
    from shardir.frontend.tracer import Tracer


def constrain(tracer: "Tracer", sharding: "UserSharding") -> "Tracer":
    """The traced value, held to `sharding` from here on.

    Raises `ShardingError` when a value of this rank cannot have it. Dimensions need not divide.
    """
    program = require("with_sharding_constraint").program
    _check_free(sharding, tracer.ndim)
    constrained: Tracer = emit(
        ops_.sharding_constraint,
        tracer,
        sharding=token(program, sharding, tracer.ndim),
        weak=tracer.weak_type,
    )
    return constrained


_manual: "ContextVar[tuple[tuple[Mesh, str], ...]]" = ContextVar("shardir_manual", default=())


@contextmanager
def manual_axes(mesh: "Mesh", names: Sequence[str]) -> Iterator[None]:
    """Inside, every device is on its own along these axes of a mesh."""
    token = _manual.set((*_manual.get(), *((mesh, name) for name in names)))
    try:
        yield
    finally:
        _manual.reset(token)


def is_in_manual_region() -> bool:
    """Return whether devices are on their own around the line, along any axis of a mesh."""
    return bool(_manual.get())


def _check_free(sharding: "UserSharding", rank: int) -> None:
    """Raise `ShardingError` where a sharding cuts along axes that are manual around the line."""
    for mesh, name in _manual.get():
        if mesh.device_assignment != sharding.device_assignment:
            continue
        stride, size = mesh.strides[name], mesh.shape[name]
        for cut in sharding.digits(rank):
            for digit in () if cut is UNCONSTRAINED else cut:
                if digit.stride < stride * size and stride < digit.span:
                    raise ShardingError(
                        point(
                            f"{sharding} is asked of a value that each device along {name!r} has "
                            f"for itself (it is a manual axis around this line); leave {name!r} "
                            "out of it"
                        )
                    )


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


def axis_token(program: Program, mesh: "Mesh", name: str) -> Axis:
    """What stands for an axis of a mesh in attributes, until the program's mesh is known."""
    whole = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
    key = whole, len(mesh.axis_names)
    number = program.asked.setdefault(key, len(program.asked))
    return Axis(f"?{number}.{mesh.axis_names.index(name)}", 1, mesh.shape[name])


def _axes_meant(axis: Axis, expressed: "Expressed") -> Axes:
    """The axes of the program's mesh, major to minor, that a token or a part of one means."""
    number, _, dim = axis.name[1:].partition(".")
    parts = expressed[int(number)][int(dim)]
    assert parts is not UNCONSTRAINED
    meant: list[Axis] = []
    before = 1
    for part in parts:
        # The token as [before, part.size, ...], of which [axis.pre, axis.size, ...] is wanted.
        low, high = max(before, axis.pre), min(before * part.size, axis.next)
        if low < high:
            if high % low or low % before:
                raise ShardingError(
                    f"groups of {axis.size} positions along an axis do not nest in the mesh of the "
                    "program; use one mesh throughout"
                )
            meant.append(Axis(part.name, part.pre * (low // before), high // low))
        before *= part.size
    return tuple(meant)


def _meant(attr: Attr, expressed: "Expressed") -> Attr:
    """An attribute with the axes of the program's mesh in place of tokens."""
    if not isinstance(attr, tuple):
        return attr
    made: list[Attr] = []
    for item in attr:
        if isinstance(item, Axis) and item.name.startswith("?"):
            made.extend(_axes_meant(item, expressed))
        else:
            made.append(_meant(item, expressed))
    return tuple(made)


def retold(block: Block, asked: "Sequence[tuple[UserSharding, int]]", program: Program) -> Block:
    """A block of another program, which `asked` for these shardings, with tokens of `program`."""

    def number_of(number: int) -> int:
        return program.asked.setdefault(asked[number], len(program.asked))

    def spelled(attr: Attr) -> Attr:
        if isinstance(attr, Axis) and attr.name.startswith("?"):
            number, _, dim = attr.name[1:].partition(".")
            return Axis(f"?{number_of(int(number))}.{dim}", attr.pre, attr.size)
        return tuple(map(spelled, attr)) if isinstance(attr, tuple) else attr

    def sharded(value: Value) -> Sharding | None:
        if value.sharding is None:
            return None
        return replace(value.sharding, mesh=f"?{number_of(int(value.sharding.mesh[1:]))}")

    return _rebuilt(block, sharded, spelled)


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


def resolve(
    block: Block, sharded: Callable[[Value], Sharding | None], expressed: Expressed = ()
) -> Block:
    """The block with the sharding that `sharded` says for each value, and with the axes that
    tokens in attributes stand for."""
    return _rebuilt(block, sharded, lambda attr: _meant(attr, expressed))


def _rebuilt(
    block: Block, sharded: Callable[[Value], Sharding | None], spelled: Callable[[Attr], Attr]
) -> Block:
    """The block with other shardings, and other axes in the attributes that have some."""
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
            attrs = op.attrs
            if op.spec.spmd or op.spec is ops_.manual_computation:
                attrs = {name: spelled(attr) for name, attr in attrs.items()}
            ops.append(Op(op.spec, operands, results, attrs, blocks, op.loc, op.why))
        return Block(params, tuple(ops), tuple([new.get(v, v) for v in block.returns]))

    return rebuilt(block)
