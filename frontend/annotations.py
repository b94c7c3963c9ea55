"""Shardings requested during tracing, before the mesh of the program is known.

The mesh of a program is determined when its trace ends, because every sharding in the program takes
part in the decision. Until then a token represents the user's sharding: a sharding over a separate
mesh, named `?0`, `?1`, ... in order of appearance, with one axis for each sharded dimension. Tokens
are ordinary shardings, so transformations may copy them to gradients or add a dimension.
`replace_shardings` substitutes the axes of the actual mesh.
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
    """Return the traced value with the constraint that it has `sharding`.

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
    """Mark axes of a mesh as manual inside the block: each device runs its own code along them."""
    token = _manual.set((*_manual.get(), *((mesh, name) for name in names)))
    try:
        yield
    finally:
        _manual.reset(token)


def is_in_manual_region() -> bool:
    """Return whether the current line is inside a manual region."""
    return bool(_manual.get())


def _check_free(sharding: "UserSharding", rank: int) -> None:
    """Raise `ShardingError` if a sharding uses an axis that is manual at the current line."""
    for mesh, name in _manual.get():
        if mesh.device_assignment != sharding.device_assignment:
            continue
        stride, size = mesh.strides[name], mesh.shape[name]
        for cut in sharding.digits(rank):
            for digit in () if cut is UNCONSTRAINED else cut:
                if digit.stride < stride * size and stride < digit.span:
                    raise ShardingError(
                        point(
                            f"{sharding} is requested for a value that varies along {name!r}, "
                            f"which is a manual axis at this line; omit {name!r} from the sharding"
                        )
                    )


def token(program: Program, sharding: "UserSharding", rank: int) -> Sharding:
    """Return the token that represents `sharding` until the mesh of the program is known."""
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
    """Return the token that represents a mesh axis in attributes."""
    whole = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
    key = whole, len(mesh.axis_names)
    number = program.asked.setdefault(key, len(program.asked))
    return Axis(f"?{number}.{mesh.axis_names.index(name)}", 1, mesh.shape[name])


def _axes_meant(axis: Axis, expressed: "Expressed") -> Axes:
    """Return the axes of the program's mesh, major to minor, for a token or a sub-axis of one."""
    number, _, dim = axis.name[1:].partition(".")
    parts = expressed[int(number)][int(dim)]
    assert parts is not UNCONSTRAINED
    meant: list[Axis] = []
    before = 1
    for part in parts:
        # The token is [before, part.size, ...]; [axis.pre, axis.size, ...] is the requested part.
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
    """Return an attribute with the axes of the program's mesh in place of tokens."""
    if not isinstance(attr, tuple):
        return attr
    made: list[Attr] = []
    for item in attr:
        if isinstance(item, Axis) and item.name.startswith("?"):
            made.extend(_axes_meant(item, expressed))
        else:
            made.append(_meant(item, expressed))
    return tuple(made)


def retold(
    block: Block, requested: "Sequence[tuple[UserSharding, int]]", program: Program
) -> Block:
    """Return a block of another program, with shardings `requested`, with tokens of
    `program`."""

    def number_of(number: int) -> int:
        return program.asked.setdefault(requested[number], len(program.asked))

    def replace_attribute(attr: Attr) -> Attr:
        if isinstance(attr, Axis) and attr.name.startswith("?"):
            number, _, dim = attr.name[1:].partition(".")
            return Axis(f"?{number_of(int(number))}.{dim}", attr.pre, attr.size)
        return tuple(map(replace_attribute, attr)) if isinstance(attr, tuple) else attr

    def sharding_of(value: Value) -> Sharding | None:
        if value.sharding is None:
            return None
        return replace(value.sharding, mesh=f"?{number_of(int(value.sharding.mesh[1:]))}")

    return _rebuilt(block, sharding_of, replace_attribute)


Expressed = Sequence[tuple[Axes | Unconstrained, ...]]


def resolved(token: Sharding, mesh: str, expressed: Expressed) -> Sharding:
    """Return the sharding over `mesh` that a token represents; `expressed[n]` has the axes of
    `?n`."""
    requested = expressed[int(token.mesh[1:])]
    dims = []
    for dim in token.dims:
        axes: list[Axis] = []
        for axis in dim.axes:
            cut = requested[int(axis.name)]
            assert cut is not UNCONSTRAINED
            axes.extend(cut)
        dims.append(Dim(tuple(axes), dim.open, dim.priority))
    return Sharding(mesh, tuple(dims))


def resolve(
    block: Block, sharding_of: Callable[[Value], Sharding | None], expressed: Expressed = ()
) -> Block:
    """Return the block with the sharding `sharded(value)` for each value and with resolved
    attributes."""
    return _rebuilt(block, sharding_of, lambda attr: _meant(attr, expressed))


def _rebuilt(
    block: Block,
    sharding_of: Callable[[Value], Sharding | None],
    replace_attribute: Callable[[Attr], Attr],
) -> Block:
    """Return the block with replaced shardings, and replaced axes in attributes."""
    new: dict[Value, Value] = {}

    def value_of(value: Value) -> Value:
        sharding = sharding_of(value)
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
                attrs = {name: replace_attribute(attr) for name, attr in attrs.items()}
            ops.append(Op(op.spec, operands, results, attrs, blocks, op.loc, op.why))
        return Block(params, tuple(ops), tuple([new.get(v, v) for v in block.returns]))

    return rebuilt(block)
