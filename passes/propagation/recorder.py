"""Translate worklist events to steps in terms of operations and values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from shardir.ir.module import Op, Value
from shardir.ir.sharding import REPLICATED_DIM, Sharding
from shardir.op_rules.factors import FactorRule
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.finish import without_unit_axes
from shardir.passes.propagation.priorities import (
    LAST_ROUND,
    FactorDirections,
    PriorityKind,
    PropagationDirection,
    round_directions,
)
from shardir.passes.propagation.propagation_network import (
    NetworkNode,
    PropagationNetwork,
    edge_rule,
)
from shardir.passes.propagation.record import (
    Gain,
    PropagationHistory,
    PropagationRecord,
    PropagationStep,
    Refusal,
    RefusalReason,
    StatedSharding,
)
from shardir.passes.propagation.sharding_groups import ShardingGroup
from shardir.passes.propagation.step import ShardingTable, StepOutcome

if TYPE_CHECKING:
    from shardir.passes.propagation.propagation_levels import PropagationRun, PropagationState


class GroupTie(NamedTuple):
    """Two members of a sharding group: the sharding of one is set on the other.

    `op` is the operation that puts the other into the group.
    """

    op: Op
    tensors: tuple[Value, Value]
    cells: tuple[int, int]


def _group_ties(
    group: ShardingGroup, value: Value, network: PropagationNetwork
) -> Iterator[GroupTie]:
    for member, op in zip(group.members, group.group_operations, strict=True):
        if member is not value:
            yield GroupTie(op, (value, member), (network.cells[value], network.cells[member]))


class AnnotationSources(NamedTuple):
    """The source of annotations for other values: a constraint, or another member of the sharding
    group."""

    constraints: Mapping[Value, Op]
    members: Mapping[Value, Value]


class PropagationRecorder:
    """Translates node and cell numbers of one function to the steps of a history."""

    def __init__(
        self,
        record: PropagationRecord,
        draft: FunctionDraft,
        network: PropagationNetwork,
        shardings: ShardingTable,
        stated: Mapping[Value, Sharding],
        annotation_sources: AnnotationSources,
        groups: Sequence[ShardingGroup],
        state: "PropagationState",
    ) -> None:
        """Create a recorder.

        `stated` holds the stated shardings of values, `annotation_sources` their source if it is
        another value, and `state` is the state of the run.
        """
        self.story = record.histories[draft.function.name] = PropagationHistory(draft.function)
        self.returned = tuple(draft.inputs(draft.function.body))
        self.network = network
        self.known: dict[tuple[int, PriorityKind, bool, int], FactorDirections] = {}
        self.shardings = shardings
        self.story.impassable += network.impassable
        self.story.cells.update(network.cells)
        self.state = state
        self.ties = {
            network.cells[value]: tuple(_group_ties(group, value, network))
            for group in groups
            for value in group.members
        }
        self.stated: dict[int, StatedSharding] = {}
        for value in (*network.owners, *network.cells):
            cell = network.cells[value]
            if value in stated and cell not in self.stated:
                source = annotation_sources.members.get(value, value)
                constraint = annotation_sources.constraints.get(source)
                self.stated[cell] = StatedSharding(cell, stated[value], source, constraint)
        for i, sharding in enumerate(draft.function.result_shardings):
            if sharding:
                self.stated[-1 - i] = StatedSharding(-1 - i, without_unit_axes(sharding), None)
        self.story.stated += self.stated.values()

    def record_step(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: StepOutcome
    ) -> None:
        """Record a step that changed a sharding; nodes below 0 are the function's results."""
        step = self.visit(priority, round, number, state, outcome)
        self.story.steps.append(step)
        for tensor, sharding in outcome.updates:
            cell = step.cells[tensor]
            bridge = self.network.nodes[number].bridge if number >= 0 else None
            if bridge is not None and tensor == len(step.cells) - 1:
                sharding = bridge.to_cell(sharding)
            for tie in self.ties.get(cell, ()) if cell in self.network.groups else ():
                before = self.shardings[self.state.cells[tie.cells[1]]]
                self.story.steps.append(
                    self.tie_step(tie, priority, round, self.shardings[sharding], before)
                )

    def tie_step(
        self,
        tie: GroupTie,
        priority: int,
        round: int,
        now: Sharding | None,
        before: Sharding | None,
    ) -> PropagationStep:
        """Return the step that gives the sharding of one group member to another."""
        type = tie.tensors[0].type
        rule = edge_rule((type, type), (False, False))
        gains = tuple(
            Gain(factor, 1, dim.axes, 0)
            for factor, dim in enumerate(now.dims if now else ())
            if before is None or before.dims[factor].axes != dim.axes
        )
        return PropagationStep(
            tie.op, None, priority, round, rule, _all_directions(rule), tie.tensors, tie.cells,
            (now, before), (now, now), gains, (),
        )  # fmt: skip

    def finish(
        self, state: "PropagationState", run: "PropagationRun", written: Mapping[Value, Value]
    ) -> None:
        """Record the refusals in the final state when all directions are allowed, and the final
        values."""
        ways = run.directions(LAST_ROUND)
        last = run.strategies[-1]
        for number, node in enumerate(self.network.nodes):
            cells = node.state(state.cells)
            outcome = node.stepper.step(last, ways[number], cells)
            self.story.final_visits.append(
                self.visit(run.priority, LAST_ROUND, number, cells, outcome)
            )
        for i, (value, stepper) in enumerate(zip(self.returned, run.result_steppers, strict=True)):
            cells = state.cells[self.network.cells[value]], state.results[i]
            outcome = stepper.step(last, _all_directions(stepper.rule), cells)
            self.story.final_visits.append(
                self.visit(run.priority, LAST_ROUND, -1 - i, cells, outcome)
            )
        for ties in self.ties.values():
            for tie in ties:
                one, other = (self.shardings[state.cells[cell]] for cell in tie.cells)
                self.story.final_visits.append(
                    self.tie_step(tie, run.priority, LAST_ROUND, one, other)
                )
        for cell, number in enumerate(state.cells):
            self.story.final[cell] = self.shardings[number]
        for i, number in enumerate(state.results):
            self.story.final[-1 - i] = self.shardings[number]
        self.story.written.update(written)

    def visit(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: StepOutcome
    ) -> PropagationStep:
        """Return a visit of a node, or of the connection of a function result and the returned
        value."""
        before = tuple([self.shardings[n] for n in state])
        after = list(before)
        for tensor, sharding in outcome.updates:
            after[tensor] = self.shardings[sharding]
        tensors: tuple[Value, ...]
        cells: tuple[int, ...]
        if number < 0:
            value = self.returned[-1 - number]
            rule = edge_rule((value.type, value.type), (False, False))
            op, edge, ways = None, None, _all_directions(rule)
            tensors, cells = (value, value), (self.network.cells[value], number)
        else:
            node = self.network.nodes[number]
            op, edge, rule = node.op, node.edge, node.stepper.rule
            ways = self.directions(node, round)
            tensors, cells = node.tensors, node.cells
        refusals = tuple([self.actual_refusal(r, rule, before, cells) for r in outcome.refusals])
        return PropagationStep(
            op, edge, priority, round, rule, ways, tensors, cells, before, tuple(after),
            outcome.gains, refusals,
        )  # fmt: skip

    def directions(self, node: NetworkNode, round: int) -> FactorDirections:
        """Return the directions of a node; they are cached, because programs are repetitive."""
        rule = node.stepper.rule
        key = id(rule), node.kind, node.single_use, round
        result = self.known.get(key)
        if result is None:
            result = round_directions(rule, node.kind, single_use=node.single_use, round=round)
            self.known[key] = result
        return result

    def actual_refusal(
        self,
        refusal: Refusal,
        rule: FactorRule,
        before: tuple[Sharding | None, ...],
        cells: tuple[int, ...],
    ) -> Refusal:
        """Return the refusal with its actual reason.

        A dimension of a later priority is closed and its axes replicated meanwhile, which a step
        cannot distinguish from an annotation.
        """
        if refusal.reason not in (RefusalReason.REPLICATED, RefusalReason.CLOSED):
            return refusal
        stated, now = self.stated.get(cells[refusal.tensor]), before[refusal.tensor]
        if stated is None or now is None:
            return refusal
        later = [dim for dim in stated.sharding.dims if dim.priority]
        if refusal.reason is RefusalReason.REPLICATED:
            early = any(refusal.axis.overlaps(axis) for dim in later for axis in dim.axes)
        else:
            mapping = rule.tensors[refusal.tensor]
            early = any(
                there in later and refusal.factor in factors and dim == REPLICATED_DIM
                for there, factors, dim in zip(stated.sharding.dims, mapping, now.dims, strict=True)
            )
        return replace(refusal, reason=RefusalReason.PRIORITY) if early else refusal


def _all_directions(rule: FactorRule) -> FactorDirections:
    return (PropagationDirection.BOTH,) * len(rule.factors)
