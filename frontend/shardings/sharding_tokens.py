"""Shardings requested during tracing, before the mesh of the program is known.

The mesh of a program is determined when its trace ends, because every sharding in the program takes
part in the decision. Until then a token represents the user's sharding: a sharding over a separate
mesh, named `?0`, `?1`, ... in order of appearance, with one axis for each sharded dimension. Tokens
are ordinary shardings, so transformations may copy them to gradients or add a dimension.
`replace_shardings` substitutes the axes of the actual mesh.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardir import ops as ops_
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.shardings.sub_axes import num_shards
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Attr
from shardir.ir.sharding import OPEN_DIM, Axes, Axis, DimSharding, Sharding


def sharding_token(
    program: TracedProgram, sharding: UserSharding, rank: int, *, is_open: bool = False
) -> Sharding:
    """Return the token that represents `sharding` until the mesh of the program is known.

    If it `is_open`, Explicit axes may shard its unconstrained dimensions, too.
    """
    dim_axes = sharding.sub_axes(rank)
    known = program.requested_shardings
    mesh = f"?{known.setdefault((sharding, rank), len(known))}"
    dims = []
    for i, sub_axes in enumerate(dim_axes):
        if sub_axes is UNCONSTRAINED:
            dims.append(OPEN_DIM)
        else:
            count = num_shards(sub_axes)
            dims.append(DimSharding((Axis(f"{i}", 1, count),) if count > 1 else (), open=False))
    if not isinstance(sharding, NamedSharding):
        return Sharding(mesh, tuple(dims))
    copies = () if is_open else sharding.replicated_sub_axes()
    # Unreduced and replicated axes follow the dimensions, also in `expressed` of `resolve_token`.
    unreduced, replicated = (
        (Axis(f"{rank + i}", 1, num_shards(sub_axes)),) if num_shards(sub_axes) > 1 else ()
        for i, sub_axes in enumerate((sharding.unreduced_sub_axes(), copies))
    )
    return Sharding(mesh, tuple(dims), replicated, unreduced)


def axis_token(program: TracedProgram, mesh: Mesh, name: str) -> Axis:
    """Return the token that represents a mesh axis in attributes."""
    whole = NamedSharding(mesh, PartitionSpec(*mesh.axis_names))
    key = whole, len(mesh.axis_names)
    number = program.requested_shardings.setdefault(key, len(program.requested_shardings))
    return Axis(f"?{number}.{mesh.axis_names.index(name)}", 1, mesh.shape[name])


def _resolve_axis(axis: Axis, expressed: "ResolvedShardings") -> Axes:
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


def _resolve_attribute(attr: Attr, expressed: "ResolvedShardings") -> Attr:
    """Return an attribute with the axes of the program's mesh in place of tokens."""
    if not isinstance(attr, tuple):
        return attr
    result: list[Attr] = []
    for item in attr:
        if isinstance(item, Axis) and item.name.startswith("?"):
            result.extend(_resolve_axis(item, expressed))
        else:
            result.append(_resolve_attribute(item, expressed))
    return tuple(result)


def renumber_tokens(
    block: Block, requested: Sequence[tuple[UserSharding, int]], program: TracedProgram
) -> Block:
    """Return a block of another program, with shardings `requested`, with tokens of
    `program`."""

    def number_of(number: int) -> int:
        return program.requested_shardings.setdefault(
            requested[number], len(program.requested_shardings)
        )

    def replace_attribute(attr: Attr) -> Attr:
        if isinstance(attr, Axis) and attr.name.startswith("?"):
            number, _, dim = attr.name[1:].partition(".")
            return Axis(f"?{number_of(int(number))}.{dim}", attr.pre, attr.size)
        return tuple(map(replace_attribute, attr)) if isinstance(attr, tuple) else attr

    def sharding_of(value: Value) -> Sharding | None:
        if value.sharding is None:
            return None
        return replace(value.sharding, mesh=f"?{number_of(int(value.sharding.mesh[1:]))}")

    return rebuild_block(block, sharding_of, replace_attribute)


ResolvedShardings = Sequence[tuple[Axes | Unconstrained, ...]]


def resolve_token(token: Sharding, mesh: str, expressed: ResolvedShardings) -> Sharding:
    """Return the sharding over `mesh` that a token represents; `expressed[n]` has the axes of
    `?n`."""
    requested = expressed[int(token.mesh[1:])]
    dims = []
    for dim in token.dims:
        axes: list[Axis] = []
        for axis in dim.axes:
            axes.extend(_known_axes(requested[int(axis.name)]))
        dims.append(DimSharding(tuple(axes), dim.open, dim.priority))
    replicated, unreduced = (
        tuple([part for axis in group for part in _known_axes(requested[int(axis.name)])])
        for group in (token.replicated, token.unreduced)
    )
    return Sharding(mesh, tuple(dims), replicated, unreduced)


def _known_axes(parts: Axes | Unconstrained) -> Axes:
    assert parts is not UNCONSTRAINED
    return parts


def replace_shardings(
    block: Block, sharding_of: Callable[[Value], Sharding | None], expressed: ResolvedShardings = ()
) -> Block:
    """Return the block with the sharding `sharded(value)` for each value and with resolved
    attributes."""
    return rebuild_block(block, sharding_of, lambda attr: _resolve_attribute(attr, expressed))


def rebuild_block(
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
