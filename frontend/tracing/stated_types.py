"""Sharding types in a traced program: shardings of its values, and reasons in `why`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.shardings.sharding_tokens import rebuild_block, sharding_token
from shardir.frontend.tracing.sharding_type import ShardingType
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.ir.module import Block, Value
from shardir.ir.sharding import Sharding


class StatedType(NamedTuple):
    """A type that a program states on a mesh; the compiler may use the Auto axes for an open
    value."""

    type: ShardingType
    mesh: Mesh
    is_open: bool


def state_types(
    block: Block,
    program: TracedProgram,
    find_type: Callable[[Value], StatedType | None],
    reasons: Mapping[Value, str],
) -> Block:
    """Return the block with types as shardings of the results of operations, and with `reasons` in
    `why`. `find_type` and `reasons` take values as they were traced, before they had names."""
    results = {value for op in block.walk() for value in op.results}
    unnamed = program.unnamed_values
    tokens: dict[StatedType, Sharding] = {}

    def sharding_of(value: Value) -> Sharding | None:
        stated = None
        if not value.sharding and value in results:
            stated = find_type(unnamed.get(value, value))
        if stated is None:
            return value.sharding
        if stated not in tokens:
            tokens[stated] = _make_token(program, stated)
        return tokens[stated]

    block = rebuild_block(block, sharding_of, lambda attr: attr)
    if not reasons:
        return block
    by_name = {named.name: reasons[value] for named, value in unnamed.items() if value in reasons}
    return _state_reasons(block, by_name)


def _make_token(program: TracedProgram, stated: StatedType) -> Sharding:
    """Return the token of the sharding in a type; see `sharding_tokens`."""
    type, mesh, is_open = stated
    unsharded = UNCONSTRAINED if is_open or AxisType.Auto in mesh.axis_types else None
    # Reduced axes affect gradients only, which are traced already.
    spec = PartitionSpec(*(axes or unsharded for axes in type.dims), unreduced=type.unreduced)
    return sharding_token(program, NamedSharding(mesh, spec), len(type.dims), is_open=is_open)


def _state_reasons(block: Block, reasons: Mapping[str, str]) -> Block:
    """Return the block with the reasons by names of values in `why`."""
    ops = tuple(
        replace(
            op,
            blocks=tuple(_state_reasons(inner, reasons) for inner in op.blocks),
            why=reasons.get(op.results[0].name, op.why) if op.results else op.why,
        )
        for op in block.ops
    )
    return Block(block.params, ops, block.returns)


def on_outer_mesh(sharding: UserSharding, outer: Mesh) -> UserSharding:
    """Return a requested sharding with the types that axes have outside of the program.

    Inside of `auto_axes` and `explicit_axes`, it is on a mesh with other types of axes.
    """
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != outer.shape_tuple:
        return sharding
    spec = sharding.spec
    while not outer.has_explicit_axes and spec and not spec[-1]:
        spec = spec.with_entries(*spec[:-1])
    return NamedSharding(sharding.mesh.update(axis_types=outer.axis_types), spec)
