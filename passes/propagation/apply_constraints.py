"""Apply sharding constraints to their operands before propagation.

A constraint is an identity: its users see its sharding, and without this step it only suggests that
sharding to its operand. If the operand has no stated sharding, the constraint means more:

- The operand takes the sharding itself if that is closed and no other constraint of the operand
  states another one. A constraint with an unused result therefore still shards its operand.
- A value that flows around a loop or out of a branch is not annotated, since that would apply to
  all values of the edge. Its other users read the constraint instead.
- A chain of constraints with one use each requests its last sharding: other users of the operand
  below the chain read its end.

A manual computation states the sharding of its parameter, with the manual axes first, for each
operand. Manual axes of size 1 shard nothing, but they are replicated axes of what it states: such a
sharding differs from that of a constraint.

These are OpenXLA Shardy's rules (`sdy-apply-sharding-constraints`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shardir import ops as specs
from shardir.ir.module import Block, Op, Value
from shardir.ir.sharding import Sharding
from shardir.passes.propagation.draft import (
    FunctionDraft,
    OperandUse,
)
from shardir.passes.propagation.finish import without_unit_axes
from shardir.passes.propagation.manual_computations import BoundaryConversion

ShardingByValue = dict[Value, Sharding]
PositionKey = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class AppliedConstraints:
    """The constraint or manual computation that annotates each value, and the shardings that are
    replicated along manual axes of size 1, with these axes."""

    annotated_by: dict[Value, Op] = field(default_factory=dict)
    requested: ShardingByValue = field(default_factory=dict)


def apply_constraints(
    draft: FunctionDraft,
    owners: Mapping[Value, Value],
    stated: ShardingByValue,
    bridges: Mapping[Value, BoundaryConversion],
) -> AppliedConstraints:
    """Rewire the draft and add the shardings of operands to `stated`, the shardings stated so far.

    `owners` maps each target of an edge to the owner, `bridges` holds the parameters of manual
    computations.
    """
    annotating_ops = [
        op
        for op in _postorder(draft.function.body)
        if op.spec in (specs.sharding_constraint, specs.manual_computation)
    ]
    if not annotating_ops:
        return AppliedConstraints()
    applied = _ConstraintApplication(draft, owners, stated, bridges)
    for op in annotating_ops:
        if op.spec is specs.sharding_constraint:
            applied.read_end_of_chain(op)
        for i in range(len(draft.inputs(op))):
            # The constraint of an earlier operand may have replaced this one.
            applied.apply(op, i, draft.inputs(op)[i])
    return applied.result


def _postorder(block: Block) -> list[Op]:
    """Return every operation, each after those of its own blocks."""
    ops: list[Op] = []
    for op in block.ops:
        for inner in op.blocks:
            ops += _postorder(inner)
        ops.append(op)
    return ops


class _ConstraintApplication:
    def __init__(
        self,
        draft: FunctionDraft,
        owners: Mapping[Value, Value],
        stated: ShardingByValue,
        bridges: Mapping[Value, BoundaryConversion],
    ) -> None:
        self.draft = draft
        self.owners = owners
        self.stated = stated
        self.constraint_shardings = {
            op: stated.get(op.result) for op in draft.walk() if op.spec is specs.sharding_constraint
        }
        """The sharding of each constraint, without the parts that preparation removes."""
        self.bridges = bridges
        self.result = AppliedConstraints()
        self.places: dict[Op, PositionKey] = {}
        self._number(draft.function.body)
        self.moves = 0

    def _number(self, block: Block) -> None:
        for i, op in enumerate(self.draft.ops(block)):
            self.places[op] = (float(i),)
            for inner in op.blocks:
                self._number(inner)

    def is_stated(self, value: Value) -> bool:
        """Return whether a value has a stated sharding."""
        return self.owners.get(value, value) in self.stated

    def requested_sharding(self, op: Op, number: int) -> Sharding | None:
        """Return the sharding that an operation states for one of its operands.

        The manual axes of size 1 are replicated in it.
        """
        if op.spec is specs.sharding_constraint:
            return self.constraint_shardings.get(op)
        sharding = self.bridges[op.blocks[0].params[number]].global_sharding
        units = tuple(axis for axis in op.attrs["axes"] if axis.size == 1)
        return replace(sharding, replicated=(*sharding.replicated, *units)) if units else sharding

    def apply(self, op: Op, number: int, value: Value) -> None:
        sharding = self.requested_sharding(op, number)
        if sharding is None or not sharding.is_closed or self.is_stated(value):
            return
        if any(
            self.requested_sharding(*other) != sharding for other in self.annotating_uses(value)
        ):
            return
        if value in self.owners:
            op = self.put_behind(op, value, sharding)
            sharding = without_unit_axes(sharding)
            if sharding.unreduced:
                open_ = Sharding.open(sharding.mesh, value.type.rank)
                self.stated[self.owners[value]] = replace(
                    open_, unreduced=sharding.unreduced, reduction=sharding.reduction
                )
                self.result.annotated_by[self.owners[value]] = op
            for use in reversed(list(self.draft.uses_of(value))):
                if use[0] is not op:
                    self.draft.rewire(use, op.result)
        else:
            self.state(value, sharding)
            self.result.annotated_by[value] = op
            maker = self.draft.makers.get(value)
            for sibling in maker.results if maker else ():
                rank = sibling.type.rank
                self.stated.setdefault(sibling, Sharding.open(sharding.mesh, rank))

    def state(self, value: Value, sharding: Sharding) -> None:
        """Record the sharding that an operation states for a value."""
        self.stated[value] = without_unit_axes(sharding)
        if self.stated[value] != sharding:
            self.result.requested[value] = sharding

    def annotating_uses(self, value: Value) -> list[tuple[Op, int]]:
        """Return the constraints and manual computations that use a value, with the operand
        index."""
        return [
            (user, number)
            for user, number in self.draft.uses_of(value)
            if isinstance(user, Op)
            and user.spec in (specs.sharding_constraint, specs.manual_computation)
        ]

    def read_end_of_chain(self, head: Op) -> None:
        """Rewire users of the operand of `head` below a chain of constraints to the end of the
        chain."""
        (value,) = self.draft.inputs(head)
        maker = self.draft.makers.get(value)
        if (maker is not None and maker.spec is specs.sharding_constraint) or self.is_stated(value):
            return
        if any(other is not head for other, _ in self.annotating_uses(value)):
            return
        tail = head
        while len(self.draft.uses_of(tail.result)) == 1 and (
            following := [
                op
                for op, _ in self.annotating_uses(tail.result)
                if op.spec is specs.sharding_constraint
            ]
        ):
            (tail,) = following
        if tail is head or self.annotating_uses(tail.result):
            return
        for use in reversed(list(self.draft.uses_of(value))):
            if self.is_below(use, tail):
                self.draft.rewire(use, tail.result)

    def is_below(self, use: OperandUse, op: Op) -> bool:
        """Return whether a user comes after `op` in the same block; the function's end does not
        count."""
        user, _ = use
        home = self.draft.homes[op]
        if isinstance(user, Block):
            return user is home and home is not self.draft.function.body
        return self.draft.homes[user] is home and self.places[user] > self.places[op]

    def put_behind(self, op: Op, value: Value, sharding: Sharding) -> Op:
        """Move a constraint right behind where its operand is made.

        A manual computation stays where it is, and gets a constraint of its own there.
        """
        self.moves += 1
        maker = self.draft.makers.get(value)
        to = self.draft.homes[maker] if maker else self.draft.block_of(value)
        if op.spec is specs.sharding_constraint:
            self.draft.remove(op)
        else:
            op = self.draft.constraint(value, without_unit_axes(sharding), op.loc)
            self.constraint_shardings[op] = sharding
            self.state(op.result, sharding)
            self.draft.add(op, to)
        at = list(self.draft.ops(to)).index(maker) + 1 if maker else 0
        self.draft.insert(op, at, to)
        if self.owners[value] is value:
            self.draft.moved_behind.setdefault(value, []).insert(0, op)
        self.places[op] = (*(self.places[maker] if maker else (-1.0,)), -float(self.moves))
        return op
