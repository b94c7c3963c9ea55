"""Duplicate each constant for each of its uses, so that each copy can be sharded like its user.

A constant is a `constant` or `iota`, or a broadcast, reshape, slice or elementwise operation on
constants, reshards and barriers included; so is a broadcast of any scalar. Computing it twice costs
nothing, while sharing it would couple the shardings of all its users. Scalars stay shared, since
they cannot be sharded. Copies of a value `%zero` are called `%zero`, `%zero.1`, ... A
`sharding_group` operation does not count as a use; every copy is in the groups of the original.

before: `%zero = constant(...)`, `%y = maximum(%x, %zero)`, `%w = add(%v, %zero)`
after:  `%zero = constant(...)`, `%zero.1 = constant(...)`, `%y = maximum(%x, %zero)`,
        `%w = add(%v, %zero.1)`
"""

from collections.abc import Iterator
from dataclasses import replace

from shardir import ops
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Op, Value
from shardir.passes.propagation.draft import FunctionDraft, ValueUser
from shardir.passes.propagation.priorities import is_elementwise

CONSTANT_OPERATIONS = (ops.constant, ops.iota)
CONSTANT_PRESERVING_OPERATIONS = (ops.broadcast, ops.reshape, ops.slice_)
UNDUPLICATED_OPERATIONS = (ops.sharding_constraint, ops.stop_gradient)
"""Elementwise operations that are not duplicated."""


def split_constants(draft: FunctionDraft) -> None:
    """Change the draft so that no constant of rank above 0 has two uses."""
    makers = _constants(draft)
    if any(len(draft.uses_of(value)) > 1 for value in makers if value.type.rank):
        _ConstantSplitter(draft, makers).run()


def _constants(draft: FunctionDraft) -> dict[Value, Op]:
    """Return the constants of a function and the operations that define them."""
    constants: dict[Value, Op] = {}
    expansions: dict[Value, Op] = {}
    for op in draft.walk():
        if op.spec in CONSTANT_OPERATIONS or (
            (
                op.spec in CONSTANT_PRESERVING_OPERATIONS
                or (is_elementwise(op) and op.spec not in UNDUPLICATED_OPERATIONS)
            )
            and all(value in constants for value in op.operands)
        ):
            constants[op.result] = op
        elif op.spec is ops.broadcast and op.operands[0].type.rank == 0:
            expansions[op.result] = op
    return constants | expansions


class _ConstantSplitter:
    """The first user of a constant keeps the original, others get copies inserted behind it."""

    def __init__(self, draft: FunctionDraft, makers: dict[Value, Op]) -> None:
        self.draft = draft
        self.makers = makers
        self.names = UniqueNames([value.name for value in draft.values()])
        self.taken: set[Op] = set()
        self.followers: dict[Op, list[Op]] = {}
        """Operations inserted behind a constant: its `sharding_group` operations, then copies and
        theirs."""
        self.moved: dict[Op, Block] = {}
        """The moved `sharding_group` operations of constants, and their original blocks."""

    def run(self) -> None:
        for user in list(self._users(self.draft.function.body)):
            self._own(user)
        homes = [self.draft.homes[op] for op in self.followers]
        for block in dict.fromkeys((*homes, *self.moved.values())):
            self.draft.replace_ops(
                block,
                [
                    each
                    for op in self.draft.ops(block)
                    if op not in self.moved
                    for each in (op, *self.followers.get(op, ()))
                ],
            )

    def _users(self, block: Block) -> Iterator[ValueUser]:
        """Yield operations that are no constants, or constants that are not copied: scalars, or
        unused ones."""
        for op in self.draft.ops(block):
            if op.spec is ops.sharding_group:
                continue
            if (
                not op.results
                or op.results[0] not in self.makers
                or op.result.type.rank == 0
                or not self.draft.uses_of(op.result)
            ):
                yield op
            for inner in op.blocks:
                yield from self._users(inner)
        yield block

    def _own(self, user: ValueUser) -> None:
        """Make `user` the only user of each constant it uses."""
        for i, value in enumerate(tuple(self.draft.inputs(user))):
            if value in self.makers and value.type.rank:
                own = self._copy(value)
                if own is not value:
                    self.draft.rewire((user, i), own)

    def _copy(self, root: Value) -> Value:
        """Return a constant without other uses, made of constants without other uses.

        The first call returns the original.
        """
        copied: dict[Value, Value] = {}
        for value in self._parts(root):
            op = self.makers[value]
            if op not in self.taken:
                self.taken.add(op)
                copied[value] = value
                self._gather_groups(op)
                for i, operand in enumerate(op.operands):
                    if copied.get(operand, operand) is not operand:
                        self.draft.rewire((op, i), copied[operand])
            else:
                copied[value] = self._duplicate(op, copied)
        return copied[root]

    def _parts(self, root: Value) -> list[Value]:
        """Return the constants that a constant depends on, and itself, in definition order."""
        parts: dict[Value, None] = {}
        waiting = [(root, False)]
        while waiting:
            value, is_ready = waiting.pop()
            if is_ready:
                parts[value] = None
            elif value not in parts and value.type.rank:
                waiting.append((value, True))
                waiting += ((v, False) for v in reversed(self.makers[value].operands))
        return list(parts)

    def _duplicate(self, op: Op, copied: dict[Value, Value]) -> Value:
        result = replace(op.result, name=self.names.fresh(op.result.name))
        operands = tuple(copied.get(value, value) for value in op.operands)
        new = replace(op, operands=operands, results=(result,))
        home = self.draft.homes[op]
        self.draft.add(new, home)
        followers = self.followers.setdefault(op, [])
        followers.append(new)
        for group in self._groups(op.result):
            own = replace(group, operands=(result,))
            self.draft.add(own, home)
            followers.append(own)
        return result

    def _groups(self, value: Value) -> list[Op]:
        """Return the `sharding_group` operations of a value, the most recent first."""
        users = [user for user, _ in reversed(self.draft.uses_of(value))]
        return [user for user in users if isinstance(user, Op) and user.spec is ops.sharding_group]

    def _gather_groups(self, op: Op) -> None:
        """Move the `sharding_group` operations of a constant directly behind it."""
        for group in self._groups(op.result):
            self.moved[group] = self.draft.homes[group]
            self.draft.homes[group] = self.draft.homes[op]
            self.followers.setdefault(op, []).append(group)
