"""Decide which values of a block are freed before their last use, and computed again.

The algorithm is Dynamic Tensor Rematerialization (Kirisame et al., ICLR 2021), applied at compile
time: it executes the block in order, and when the live values exceed the limit, it frees (evicts)
the value whose recomputation costs least in relation to its bytes and to the time until its next
use. DTR estimates that time from the past; here the block states it. When an operation uses an
evicted value, the operations that compute it from live values are repeated before it.

A loop or a branch is executed as one operation. If the values inside of it do not fit into what the
values outside leave, its blocks are rematerialized with that limit.

The cost of a recomputation includes the evicted values between the value and live ones (`anchors`),
and those of evicted values that would need it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate

from shardir.cost.memory import Storage, nested_bytes, used_by
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.passes.rematerialization.recomputation import copy_operation, is_recomputable
from shardir.passes.simulation.work import VIEWS

MAX_REPETITIONS = 4
"""The maximum number of repeated operations, in multiples of the operations of the block."""
MAX_RECOMPUTED_OPERATIONS = 512
"""The maximum number of operations that are repeated for one value; a longer search would be slow,
and the recomputation is always expensive."""
MIN_FREED_FRACTION = 1 / 4096
"""The minimum fraction of the limit that a freed value occupies; smaller values do not change the
peak noticeably."""
KERNEL_SECONDS = 1e-6
"""The minimum number of seconds for which an operation occupies a device."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """The seconds that it takes to compute a value from the live values `anchors`."""

    seconds: float
    anchors: frozenset[Value]


def rematerialize_block(
    block: Block,
    storage: Storage,
    limit: int,
    seconds_of: Callable[[Op], float],
    names: UniqueNames,
) -> Block | None:
    """Return the block with values computed again, so that its live values fit into `limit` bytes
    if possible; `None` if too many operations would be repeated.

    Parameters of the block are live all the time and do not count. Values in `storage` share the
    memory of others.
    """
    return _Rematerializer(block, storage, limit, seconds_of, names).run()


class _Rematerializer:
    """The state of the execution. Values that share memory are represented by their root."""

    def __init__(
        self,
        block: Block,
        storage: Storage,
        limit: int,
        seconds_of: Callable[[Op], float],
        names: UniqueNames,
    ) -> None:
        self.block, self.ops, self.root = block, block.ops, storage
        self.limit, self.names, self.seconds_of = limit, names, seconds_of
        self.seconds = [
            0.0 if op.spec in VIEWS else max(seconds_of(op), KERNEL_SECONDS) for op in self.ops
        ]
        self.clock = [0.0, *accumulate(self.seconds)]
        self.maker = {value: i for i, op in enumerate(self.ops) for value in op.results}
        self.order = {value: i for i, value in enumerate(self.maker)}
        self.inside = [nested_bytes(op, self.root) for op in self.ops]
        self.aliases: dict[Value, list[Value]] = {}
        self.uses: dict[Value, list[int]] = {}
        self._find_uses()
        self.new_ops: list[Op] = []
        self.position = 0
        self.incarnation: dict[Value, Value] = {}
        """The value that now holds each live value of the block."""
        self.live: dict[Value, int] = {}
        """The bytes of each live root."""
        self.live_bytes = 0
        self.pins: Counter[Value] = Counter()
        """Roots that a pending operation uses."""
        self.evicted: dict[Value, Recomputation] = {}
        self.dependents: dict[Value, set[Value]] = {}
        """The evicted roots whose recomputation starts from a live root."""
        self.candidates: list[tuple[float, int, Value]] = []
        """A heap of live roots. A score is at most that of the root when it is evicted, because
        the time until the next use only decreases."""
        self.repetitions = 0

    def _find_uses(self) -> None:
        for value in self.maker:
            self.aliases.setdefault(self.root_of(value), []).append(value)
        for i, op in enumerate(self.ops):
            for value in dict.fromkeys(map(self.root_of, used_by(op))):
                self.uses.setdefault(value, []).append(i)
        for value in dict.fromkeys(map(self.root_of, self.block.returns)):
            self.uses.setdefault(value, []).append(len(self.ops))

    def root_of(self, value: Value) -> Value:
        """Return the value whose memory `value` shares."""
        return self.root.get(value, value)

    def run(self) -> Block | None:
        """Execute the block; return the operations that were executed, `None` if too many are
        repeated."""
        for i, op in enumerate(self.ops):
            if self.repetitions > MAX_REPETITIONS * len(self.ops):
                return None
            self.position = i
            self._pin(op, 1)
            self._provide(used_by(op), op)
            self._execute(i, op)
            self._pin(op, -1)
            self._free_unused((*used_by(op), *op.results))
        self.position = len(self.ops)
        self.pins.update(map(self.root_of, self.block.returns))
        if self.ops:
            self._provide(self.block.returns, self.ops[-1])
        returns = tuple(self.incarnation.get(value, value) for value in self.block.returns)
        return replace(self.block, ops=tuple(self.new_ops), returns=returns)

    def _pin(self, op: Op, count: int) -> None:
        for value in used_by(op):
            self.pins[self.root_of(value)] += count

    def _is_missing(self, value: Value) -> bool:
        return value in self.maker and value not in self.incarnation

    def _provide(self, values: Iterable[Value], user: Op) -> None:
        """Compute the missing ones of values for `user`. Each value that several of them need is
        computed once."""
        wanted = list(values)
        uses = self._missing_operands(wanted)
        self.pins.update(self.root_of(x) for operands in uses.values() for x in operands)
        for value in wanted:
            if not self._is_missing(value):
                continue
            pending = [self._definition(value)]
            self._pin(pending[0], 1)
            while pending:
                op = pending[-1]
                missing = next((x for x in used_by(op) if self._is_missing(x)), None)
                if missing is not None:
                    pending.append(self._definition(missing))
                    self._pin(pending[-1], 1)
                    continue
                pending.pop()
                self._repeat(op, user)
                self._pin(op, -1)
                done = (x for result in op.results for x in uses.pop(result, ()))
                self.pins.subtract(map(self.root_of, done))
                self._free_unused((*used_by(op), *op.results))

    def _missing_operands(self, values: Iterable[Value]) -> dict[Value, list[Value]]:
        """Return the missing operands of each missing value that the computation of `values`
        needs."""
        found: dict[Value, list[Value]] = {}
        pending = [value for value in values if self._is_missing(value)]
        while pending:
            value = pending.pop()
            if value not in found:
                operands = dict.fromkeys(used_by(self._definition(value)))
                found[value] = [x for x in operands if self._is_missing(x)]
                pending += found[value]
        return found

    def _definition(self, value: Value) -> Op:
        """Return the operation that computes a value; of a view of several operands only the part
        for this value."""
        op = self.ops[self.maker[value]]
        if value not in self.root:
            return op
        operand = op.operands[op.results.index(value)]
        return replace(op, operands=(operand,), results=(value,))

    def _repeat(self, op: Op, user: Op) -> None:
        """Execute a copy of an operation whose operands are live."""
        self.repetitions += 1
        missing = [value for value in op.results if value not in self.incarnation]
        self._make_room(self._bytes_of(missing) + self.inside[self.maker[op.results[0]]])
        current = {
            value: self.incarnation[value]
            for value in used_by(op)
            if self.incarnation.get(value, value) is not value
        }
        copies = copy_operation(op, current, user, self.names)
        self.new_ops += copies
        for value, copy in zip(op.results, copies[-1].results, strict=True):
            if value in missing:
                self._define(value, copy)

    def _execute(self, i: int, op: Op) -> None:
        """Execute an operation of the block."""
        self._make_room(self._bytes_of(op.results) + self.inside[i])
        new = {value: self.incarnation[value] for value in op.uses() if value in self.incarnation}
        (executed,) = substitute(Block((), (op,), ()), new).ops
        room = self.limit - self.live_bytes - self._bytes_of(op.results)
        if self.inside[i] > max(room, 0):
            executed = replace(
                executed, blocks=tuple(self._fit_nested(block, room) for block in executed.blocks)
            )
        self.new_ops.append(executed)
        for value in op.results:
            self._define(value, value)

    def _fit_nested(self, block: Block, room: int) -> Block:
        """Return the block of an operation with values computed again, to fit into `room` bytes."""
        limit = room - self._bytes_of(block.params)
        made = rematerialize_block(block, self.root, limit, self.seconds_of, self.names)
        return block if made is None else made

    def _bytes_of(self, values: Sequence[Value]) -> int:
        return sum(value.type.nbytes for value in values if value not in self.root)

    def _define(self, value: Value, incarnation: Value) -> None:
        self.incarnation[value] = incarnation
        if value in self.root:
            return
        self.live[value] = value.type.nbytes
        self.live_bytes += value.type.nbytes
        if (found := self.evicted.pop(value, None)) is not None:
            for anchor in found.anchors:
                self.dependents[anchor].discard(value)
            self._free_unused(found.anchors)
        is_large = value.type.nbytes >= MIN_FREED_FRACTION * self.limit
        if is_large and is_recomputable(self.ops[self.maker[value]]):
            heappush(self.candidates, (0.0, self.order[value], value))

    def _next_use(self, value: Value) -> int | None:
        """Return the next operation that uses a root, after the current one."""
        uses = self.uses.get(value, [])
        number = bisect_right(uses, self.position)
        return uses[number] if number < len(uses) else None

    def _free_unused(self, values: Iterable[Value]) -> None:
        """Free those values that no later operation uses, unless the recomputation of another one
        needs them and cannot start earlier."""
        for value in dict.fromkeys(map(self.root_of, values)):
            is_used = self.pins[value] or self._next_use(value) is not None
            if value in self.live and not is_used:
                found = self._recomputation(value) if self.dependents.get(value) else None
                if found is not None or not self.dependents.get(value):
                    self._evict(value, found)

    def _make_room(self, nbytes: int) -> None:
        """Evict values until `nbytes` fit, or no value can be evicted."""
        skipped: list[tuple[float, int, Value]] = []
        while self.candidates and self.live_bytes + nbytes > self.limit:
            entry = heappop(self.candidates)
            value = entry[2]
            if value not in self.live:
                continue
            if self.pins[value]:
                skipped.append(entry)
                continue
            found = self._recomputation(value)
            if found is None:
                continue
            score = self._score(value, found)
            if self.candidates and score > self.candidates[0][0]:
                heappush(self.candidates, (score, *entry[1:]))
            else:
                self._evict(value, found)
        for entry in skipped:
            heappush(self.candidates, entry)

    def _score(self, value: Value, found: Recomputation) -> float:
        """Return the seconds of recomputation for each byte and second that an eviction frees."""
        upcoming = self._next_use(value)
        if upcoming is None:
            return 0.0
        dependents = self.dependents.get(value, ())
        seconds = found.seconds + sum(self.evicted[each].seconds for each in dependents)
        duration = self.clock[upcoming] - self.clock[min(self.position, len(self.ops) - 1)]
        return seconds / (self.live[value] * max(duration, KERNEL_SECONDS))

    def _recomputation(self, value: Value) -> Recomputation | None:
        """Return what it takes to compute a live root again; `None` if that is impossible."""
        seconds = 0.0
        anchors: set[Value] = set()
        pending = [self.maker[value]]
        seen = set(pending)
        while pending:
            number = pending.pop()
            op = self.ops[number]
            if not is_recomputable(op) or len(seen) > MAX_RECOMPUTED_OPERATIONS:
                return None
            seconds += self.seconds[number]
            for operand in map(self.root_of, used_by(op)):
                if operand in self.live:
                    anchors.add(operand)
                elif operand in self.maker and self.maker[operand] not in seen:
                    seen.add(self.maker[operand])
                    pending.append(self.maker[operand])
        anchors.discard(value)
        return Recomputation(seconds, frozenset(anchors))

    def _evict(self, value: Value, found: Recomputation | None) -> None:
        """Free a root; evicted values that depend on it depend on its anchors from now on."""
        self.live_bytes -= self.live.pop(value)
        for alias in self.aliases[value]:
            self.incarnation.pop(alias, None)
        dependents = self.dependents.pop(value, set())
        if found is None:
            return
        for each in dependents:
            old = self.evicted[each]
            anchors = (old.anchors - {value}) | found.anchors
            self.evicted[each] = Recomputation(old.seconds + found.seconds, anchors)
        if self._next_use(value) is not None:
            self.evicted[value] = found
            dependents.add(value)
        for anchor in found.anchors:
            self.dependents.setdefault(anchor, set()).update(dependents)
