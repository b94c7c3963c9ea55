"""Sharding groups: values that have the same sharding during propagation.

`sharding_group(%x, group=3)` puts a value into a group. Groups that share a value are merged.
Before propagation begins, the members are made equal: if all stated shardings agree, all members
take them. If they conflict, an open constraint is inserted behind each member, which takes its
place in the group and is used by all its users. From then on a change of one member is set on the
others, whatever sharding they had (`groups` of `propagation_network`). Only trimming at boundaries
(`finish`) makes members differ again.

before: `%x: f32[8@a]`, `%y: f32[8@b]`, both in group 0
after:  `%x.1 = sharding_constraint(%x) : f32[8@?]`, `%y.1 = sharding_constraint(%y) : f32[8@?]`,
        both in group 0 instead of `%x` and `%y`

These are OpenXLA Shardy's rules (`sdy-sharding-group-import` and the start of propagation).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.errors import PropagateError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import DimSharding, Sharding
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.manual_computations import BoundaryConversion


@dataclass(slots=True)
class ShardingGroup:
    """`members`, without repetitions, and the `sharding_group` operation of each."""

    members: list[Value]
    group_operations: list[Op]


def merge_groups(draft: FunctionDraft) -> list[ShardingGroup]:
    """Return the merged groups of a function, in the order in which the program states them.

    The order matters if the members of two groups are targets of one edge. Merged groups have the
    place of the group that is stated first for the value that they share. A repeated
    `sharding_group` of a value counts as one use. Raises `PropagateError` if the members of a group
    differ in shape, or are on both sides of a manual computation.
    """
    group_operations = _group_operations(draft)
    leader: dict[int, int] = {}

    def leading(number: int) -> int:
        while leader.setdefault(number, number) != number:
            number = leader[number]
        return number

    by_value: dict[Value, list[Op]] = {}
    for op in group_operations:
        by_value.setdefault(draft.inputs(op)[0], []).append(op)
    for ops in by_value.values():
        first = leading(ops[0].attrs["group"])
        for op in ops:
            leader[leading(op.attrs["group"])] = first
    groups = {number: ShardingGroup([], []) for number in leader if leading(number) == number}
    for op in group_operations:
        (value,) = draft.inputs(op)
        group = groups[leading(op.attrs["group"])]
        if value in group.members:
            draft.uses_of(value).remove((op, 0))
        else:
            group.members.append(value)
            group.group_operations.append(op)
    return list(groups.values())


def _group_operations(draft: FunctionDraft) -> list[Op]:
    """Return every `sharding_group` operation after checking it."""
    result: list[Op] = []
    first: dict[int, tuple[Op, Op | None]] = {}

    def enter(block: Block, manual: Op | None) -> None:
        for op in draft.ops(block):
            for inner in op.blocks:
                enter(inner, op if op.spec is specs.manual_computation else manual)
            if op.spec is specs.sharding_group:
                number = op.attrs["group"]
                other, other_manual = first.setdefault(number, (op, manual))
                _check(draft.inputs(other)[0], draft.inputs(op)[0], number)
                if other_manual is not manual:
                    raise PropagateError(
                        f"sharding group {number} has members inside and outside of a "
                        "manual_computation; use another group inside"
                    )
                result.append(op)

    enter(draft.function.body, None)
    return result


def _check(one: Value, other: Value, number: int) -> None:
    if one.type.shape != other.type.shape:
        raise PropagateError(
            f"sharding group {number} has members of different shapes, %{one.name} of "
            f"{one.type} and %{other.name} of {other.type}; members share one "
            "sharding and need equal shapes"
        )


def unify_groups(
    draft: FunctionDraft,
    groups: list[ShardingGroup],
    owners: Mapping[Value, Value],
    stated: dict[Value, Sharding],
    requested: Mapping[Value, Sharding],
    meshes: Mapping[str, Mesh],
) -> dict[Value, Value]:
    """Make the members of each group equal in `stated`, the stated shardings.

    `requested` has those that are replicated along manual axes of size 1, with these axes: they
    conflict with shardings without them. Returns the members that take the sharding of another
    member, with that member.
    """
    sources: dict[Value, Value] = {}
    for group in groups:
        member_shardings = [stated.get(owners.get(value, value)) for value in group.members]
        constraining = [s for s in member_shardings if s and _constrains(s, meshes)]
        if not constraining:
            continue
        compared = [
            requested.get(owners.get(value, value), sharding)
            for value, sharding in zip(group.members, member_shardings, strict=True)
            if sharding in constraining
        ]
        if all(_is_equal(compared[0], each, meshes) for each in compared):
            first = group.members[member_shardings.index(constraining[0])]
            for value, sharding in zip(group.members, member_shardings, strict=True):
                if sharding not in constraining:
                    sources[owners.get(value, value)] = owners.get(first, first)
                _state_sharding(draft, owners, stated, value, constraining[0])
        else:
            open_ = replace(
                constraining[0], dims=(DimSharding((), True),) * len(constraining[0].dims)
            )
            open_ = replace(open_, replicated=(), unreduced=())
            for i, value in enumerate(group.members):
                group.members[i] = _insert_constraint_behind(draft, owners, value, open_)
                stated[group.members[i]] = open_
    return sources


def check_manual_results(
    groups: Iterable[ShardingGroup],
    bridges: Mapping[Value, BoundaryConversion],
    sharding_of: Callable[[Value], Sharding | None],
) -> None:
    """Raise `PropagateError` if a group changes the manual axes of a result of a manual
    computation.

    The computation decides these axes, but a group sets the sharding of another member.
    `sharding_of` returns the final sharding of a value.
    """
    for group in groups:
        for value, op in zip(group.members, group.group_operations, strict=True):
            bridge = bridges.get(value)
            sharding = sharding_of(value)
            if bridge is None or sharding is None:
                continue
            names = {axis.name for axis in bridge.axes}
            for dim, (dim_sharding, dim_axes) in enumerate(
                zip(sharding.dims, bridge.dim_axes, strict=True)
            ):
                manual = [axis for axis in dim_sharding.axes if axis.name in names]
                # Members begin with the same axes, so that the first ones are those of the result.
                if len(manual) > len(dim_axes):
                    wrong = ", ".join(sorted({axis.name for axis in manual}))
                    raise PropagateError(
                        f"sharding group {op.attrs['group']} would change how dimension {dim} of "
                        f"%{value.name}, a result of a manual_computation, is sharded over the "
                        f"manual axis {wrong}; remove it from the group, or state "
                        f"replicated({wrong}) on another member"
                    )


def _constrains(sharding: Sharding, meshes: Mapping[str, Mesh]) -> bool:
    """Return whether a sharding constrains the dimensions of a group's members.

    A sharding of a single device does not: in Shardy it has no dimensions, all of which are open.
    """
    if meshes[sharding.mesh].is_maximal:
        return False
    return any(dim.axes or not dim.open for dim in sharding.dims)


def _is_equal(one: Sharding, other: Sharding, meshes: Mapping[str, Mesh]) -> bool:
    """Return whether the shardings are equal; meshes may differ in their names only."""
    a, b = meshes[one.mesh], meshes[other.mesh]
    same_mesh = (a.axes, a.device_ids) == (b.axes, b.device_ids)
    return same_mesh and replace(one, mesh=other.mesh) == other


def _state_sharding(
    draft: FunctionDraft,
    owners: Mapping[Value, Value],
    stated: dict[Value, Sharding],
    value: Value,
    sharding: Sharding,
) -> None:
    """State a sharding; the other results of the operation become open."""
    stated[owners.get(value, value)] = sharding
    maker = draft.makers.get(value)
    if maker is not None and value not in owners:
        for sibling in maker.results:
            stated.setdefault(sibling, Sharding.open(sharding.mesh, sibling.type.rank))


def _insert_constraint_behind(
    draft: FunctionDraft, owners: Mapping[Value, Value], value: Value, sharding: Sharding
) -> Value:
    """Insert a constraint directly behind a value, and let all users read it."""
    users = list(draft.uses_of(value))
    maker = draft.makers.get(value)
    op = draft.constraint(value, sharding, maker.loc if maker else None)
    to = draft.homes[maker] if maker else draft.block_of(value)
    draft.add(op, to)
    draft.insert(op, list(draft.ops(to)).index(maker) + 1 if maker else 0, to)
    if maker and value in owners:
        draft.moved_behind.setdefault(owners[value], []).insert(0, op)
    for use in reversed(users):
        draft.rewire(use, op.result)
    return op.result
