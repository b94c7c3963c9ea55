"""Overlap communication with computation: start collectives early and wait for them late.

before: `%a = all-reduce(%p, axes=[x], op=add)`, `%b = dot(%u, %u, ...)`, `%c = add(%a, %b)`
after:  `%a.start = all-reduce-start(%p, axes=[x], op=add)`, `%b = dot(%u, %u, ...)`,
        `%a = done(%a.start)`, `%c = add(%a, %b)`

A list scheduler orders each block with a model of two resources, computation and network: a
collective starts as soon as its operand is available, the next computation is the first ready one
in program order, and operations that need a transfer are delayed while other computation is ready.
All devices run the same order. A collective without overlapping computation is not split.
"""

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from shardir.cost.device_rates import DeviceRates
from shardir.cost.op_cost import cost_of
from shardir.errors import PipelineError
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, Module, Op, Value
from shardir.ops.communication.async_collectives import START_OPS, done
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import has_nested_effect, rebuild_device_programs


@dataclass(frozen=True)
class Overlap(Pass, name="overlap"):
    """Split collectives into start and done, and schedule computation between them.

    `flops` and `memory` are the operations and bytes that a device processes per second, `network`
    the bytes that it sends per second, `latency` the seconds until the first byte arrives. Only
    their ratios matter.
    """

    flops: float = DeviceRates.flops
    memory: float = DeviceRates.memory
    network: float = DeviceRates.network
    latency: float = DeviceRates.latency

    def __call__(self, module: Module) -> Module:
        for name in ("flops", "memory", "network"):
            if not getattr(self, name) > 0:
                raise PipelineError(f"{name} of overlap is more than 0, got {getattr(self, name)}")
        if not self.latency >= 0:
            raise PipelineError(f"latency of overlap is at least 0, got {self.latency}")
        return rebuild_device_programs(module, self, self.block)

    def block(self, block: Block, names: UniqueNames) -> Block:
        ops = [
            replace(op, blocks=tuple(self.block(inner, names) for inner in op.blocks))
            if op.blocks
            else op
            for op in block.ops
        ]
        if not any(op.spec in START_OPS for op in ops):
            return replace(block, ops=tuple(ops))
        order = _ListScheduler(self, ops).run()
        return replace(block, ops=tuple(_split_collectives(order, names)))

    def seconds(self, op: Op) -> float:
        """Return the seconds that an operation computes, including the transfers in its blocks, or
        that its transfer takes."""
        rates = DeviceRates(self.flops, self.memory, self.network, self.latency)
        cost = cost_of(op)
        return rates.transfer_seconds(cost) if op.spec.collective else rates.seconds(cost)


ScheduledEvent = tuple[Op, bool]
"""An operation, and whether the event is the wait for a started collective."""


@dataclass
class _ListScheduler:
    """Scheduler of one block. Operations are identified by their index in the original order."""

    machine: Overlap
    ops: list[Op]
    users: list[list[int]] = field(default_factory=list)
    unmet_dependences: list[int] = field(default_factory=list)
    """Number of unscheduled dependences of each operation."""

    def __post_init__(self) -> None:
        definitions: dict[Value, int] = {v: i for i, op in enumerate(self.ops) for v in op.results}
        self.users = [[] for _ in self.ops]
        last = -1
        for i, op in enumerate(self.ops):
            needs = {definitions[value]: None for value in op.uses() if value in definitions}
            if has_nested_effect(op):
                if last >= 0:
                    needs[last] = None
                last = i
            self.unmet_dependences.append(len(needs))
            for j in needs:
                self.users[j].append(i)

    def run(self) -> list[ScheduledEvent]:
        order: list[ScheduledEvent] = []
        now = network = 0.0
        to_start: list[int] = []
        to_compute: list[int] = []
        arriving: list[tuple[float, int]] = []

        def release(i: int) -> None:
            heappush(to_start if self.ops[i].spec in START_OPS else to_compute, i)

        for i, count in enumerate(self.unmet_dependences):
            if count == 0:
                release(i)
        while to_start or to_compute or arriving:
            if to_start:
                i = heappop(to_start)
                network = max(network, now) + self.machine.seconds(self.ops[i])
                heappush(arriving, (network, i))
                order.append((self.ops[i], False))
                continue
            if arriving and (not to_compute or arriving[0][0] <= now):
                when, i = heappop(arriving)
                now = max(now, when)
                order.append((self.ops[i], True))
            else:
                i = heappop(to_compute)
                now += self.machine.seconds(self.ops[i])
                order.append((self.ops[i], False))
            for user in self.users[i]:
                self.unmet_dependences[user] -= 1
                if self.unmet_dependences[user] == 0:
                    release(user)
        return order


def _split_collectives(order: list[ScheduledEvent], names: UniqueNames) -> list[Op]:
    """Return the operations in their new order, with collectives split if computation follows their
    start."""
    new_ops: list[Op] = []
    begun: dict[Op, int] = {}
    for op, ends in order:
        if not ends:
            if op.spec in START_OPS:
                begun[op] = len(new_ops)
            new_ops.append(op)
        elif not _has_computation_after(new_ops, begun[op]):
            continue
        else:
            (result,) = op.results
            started = Value(result.type, names.fresh(f"{result.name}.start"))
            new_ops[begun[op]] = replace(op, spec=START_OPS[op.spec], results=(started,))
            new_ops.append(Op(done, (started,), (result,), {}, (), op.loc, op.why))
    return new_ops


def _has_computation_after(new_ops: list[Op], start: int) -> bool:
    """Return whether any computation follows index `start`."""
    return any(not op.spec.collective and op.spec is not done for op in new_ops[start:])
