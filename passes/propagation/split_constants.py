"""Duplicate each constant for each of its uses, so that each copy can be sharded like its user.

A constant is a `constant` or `iota`, or a broadcast, reshape, slice or elementwise operation on
constants, reshards and barriers included; so is a broadcast of any scalar. A call of constants is
one if its block contains only such operations. Computing a constant twice costs nothing, while
sharing it would couple the shardings of all its users. Scalars stay shared, since they cannot be
sharded. Copies of a value `%zero` are called `%zero`, `%zero.1`, ... A `sharding_group` operation
does not count as a use; every copy is in the groups of the original. A call has a copy for each use
of one of its results, and only this result of the copy is in groups.

before: `%zero = constant(...)`, `%y = maximum(%x, %zero)`, `%w = add(%v, %zero)`
after:  `%zero = constant(...)`, `%zero.1 = constant(...)`, `%y = maximum(%x, %zero)`,
        `%w = add(%v, %zero.1)`
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from shardir import ops
from shardir.ir.builder import UniqueNames, copy_op
from shardir.ir.module import Block, Op, Value
from shardir.passes.propagation.draft import FunctionDraft, ValueUser
from shardir.passes.propagation.priorities import is_elementwise

CONSTANT_OPERATIONS = (ops.constant, ops.iota)
CONSTANT_PRESERVING_OPERATIONS = (ops.broadcast, ops.reshape, ops.slice_)
UNDUPLICATED_OPERATIONS = (ops.sharding_constraint, ops.stop_gradient)
"""Elementwise operations that are not duplicated."""


def split_constants(draft: FunctionDraft) -> None:
    """Change the draft so that no operation of a constant of rank above 0 has two uses."""
    makers = _constants(draft)
    uses = Counter(op for value, op in makers.items() for _ in draft.uses_of(value))
    shared = (op for op, count in uses.items() if count > 1)
    if any(value.type.rank for op in shared for value in op.results):
        splitter = _ConstantSplitter(draft, makers)
        calls = dict.fromkeys(op for op in makers.values() if op.spec is ops.call)
        for call in reversed(calls):  # inner calls first
            splitter.split(call.blocks[0])
        splitter.split(draft.function.body)


def _constants(draft: FunctionDraft) -> dict[Value, Op]:
    """Return the constants of a function and the operations that define them."""
    constants: dict[Value, Op] = {}
    expansions: dict[Value, Op] = {}
    for op in draft.walk():
        if op.spec in CONSTANT_OPERATIONS or (
            _preserves_constants(op) and all(value in constants for value in op.operands)
        ):
            constants.update(dict.fromkeys(op.results, op))
        elif op.spec is ops.broadcast and op.operands[0].type.rank == 0:
            expansions[op.result] = op
    return constants | expansions


def _preserves_constants(op: Op) -> bool:
    """Return whether all results of an operation on constants are constants."""
    if op.spec is ops.call:
        return all(
            inner.spec in CONSTANT_OPERATIONS
            or inner.spec is ops.sharding_group
            or _preserves_constants(inner)
            for inner in op.blocks[0].ops
        )
    return op.spec in CONSTANT_PRESERVING_OPERATIONS or (
        is_elementwise(op) and op.spec not in UNDUPLICATED_OPERATIONS
    )


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
        """The moved or removed `sharding_group` operations of constants, and their original
        blocks."""
        self.removed: dict[Value, list[Op]] = {}
        """The removed `sharding_group` operations of results of calls, which copies need."""

    def split(self, block: Block) -> None:
        """Copy the constants that a block uses, in all its blocks but those of constant calls.

        These have been split before, so that copies of the calls contain the copies.
        """
        self.followers, self.moved, self.removed = {}, {}, {}
        for user in list(self._users(block)):
            self._own(user)
        homes = [self.draft.homes[op] for op in self.followers]
        for each in dict.fromkeys((*homes, *self.moved.values())):
            self.draft.replace_ops(
                each,
                [
                    new
                    for op in self.draft.ops(each)
                    if op not in self.moved
                    for new in (op, *self.followers.get(op, ()))
                ],
            )

    def _users(self, block: Block) -> Iterator[ValueUser]:
        """Yield operations that are no constants, or constants that are not copied: scalars, or
        unused ones."""
        for op in self.draft.ops(block):
            if op.spec is ops.sharding_group:
                continue
            is_constant = op.results and self.makers.get(op.results[0]) is op
            if not is_constant or self._is_shared(op):
                yield op
            for inner in op.blocks if not is_constant else ():
                yield from self._users(inner)
        yield block

    def _is_shared(self, op: Op) -> bool:
        """Return whether all users of a constant share it, or it has none; a call of which scalar
        results are used stays for these."""
        used = [value for value in op.results if self._has_users(value)]
        if all(value.type.rank for value in used):
            return not used
        self.taken.add(op)
        return True

    def _has_users(self, value: Value) -> bool:
        """Return whether a value has uses besides those by `sharding_group` operations."""
        return len(self._groups(value)) < len(self.draft.uses_of(value))

    def _own(self, user: ValueUser) -> None:
        """Make `user` the only user of each constant it uses."""
        for i, value in enumerate(tuple(self.draft.inputs(user))):
            if value in self.makers:
                own = self._copy(value)
                if own is not value:
                    self.draft.rewire((user, i), own)

    def _copy(self, root: Value) -> Value:
        """Return a constant without other uses, made of constants without other uses.

        The first call returns the original, and so does each call with a scalar.
        """
        copied: dict[Value, Value] = {}
        for op, value in self._parts(root).items():
            if op not in self.taken:
                self.taken.add(op)
                self._gather_groups(op, value)
                for i, operand in enumerate(op.operands):
                    if copied.get(operand, operand) is not operand:
                        self.draft.rewire((op, i), copied[operand])
            else:
                self._duplicate(op, value, copied)
        return copied.get(root, root)

    def _parts(self, root: Value) -> dict[Op, Value]:
        """Return the operations of the constants that a constant depends on, and its own, in
        definition order, each with the result on which the constant depends; the first one if it
        depends on several."""
        parts: dict[Op, Value] = {}
        waiting = [(root, False)]
        while waiting:
            value, is_ready = waiting.pop()
            if is_ready:
                parts.setdefault(self.makers[value], value)
            elif value.type.rank and self.makers[value] not in parts:
                waiting.append((value, True))
                waiting += ((v, False) for v in reversed(self.makers[value].operands))
        return parts

    def _duplicate(self, op: Op, used: Value, copied: dict[Value, Value]) -> None:
        """Insert a copy of a constant that uses the values in `copied`, and add its results; `used`
        is the result for which it is copied."""
        present = replace(self.draft.build_op(op), operands=op.operands)
        new = copy_op(present, copied, self.names)
        home = self.draft.homes[op]
        self.draft.add(new, home)
        followers = self.followers.setdefault(op, [])
        followers.append(new)
        for group in self.removed.get(used, self._groups(used)):
            own = replace(group, operands=(copied[used],))
            self.draft.add(own, home)
            followers.append(own)

    def _groups(self, value: Value) -> list[Op]:
        """Return the `sharding_group` operations of a value, the most recent first."""
        users = [user for user, _ in reversed(self.draft.uses_of(value))]
        return [user for user in users if isinstance(user, Op) and user.spec is ops.sharding_group]

    def _gather_groups(self, op: Op, used: Value) -> None:
        """Move the `sharding_group` operations of the result that is used directly behind a
        constant, and remove those of its other results."""
        for value in op.results:
            groups = self._groups(value)
            for group in groups:
                self.moved[group] = self.draft.homes[group]
            if value is used:
                self.draft.homes.update(dict.fromkeys(groups, self.draft.homes[op]))
                self.followers.setdefault(op, []).extend(groups)
            else:
                self.removed[value] = groups
                for group in groups:
                    self.draft.uses_of(value).remove((group, 0))
