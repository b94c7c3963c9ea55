"""Duplicate cheap operations into the groups that use their results, instead of storing and loading
these.

A value that one group computes and others use is stored, and may be live for long, such as from a
forward computation to its backward computation. If such values are cheap and depend on fewer
tensors than they are, every group that uses them computes them itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS
from shardir.passes.fusion.groups import FusionGroup, FusionGroups, extents

CHEAP_OPERATIONS = frozenset(
    OPS[name]
    for name in (
        "neg", "abs", "sign", "floor", "ceil", "round", "is_finite", "not", "real", "imag", "conj",
        "add", "sub", "mul", "div", "maximum", "minimum", "and", "or", "xor", "complex", "eq", "ne",
        "lt", "le", "gt", "ge", "select", "clamp", "convert", "stop_gradient",
    )
)  # fmt: skip
"""Operations that take less time than writing their result to memory and reading it."""
MAX_DUPLICATED_OPERATIONS = 16
"""Maximum number of operations that are duplicated into one group."""


@dataclass(frozen=True)
class _Duplication:
    """Operations that a group duplicates, and the values that they use."""

    ops: tuple[int, ...]
    leaves: tuple[Value, ...]


def duplicate_cheap_operations(groups: FusionGroups, most_operands: int) -> None:
    """Add operations of other groups to groups in which duplicating them reduces memory traffic."""
    work = _Duplicator(groups)
    for group in groups.groups:
        work.duplicate(group, most_operands)


class _Duplicator:
    """Uses of values by groups."""

    def __init__(self, groups: FusionGroups) -> None:
        self.groups, self.block = groups, groups.block
        self.maker = {
            op.result: number for number, op in enumerate(self.block.ops) if len(op.results) == 1
        }
        self.inner = {
            group: {self.block.ops[number].result for number in group.ops}
            for group in groups.groups
        }
        self.users: dict[Value, dict[FusionGroup, None]] = {}
        self.reads: dict[FusionGroup, dict[Value, None]] = {group: {} for group in groups.groups}
        self.stored_values = {self.groups.base(value) for value in self.block.returns}
        """Values that are stored anyway, or used in a way that needs them in memory."""
        grouped = {number for group in groups.groups for number in group.ops}
        for number, op in enumerate(self.block.ops):
            if number not in grouped and not (op.results and op.results[0] in groups.free):
                self.stored_values.update(map(self.groups.base, op.uses()))
        for group in groups.groups:
            for number in group.ops:
                self._uses(group, self.block.ops[number])

    def _uses(self, group: FusionGroup, op: Op) -> None:
        for value in op.operands:
            base = self.groups.base(value)
            if base in self.inner[group] or base in self.groups.free:
                continue
            self.users.setdefault(base, {})[group] = None
            self.reads[group][base] = None
            if value is not base or extents(value) != group.shape:
                self.stored_values.add(base)

    def duplicate(self, group: FusionGroup, most_operands: int) -> None:
        """Duplicate operations of a group into the groups that use their results if that reduces
        traffic."""
        values = [value for value in self.inner[group] if self.can_duplicate(value)]
        values.sort(key=lambda value: self.maker[value])
        while values:
            plan = self.plan(group, values)
            if plan is not None and self.gain(group, values, plan) > 0:
                break
            values.pop()
        else:
            return
        for user, again in plan.items():
            other_reads = [value for value in self.reads[user] if value not in values]
            if len({*other_reads, *again.leaves}) > most_operands:
                return
        for user, again in plan.items():
            user.ops = sorted({*user.ops, *again.ops})
            self.inner[user].update(self.block.ops[number].result for number in again.ops)
            for leaf in again.leaves:
                self.users.setdefault(leaf, {})[user] = None
                self.reads[user][leaf] = None
            for value in values:
                self.users[value].pop(user, None)
                self.reads[user].pop(value, None)

    def can_duplicate(self, value: Value) -> bool:
        """Return whether a value is cheap, and used only by groups of the same loop shape: other
        uses store it."""
        op = self.block.ops[self.maker[value]]
        return (
            op.spec in CHEAP_OPERATIONS
            and self.groups.whole[value]
            and value not in self.stored_values
            and bool(self.users.get(value))
        )

    def plan(
        self, group: FusionGroup, values: Sequence[Value]
    ) -> dict[FusionGroup, _Duplication] | None:
        """Return the operations that each user of the values would duplicate; `None` if there are
        too many."""
        duplications: dict[FusionGroup, _Duplication] = {}
        for user in dict.fromkeys(user for value in values for user in self.users[value]):
            read_values = [value for value in values if user in self.users[value]]
            again = self.closure(group, user, read_values)
            if len(again.ops) > MAX_DUPLICATED_OPERATIONS:
                return None
            duplications[user] = again
        return duplications

    def closure(
        self, group: FusionGroup, user: FusionGroup, read_values: Sequence[Value]
    ) -> _Duplication:
        ops: dict[int, None] = {}
        leaves: dict[Value, None] = {}
        left = list(read_values)
        while left:
            value = left.pop()
            number = self.maker[value]
            if number in ops:
                continue
            ops[number] = None
            for operand in self.block.ops[number].operands:
                base = self.groups.base(operand)
                if base in self.groups.free or base in self.inner[user]:
                    continue
                if self.is_cheap_inside(group, base):
                    left.append(base)
                else:
                    leaves[base] = None
        return _Duplication(tuple(ops), tuple(leaves))

    def is_cheap_inside(self, group: FusionGroup, value: Value) -> bool:
        """Return whether a value of a group is cheap to compute in any group."""
        if value not in self.inner[group] or not self.groups.whole.get(value):
            return False
        is_cheap = self.block.ops[self.maker[value]].spec in CHEAP_OPERATIONS
        return is_cheap and value not in self.stored_values

    def gain(
        self, group: FusionGroup, values: Sequence[Value], plan: dict[FusionGroup, _Duplication]
    ) -> int:
        """Return the number of tensors that are no longer written to or read from memory."""
        before = len(values) + sum(len(self.users[value]) for value in values)
        after = 0
        stored: set[Value] = set()
        for user, again in plan.items():
            for leaf in again.leaves:
                if extents(leaf) != group.shape:
                    continue
                after += user not in self.users.get(leaf, {})
                if leaf not in self.stored_values and not self.users.get(leaf):
                    stored.add(leaf)
        return before - after - len(stored)
