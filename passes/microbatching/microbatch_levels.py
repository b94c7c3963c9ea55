"""Decide which loop over microbatches runs each operation of a partitioned program.

A value *varies* if the devices along the axis of microbatches hold different values of it. A
*boundary* is an all-reduce or an all-gather along the axis, whose result does not vary. One loop
suffices unless an operation that varies needs the result of a boundary, as the gradient of a mean
over a mask needs the sum of the mask. Such operations are in a later loop (level). An operation
that varies runs in the last possible loop, so that values are seldom stored between loops.

Operations that do not vary run between the loops, as late as possible; those that only a loop
needs run inside of it, so that their results do not live longer than there: a weight that is
gathered, or converted. Products and operations with blocks are not repeated. Operations with
effects keep their order: none runs after the loop before which a later one runs.
"""

from dataclasses import dataclass, field

from shardir import ops
from shardir.cost.memory import used_by
from shardir.ir.module import Block, Op, Value
from shardir.passes.microbatching.microbatch_index import crosses, depends_on_index, refuse
from shardir.passes.rewriting import has_nested_effect

BOUNDARIES = (ops.all_reduce, ops.all_gather)
AFTER_ALL_LOOPS = 1 << 30
"""The level of an operation that no loop needs."""


@dataclass
class Levels:
    """The loops of the operations of a block, whose parameters `varying` vary along an axis.

    `loop_of` has the loop of each operation that runs in one, and `boundaries` that of the operand
    of each boundary. `before` has, for each other operation, the first loop that needs it.
    """

    block: Block
    axis: str
    varying: set[Value]
    loop_of: dict[Op, int] = field(default_factory=dict)
    boundaries: dict[Op, int] = field(default_factory=dict)
    before: dict[Op, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        earliest = self._find_varying()
        self.loop_count = 1 + max(
            (earliest[op] for op in (*self.loop_of, *self.boundaries)), default=-1
        )
        self._delay()
        self._sink()

    def _find_varying(self) -> dict[Op, int]:
        """Find the operations that vary and the boundaries; return the earliest loop of each
        operation, or before which it can run."""
        level: dict[Value, int] = {}
        earliest: dict[Op, int] = {}
        after_effects = 0
        for op in self.block.ops:
            uses = list(used_by(op))
            at = max((level.get(value, 0) for value in uses), default=0)
            if has_nested_effect(op):
                at = after_effects = max(at, after_effects)
            earliest[op] = at
            varies = not self.varying.isdisjoint(uses)
            if crosses(op, self.axis) and op.spec in BOUNDARIES:
                if varies:
                    self.boundaries[op] = at
                    at += 1
                else:
                    raise refuse(op, self.axis)
            elif crosses(op, self.axis) and not depends_on_index(op, self.axis):
                raise refuse(op, self.axis)
            elif varies or depends_on_index(op, self.axis):
                if has_nested_effect(op):
                    raise refuse(op, self.axis)
                for inner in (each for block in op.blocks for each in block.walk()):
                    if crosses(inner, self.axis) and not depends_on_index(inner, self.axis):
                        raise refuse(inner, self.axis)
                self.loop_of[op] = at
                self.varying.update(op.results)
            level.update(dict.fromkeys(op.results, at))
        return earliest

    def _delay(self) -> None:
        """Move each operation to the last loop, or before the last loop, at which it can run."""
        last = self.loop_count - 1
        latest: dict[Value, int] = {}
        before_effects = AFTER_ALL_LOOPS
        for op in reversed(self.block.ops):
            needed = min(
                (latest.get(value, AFTER_ALL_LOOPS) for value in op.results),
                default=AFTER_ALL_LOOPS,
            )
            if has_nested_effect(op):
                needed = before_effects = min(needed, before_effects)
            if op in self.boundaries:
                needed = self.boundaries[op] = min(needed - 1, last)
            elif op in self.loop_of:
                needed = self.loop_of[op] = min(needed, last)
            else:
                self.before[op] = needed
            for value in used_by(op):
                latest[value] = min(latest.get(value, AFTER_ALL_LOOPS), needed)

    def _sink(self) -> None:
        """Move operations that only operations of one loop need into it."""
        outside = set(self.block.returns)
        users: dict[Value, set[int]] = {}
        for op in reversed(self.block.ops):
            if op in self.before and not self._is_repeatable(op):
                outside.update(used_by(op))
                continue
            if op in self.boundaries:
                continue
            if op in self.before:
                needing = {loop for value in op.results for loop in users.get(value, ())}
                if len(needing) != 1 or not outside.isdisjoint(op.results):
                    outside.update(used_by(op))
                    continue
                (loop,) = needing
                del self.before[op]
                self.loop_of[op] = loop
            for value in used_by(op):
                users.setdefault(value, set()).add(self.loop_of[op])

    def _is_repeatable(self, op: Op) -> bool:
        return not (op.blocks or op.spec in (ops.dot, ops.convolution) or op.spec.effect)

    def find_stored(self) -> set[Value]:
        """Return the values that vary and that an operation outside of their loop uses, or that
        the program returns."""
        home = {value: loop for op, loop in self.loop_of.items() for value in op.results}
        stored = {value for value in self.block.returns if value in home}
        for op in self.block.ops:
            if op in self.boundaries and op.spec is ops.all_reduce:
                continue
            loop = self.loop_of.get(op)
            stored.update(value for value in used_by(op) if home.get(value, loop) != loop)
        return stored
