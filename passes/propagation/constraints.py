"""Let sharding constraints say what their operands should be, before propagation begins.

A constraint is an identity: its users see its sharding, and by itself it only suggests that to
its operand. Where nothing else has been said about the operand, more is meant:

- The operand takes the sharding itself if that is closed, and no other constraint of the operand
  asks for something else. So a constraint whose result nobody uses still says how its operand is
  spread.
- A value that flows round a loop or out of a branch is not touched, since that would say it of
  every spelling of the value. Its other users read the constraint instead.
- A chain of constraints with one user each is a wish for a last state: what else used the operand
  below the chain reads its end.

These are OpenXLA Shardy's rules (`sdy-apply-sharding-constraints`).
"""

from collections.abc import Mapping
from dataclasses import replace

from shardir.ir import Block, Op, Value
from shardir.passes.propagation.draft import Draft, Use
from shardir.placement import Sharding

CONSTRAINT = "sharding_constraint"
Wishes = dict[Value, Sharding]
Place = tuple[float, ...]


def apply_constraints(draft: Draft, owners: Mapping[Value, Value], said: Wishes) -> dict[Value, Op]:
    """Rewire the draft and add what operands are given to `said`, what was said so far.

    `owners` maps each target of an edge to the one that owns it. Returns the constraints that
    spoke for other values.
    """
    constraints = [op for op in _inside_out(draft.function.body) if op.name == CONSTRAINT]
    if not constraints:
        return {}
    applied = _Constraints(draft, owners, said)
    for op in constraints:
        applied.apply(op)
    return applied.spoke


def _inside_out(block: Block) -> list[Op]:
    """Every operation, each after those of its own blocks."""
    ops: list[Op] = []
    for op in block.ops:
        for inner in op.blocks:
            ops += _inside_out(inner)
        ops.append(op)
    return ops


class _Constraints:
    def __init__(self, draft: Draft, owners: Mapping[Value, Value], said: Wishes) -> None:
        self.draft = draft
        self.owners = owners
        self.said = said
        self.spoke: dict[Value, Op] = {}
        self.places: dict[Op, Place] = {}
        self._number(draft.function.body)
        self.moves = 0

    def _number(self, block: Block) -> None:
        for i, op in enumerate(self.draft.ops(block)):
            self.places[op] = (float(i),)
            for inner in op.blocks:
                self._number(inner)

    def is_said(self, value: Value) -> bool:
        """Whether something has been said about a value by now."""
        return self.owners.get(value, value) in self.said

    def apply(self, op: Op) -> None:
        self.read_end_of_chain(op)
        (value,) = self.draft.inputs(op)
        sharding = op.result.sharding
        if sharding is None or not sharding.closed or self.is_said(value):
            return
        others = self.constraints_of(value)
        if any(other.result.sharding != sharding for other in others):
            return
        if value in self.owners:
            self.put_behind(op, value)
            if sharding.unreduced:
                open_ = Sharding.open(sharding.mesh, value.type.rank)
                self.said[self.owners[value]] = replace(
                    open_, unreduced=sharding.unreduced, reduction=sharding.reduction
                )
                self.spoke[self.owners[value]] = op
            for use in reversed(list(self.draft.uses_of(value))):
                if use[0] is not op:
                    self.draft.rewire(use, op.result)
        else:
            self.said[value] = sharding
            self.spoke[value] = op
            maker = self.draft.makers.get(value)
            for sibling in maker.results if maker else ():
                rank = sibling.type.rank
                self.said.setdefault(sibling, Sharding.open(sharding.mesh, rank))

    def constraints_of(self, value: Value) -> list[Op]:
        users = (user for user, _ in self.draft.uses_of(value))
        return [user for user in users if isinstance(user, Op) and user.name == CONSTRAINT]

    def read_end_of_chain(self, head: Op) -> None:
        """Where `head` begins a chain, let those below it that use its operand use its end."""
        (value,) = self.draft.inputs(head)
        maker = self.draft.makers.get(value)
        if (maker is not None and maker.name == CONSTRAINT) or self.is_said(value):
            return
        if any(other is not head for other in self.constraints_of(value)):
            return
        tail = head
        while len(self.draft.uses_of(tail.result)) == 1 and (
            following := self.constraints_of(tail.result)
        ):
            (tail,) = following
        if tail is head or self.constraints_of(tail.result):
            return
        for use in reversed(list(self.draft.uses_of(value))):
            if use[0] is not head and self.is_below(use, tail):
                self.draft.rewire(use, tail.result)

    def is_below(self, use: Use, op: Op) -> bool:
        """Whether a user comes after `op` in the same block; the function's end does not count."""
        user, _ = use
        home = self.draft.homes[op]
        if isinstance(user, Block):
            return user is home and home is not self.draft.function.body
        return self.draft.homes[user] is home and self.places[user] > self.places[op]

    def put_behind(self, op: Op, value: Value) -> None:
        """Move an operation right behind where its operand is made."""
        self.moves += 1
        maker = self.draft.makers.get(value)
        to = self.draft.homes[maker] if maker else self.draft.block_of(value)
        self.draft.remove(op)
        at = list(self.draft.ops(to)).index(maker) + 1 if maker else 0
        self.draft.insert(op, at, to)
        if maker:
            self.draft.behind.setdefault(value, []).insert(0, op)
        self.places[op] = (*(self.places[maker] if maker else (-1.0,)), -float(self.moves))
