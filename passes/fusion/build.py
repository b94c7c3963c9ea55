"""Build a `fused` operation for each group, at a position where its operands are defined."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise

from shardir.errors import PipelineError
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import OPS
from shardir.ops.control_flow.fused import (
    REDUCTIONS,
    fused,
)
from shardir.ops.control_flow.loop_unification import (
    LoopMapping,
    non_unit_dims,
)
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.ops.shape.rearrangements import broadcast
from shardir.passes.fusion.groups import FusionGroup, FusionGroups, synchronizes_devices
from shardir.passes.rewriting import has_nested_effect


def parse_operation_names(names: str) -> Set[str]:
    """Return the operations of an option `without`, whose names `+` separates."""
    found = {name for name in names.split("+") if name}
    for name in found:
        if name not in OPS:
            raise PipelineError(f"no operation is called {name!r}, which `without` names")
    return found


def rebuild_nested_blocks(block: Block, rebuilt: Callable[[Block], Block]) -> Block:
    """Return the block with the blocks of loops and branches rebuilt; the same block if none
    changes."""

    def rebuild(op: Op) -> Op:
        if op.spec.is_loop_nest or op.spec is manual_computation:
            return op
        blocks = tuple(map(rebuilt, op.blocks))
        same = all(a is b for a, b in zip(blocks, op.blocks, strict=True))
        return op if same else replace(op, blocks=blocks)

    ops = tuple(map(rebuild, block.ops))
    same = all(a is b for a, b in zip(ops, block.ops, strict=True))
    return block if same else replace(block, ops=ops)


def build_fused_operations(block: Block, groups: FusionGroups, names: UniqueNames) -> Block:
    """Return the block with a `fused` operation for each group.

    An operation may be in several groups; its first group provides its result to other operations.
    """
    grouped = {number for group in groups.groups for number in group.ops}
    makers = {group: _FusedOperationBuilder(block, groups, group, names) for group in groups.groups}
    outside = _used_outside(block, makers, grouped)
    numbered_ops: list[tuple[int, Op]] = []
    for group, maker in makers.items():
        if any(value in outside for value in maker.provided):
            numbered_ops.append((group.ops[-1], maker.build(outside)))
    for number, op in enumerate(block.ops):
        if number not in grouped and (_is_always_kept(op) or any(v in outside for v in op.results)):
            numbered_ops.append((number, op))
    return Block(block.params, sort_topologically(numbered_ops), block.returns)


def _used_outside(
    block: Block, makers: Mapping[FusionGroup, "_FusedOperationBuilder"], grouped: Set[int]
) -> set[Value]:
    """Return the values that are used outside of groups, between groups, and by the block's
    return."""
    used = set(block.returns)
    latest: dict[int, list[_FusedOperationBuilder]] = {}
    for group, maker in makers.items():
        latest.setdefault(group.ops[-1], []).append(maker)
    while True:
        before = len(used)
        for number in range(len(block.ops) - 1, -1, -1):
            op = block.ops[number]
            if number not in grouped:
                if _is_always_kept(op) or any(v in used for v in op.results):
                    used.update(op.uses())
                continue
            for maker in latest.get(number, ()):
                used.update(maker.uses(used))
        if len(used) == before:
            return used


def _is_always_kept(op: Op) -> bool:
    """Return whether an operation is kept even if its results are unused: it has effects or
    synchronizes devices."""
    return has_nested_effect(op) or synchronizes_devices(op)


class _FusedOperationBuilder:
    """Builds the operation of one group.

    The inner value of an operand depends on the loop axes of its dimensions: an operand that is
    used along different axes becomes two parameters.
    """

    def __init__(
        self, block: Block, groups: FusionGroups, group: FusionGroup, names: UniqueNames
    ) -> None:
        self.block, self.groups, self.group, self.names = block, groups, group, names
        self.inner: dict[Value, Value] = {}
        self.params: dict[tuple[Value, LoopMapping], Value] = {}
        self.copies: dict[tuple[Value, LoopMapping], Value] = {}
        self.ops: list[Op] = []
        every = range(len(group.shape))
        self.whole = tuple(every)
        self.kept = tuple(axis for axis in every if axis not in group.reduced)
        results = [block.ops[number].result for number in group.ops]
        self.provided = [value for value in results if groups.member[value] is group]
        """Values that the group may provide to other operations."""

    def build(self, outside: Set[Value]) -> Op:
        """Return the operation, whose results are the values of the group that are used outside."""
        members = self.live_operations(outside)
        for op in members:
            self.append(op)
        results = tuple(value for value in self.provided if value in outside)
        inner = Block(
            tuple(self.params.values()), tuple(self.ops), tuple(self.inner[r] for r in results)
        )
        operands = tuple(value for value, _ in self.params)
        loc = next((op.loc for op in reversed(members) if op.loc), None)
        return Op(fused, operands, results, {}, (inner,), loc, self.why(members))

    def live_operations(self, outside: Set[Value]) -> list[Op]:
        """Return the operations that values used outside depend on."""
        live = {value for value in self.provided if value in outside}
        result = list[Op]()
        for number in reversed(self.group.ops):
            op = self.block.ops[number]
            if op.result in live:
                result.append(op)
                live.update(map(self.groups.base, op.operands))
        return result[::-1]

    def uses(self, outside: Set[Value]) -> list[Value]:
        """Return the values of other operations that the group needs for the values used
        outside."""
        live = self.live_operations(outside)
        own = {op.result for op in live}
        bases = dict.fromkeys(self.groups.base(value) for op in live for value in op.operands)
        return [value for value in bases if value not in own and value not in self.groups.free]

    def append(self, op: Op) -> None:
        """Append an operation of the group."""
        reduces = op.spec in REDUCTIONS
        loop_axes = self.whole if reduces or self.groups.whole[op.result] else self.kept
        operands = []
        for value in op.operands:
            scalar = not reduces and value.type.shape != op.result.type.shape
            operands.append(self.inner_value(value, () if scalar else loop_axes))
        result = replace(op.result, name=self.names.fresh(op.result.name))
        self.inner[op.result] = result
        self.ops.append(replace(op, operands=tuple(operands), results=(result,)))

    def inner_value(self, value: Value, loop_axes: LoopMapping) -> Value:
        """Return the inner value for a value along the loop axes `loop_axes`."""
        if value in self.inner:
            return self.inner[value]
        op = self.groups.free.get(value)
        key = (value, loop_axes)
        if op is None:
            if key not in self.params:
                self.params[key] = replace(value, name=self.names.fresh(value.name))
            return self.params[key]
        if key not in self.copies:
            operands = tuple(
                self.inner_value(x, self._operand_axes(op, x, loop_axes)) for x in op.operands
            )
            result = replace(value, name=self.names.fresh(value.name))
            self.copies[key] = result
            self.ops.append(replace(op, operands=operands, results=(result,)))
        return self.copies[key]

    @staticmethod
    def _operand_axes(op: Op, x: Value, loop_axes: LoopMapping) -> LoopMapping:
        """Return the loop axes of the operand of a free operation."""
        if op.spec is not broadcast:
            return loop_axes
        along = dict(zip(non_unit_dims(op.result.type), loop_axes, strict=True))
        return tuple(along[op.attrs["dims"][dim]] for dim in non_unit_dims(x.type))

    def why(self, members: Sequence[Op]) -> str:
        """Describe the operations of the group."""
        named = list(dict.fromkeys(op.name for op in members))
        more = f" and {len(named) - 6} more" if len(named) > 6 else ""
        shape = "x".join(map(str, self.group.shape)) or "one element"
        return f"{', '.join(named[:6])}{more} over {shape}"


def sort_topologically(numbered_ops: Sequence[tuple[int, Op]]) -> tuple[Op, ...]:
    """Return the operations in topological order, ties in the order of their indices.

    Operations that synchronize devices keep their order.
    """
    maker = {value: i for i, (_, op) in enumerate(numbered_ops) for value in op.results}
    users: list[list[int]] = [[] for _ in numbered_ops]
    waits = [0] * len(numbered_ops)
    for i, (_, op) in enumerate(numbered_ops):
        for source in dict.fromkeys(maker[v] for v in op.uses() if v in maker):
            users[source].append(i)
            waits[i] += 1
    meetings = sorted(
        (number, i) for i, (number, op) in enumerate(numbered_ops) if synchronizes_devices(op)
    )
    for (_, first), (_, second) in pairwise(meetings):
        users[first].append(second)
        waits[second] += 1
    ready = [(number, i) for i, (number, _) in enumerate(numbered_ops) if not waits[i]]
    heapify(ready)
    ops: list[Op] = []
    while ready:
        _, i = heappop(ready)
        ops.append(numbered_ops[i][1])
        for user in users[i]:
            waits[user] -= 1
            if not waits[user]:
                heappush(ready, (numbered_ops[user][0], user))
    assert len(ops) == len(numbered_ops), "groups wait for each other"
    return tuple(ops)
