"""Sharding types in a traced program: shardings of its values, and reasons in `why`."""

from collections.abc import Mapping
from dataclasses import replace

from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.shardings.sharding_tokens import sharding_token
from shardir.frontend.tracing.sharding_type import ShardingType
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.ir.module import Block
from shardir.ir.sharding import Sharding


def type_token(
    program: TracedProgram, type: ShardingType, mesh: Mesh, has_auto_axes: bool, is_open: bool
) -> Sharding:
    """Return the token of the sharding in a type; see `sharding_tokens`."""
    # Reduced axes affect gradients only, which are traced already.
    entries = [axes or (UNCONSTRAINED if has_auto_axes else None) for axes in type.dims]
    sharding = NamedSharding(mesh, PartitionSpec(*entries, unreduced=type.unreduced))
    return sharding_token(program, sharding, len(entries), is_open=is_open)


def on_outer_mesh(sharding: UserSharding, outer: Mesh) -> UserSharding:
    """Return a requested sharding with the types that axes have outside of the program.

    Inside of `auto_axes` and `explicit_axes`, it is on a mesh with other types of axes.
    """
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape != outer.shape:
        return sharding
    spec = sharding.spec
    while not outer.has_explicit_axes and spec and not spec[-1]:
        spec = spec.with_entries(*spec[:-1])
    return NamedSharding(sharding.mesh.update(axis_types=outer.axis_types), spec)


def state_reasons(block: Block, reasons: Mapping[str, str]) -> Block:
    """Return the block with the reasons of lenient choices, by names of values, in `why`."""
    if not reasons:
        return block
    ops = tuple(
        replace(
            op,
            blocks=tuple(state_reasons(inner, reasons) for inner in op.blocks),
            why=reasons.get(op.results[0].name, op.why) if op.results else op.why,
        )
        for op in block.ops
    )
    return Block(block.params, ops, block.returns)
