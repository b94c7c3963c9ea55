"""Decide which operations are fused.

Operations are visited once, in order. Each joins the group of an operand if it fits the loops of
the group, or begins a group. A group has loops of one shape; its values extend along all of them
(`whole`) or, after a reduction, along those that are kept (`kept`).

Levels exclude cyclic dependences between groups without a search: every group and every other
operation has a level above the levels of all operations that it uses. Joining may raise the level
of a group as long as it stays below those of the group's users.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Dense
from shardir.ops.communication.async_collectives import done
from shardir.ops.control_flow.fused import REDUCTIONS
from shardir.ops.control_flow.loop_unification import (
    is_same_width_bitcast,
    is_unit_reshape,
    non_unit_dims,
)
from shardir.ops.shape.create import constant, iota
from shardir.ops.shape.rearrangements import broadcast, reshape

Shape = tuple[int, ...]


@dataclass(frozen=True)
class FusionLimits:
    """Limits of a group: accepted operations, their maximum number, and the maximum number of
    operands."""

    accepts: Callable[[Op], bool]
    most_operands: int
    most_ops: int


@dataclass(eq=False)
class FusionGroup:
    """Operations that are fused, by their indices in the block.

    `shape` holds the extents of its loops (none of size 1), `reduced` the loops that reductions
    reduce.
    """

    shape: Shape
    level: float
    ops: list[int] = field(default_factory=list)
    reduced: frozenset[int] = frozenset()
    ceiling: float = inf
    """Lowest level of the users of the group."""
    operands: dict[Value, None] = field(default_factory=dict)
    """Values of the enclosing block that the group uses."""
    merged_into: "FusionGroup | None" = None
    """Group that this group was merged into."""


@dataclass(frozen=True)
class FusionGroups:
    """The groups of a block; the group of each value in one, and whether the value extends along
    all loops."""

    block: Block
    groups: tuple[FusionGroup, ...]
    member: Mapping[Value, FusionGroup]
    whole: Mapping[Value, bool]
    free: Mapping[Value, Op]
    """Operations of no cost, by their result."""

    def base(self, value: Value) -> Value:
        """Return the value that free operations compute a value from, or the value itself."""
        return base_of(value, self.free)


def base_of(value: Value, free: Mapping[Value, Op]) -> Value:
    """Return the value that operations in `free` compute a value from, or the value itself."""
    while (op := free.get(value)) is not None and op.operands:
        (value,) = op.operands
    return value


def is_free(op: Op) -> bool:
    """Return whether an operation costs nothing inside a group: no arithmetic, and no reads of its
    size."""
    if op.spec is constant:
        return not isinstance(op.attrs["value"], Dense)
    return op.spec in (broadcast, iota) or (op.spec is reshape and is_unit_reshape(op))


def synchronizes_devices(op: Op) -> bool:
    """Return whether an operation, or a nested one, synchronizes devices, which fixes its order."""
    own = op.spec.collective or op.spec is done
    return own or any(synchronizes_devices(inner) for block in op.blocks for inner in block.ops)


def extents(value: Value) -> Shape:
    """Return the sizes of a value other than 1."""
    return tuple(n for n in value.type.shape if n != 1)


def form_groups(block: Block, limits: FusionLimits) -> FusionGroups | None:
    """Return the groups of a block; `None` if there are none."""
    grouping = _Grouping(block, limits)
    for number, op in enumerate(block.ops):
        grouping.process(number, op)
    return grouping.finish()


class _Grouping:
    """State of the grouping after the operations so far."""

    def __init__(self, block: Block, limits: FusionLimits) -> None:
        self.block, self.limits = block, limits
        self.groups: list[FusionGroup] = []
        self.member: dict[Value, FusionGroup] = {}
        self.whole: dict[Value, bool] = {}
        self.free: dict[Value, Op] = {}
        self.level: dict[Value, float] = {}
        self.last_synchronization: float = 0
        """Level of the last operation that synchronizes devices."""

    def group(self, value: Value) -> FusionGroup | None:
        """Return the current group of a value."""
        result = self.member.get(value)
        if result is None:
            return None
        while result.merged_into is not None:
            result = result.merged_into
        self.member[value] = result
        return result

    def bases(self, op: Op) -> list[Value]:
        """Return the values that an operation uses, without free operations in between."""
        base_values = dict.fromkeys(base_of(value, self.free) for value in op.uses())
        return [value for value in base_values if value not in self.free]

    def process(self, number: int, op: Op) -> None:
        """Process the next operation."""
        free = is_free(op) or (is_same_width_bitcast(op) and self.limits.accepts(op))
        if free:
            self.free[op.result] = op
            return
        if self.limits.accepts(op) and all(op.operands[0].type.shape):
            reduces = op.spec in REDUCTIONS
            shape = extents(op.operands[0] if reduces else op.result)
            ended = _reduced_loops(op) if reduces else frozenset()
            if not reduces or ended:
                self.join(number, op, shape, ended)
                return
        self.record_ungrouped(op)

    def record_ungrouped(self, op: Op) -> None:
        """Record an operation outside of groups."""
        level = 1 + max((self.level_of(v) for v in self.bases(op)), default=0)
        if synchronizes_devices(op):
            level = self.last_synchronization = max(level, self.last_synchronization + 1)
        for value in self.bases(op):
            if group := self.group(value):
                group.ceiling = min(group.ceiling, level)
        for result in op.results:
            self.level[result] = level

    def level_of(self, value: Value) -> float:
        """Return the level of the operation that defines a value; 0 for block parameters."""
        group = self.group(value)
        return group.level if group else self.level.get(value, 0)

    def join(self, number: int, op: Op, shape: Shape, ended: frozenset[int]) -> None:
        """Add an operation to the groups of its operands, or to a new one."""
        own = FusionGroup(shape, 0, [number], ended)
        for value in self.bases(op):
            own.operands.setdefault(value)
        places = self.candidate_groups(op, ended)
        is_whole = not ended
        taken: list[FusionGroup] = []
        for group, level in places:
            if self.can_merge(own, [*taken, group], level):
                taken.append(group)
                is_whole = level and not ended
        bound = self.minimum_level(own, taken)
        for value in own.operands:
            other = self.group(value)
            if other is not None and other not in taken:
                other.ceiling = min(other.ceiling, bound)
        if not taken:
            own.level = bound
            self.groups.append(own)
            home = own
        else:
            home = self.merge(own, taken, bound)
        self.member[op.result] = home
        self.whole[op.result] = is_whole

    def candidate_groups(self, op: Op, ended: frozenset[int]) -> list[tuple[FusionGroup, bool]]:
        """Return the groups of operands, with whether the operation is whole there; whole ones come
        first."""
        level_of_group: dict[FusionGroup, bool | None] = {}
        for operand in op.operands:
            group = self.group(base_of(operand, self.free))
            if group is None:
                continue
            level = self.level_in(group, operand)
            if ended and not level:
                level = None
            if not ended and operand.type.shape != op.result.type.shape:
                level = None
            level_of_group[group] = level if level_of_group.get(group, level) == level else None
        places = [(group, level) for group, level in level_of_group.items() if level is not None]
        return sorted(places, key=lambda entry: not entry[1])

    def level_in(self, group: FusionGroup, value: Value) -> bool | None:
        """Return whether a value extends along all loops of the group of its base; `None` for other
        axes."""
        op = self.free.get(value)
        if op is None:
            return self.whole[value]
        (x,) = op.operands
        level = self.level_in(group, x)
        if extents(x) == extents(value):
            return level
        remaining_axes = [axis for axis in range(len(group.shape)) if axis not in group.reduced]
        places = non_unit_dims(value.type)
        lies = [places.index(op.attrs["dims"][dim]) for dim in non_unit_dims(x.type)]
        return True if lies == remaining_axes else None

    def can_merge(self, own: FusionGroup, taken: list[FusionGroup], is_full: bool) -> bool:
        """Return whether an operation and these groups can be merged."""
        shapes = {group.shape for group in taken} | ({own.shape} if is_full else set())
        ends = {group.reduced for group in (own, *taken) if group.reduced}
        if len(shapes) > 1 or len(ends) > 1:
            return False
        if sum(len(group.ops) for group in taken) + 1 > self.limits.most_ops:
            return False
        used = {v for group in (own, *taken) for v in group.operands}
        if sum(self.group(v) not in taken for v in used) > self.limits.most_operands:
            return False
        return self.minimum_level(own, taken) < min(group.ceiling for group in taken)

    def minimum_level(self, own: FusionGroup, taken: list[FusionGroup]) -> float:
        """Return the minimum level of an operation, or of the group that it merges."""
        outside = (v for v in own.operands if self.group(v) not in taken)
        lowest = 1 + max((self.level_of(v) for v in outside), default=0)
        return max([lowest, *(group.level for group in taken)])

    def merge(self, own: FusionGroup, taken: list[FusionGroup], level: float) -> FusionGroup:
        """Merge several groups into the largest of them."""
        home = max(taken, key=lambda group: len(group.ops))
        for group in (*taken, own):
            if group is home:
                continue
            home.ops += group.ops
            home.operands.update(group.operands)
            home.reduced |= group.reduced
            home.ceiling = min(home.ceiling, group.ceiling)
            group.merged_into = home
        home.level = level
        inner = [value for value in own.operands if self.group(value) is home]
        for group in taken:
            inner += [value for value in group.operands if self.group(value) is home]
        for value in inner:
            home.operands.pop(value, None)
        return home

    def merge_siblings(self) -> None:
        """Merge groups of the same loops that use the same tensor, so that it is loaded once."""
        group_of_input: dict[tuple[Value, frozenset[int]], FusionGroup] = {}
        for group in self.groups:
            if group.merged_into is not None:
                continue
            for value in list(group.operands):
                if extents(value) != group.shape:
                    continue
                other = group_of_input.get((value, group.reduced))
                while other is not None and other.merged_into is not None:
                    other = other.merged_into
                if other is not None and self.can_merge_siblings(other, group):
                    home = self.merge(other, [group], max(group.level, other.level))
                    assert home is group
                group_of_input[value, group.reduced] = group

    def can_merge_siblings(self, a: FusionGroup, b: FusionGroup) -> bool:
        """Return whether two groups that do not use each other can be merged."""
        if len(a.ops) + len(b.ops) > self.limits.most_ops:
            return False
        if len({*a.operands, *b.operands}) > self.limits.most_operands:
            return False
        return max(a.level, b.level) < min(a.ceiling, b.ceiling)

    def finish(self) -> FusionGroups | None:
        """Return the groups of more than one operation, or with a free operation; `None` if there
        are none."""
        self.merge_siblings()
        groups: dict[FusionGroup, None] = {}
        for group in self.groups:
            if group.merged_into is None:
                group.ops.sort()
                first = self.block.ops[group.ops[0]]
                if len(group.ops) > 1 or any(v in self.free for v in first.operands):
                    groups[group] = None
        if not groups:
            return None
        member = {value: home for value in self.member if (home := self.group(value))}
        return FusionGroups(self.block, tuple(groups), member, self.whole, self.free)


def _reduced_loops(op: Op) -> frozenset[int]:
    """Return the loops that a reduction reduces, among those that are not of size 1."""
    dims = op.attrs["dims"]
    return frozenset(i for i, dim in enumerate(non_unit_dims(op.operands[0].type)) if dim in dims)
