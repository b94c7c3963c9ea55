"""Translate worklist events to steps in terms of operations and values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from shardir.factors import FactorRule
from shardir.ir import Op, Value
from shardir.passes.propagation.directions import Direction, Directions
from shardir.passes.propagation.draft import Draft
from shardir.passes.propagation.finish import without_unit_axes
from shardir.passes.propagation.groups import Group
from shardir.passes.propagation.levels import Run, State
from shardir.passes.propagation.network import Network, Node, edge_rule
from shardir.passes.propagation.priorities import LAST, Traffic, directions
from shardir.passes.propagation.record import Gain, Reason, Record, Refusal, Said, Step, Story
from shardir.passes.propagation.step import Outcome, Shardings
from shardir.placement import WHOLE, Sharding


class Tie(NamedTuple):
    """Two members of a sharding group: the sharding of one is set on the other.

    `op` is the operation that puts the other into the group.
    """

    op: Op
    tensors: tuple[Value, Value]
    cells: tuple[int, int]


def _ties(group: Group, value: Value, network: Network) -> Iterator[Tie]:
    for member, op in zip(group.members, group.sayings, strict=True):
        if member is not value:
            yield Tie(op, (value, member), (network.cells[value], network.cells[member]))


class Spoken(NamedTuple):
    """The source of annotations for other values: a constraint, or another member of the sharding
    group."""

    constraints: Mapping[Value, Op]
    members: Mapping[Value, Value]


class Recorder:
    """Translates node and cell numbers of one function to the steps of a history."""

    def __init__(
        self,
        record: Record,
        draft: Draft,
        network: Network,
        shardings: Shardings,
        said: Mapping[Value, Sharding],
        spoken: Spoken,
        groups: Sequence[Group],
        state: State,
    ) -> None:
        """Create a recorder.

        `said` holds the stated shardings of values, `spoken` their source if it is another value,
        and `state` is the state of the run.
        """
        self.story = record.stories[draft.function.name] = Story(draft.function)
        self.returned = tuple(draft.inputs(draft.function.body))
        self.network = network
        self.known: dict[tuple[int, Traffic, bool, int], Directions] = {}
        self.shardings = shardings
        self.story.mute += network.mute
        self.story.cells.update(network.cells)
        self.state = state
        self.ties = {
            network.cells[value]: tuple(_ties(group, value, network))
            for group in groups
            for value in group.members
        }
        self.said: dict[int, Said] = {}
        for value in (*network.owners, *network.cells):
            cell = network.cells[value]
            if value in said and cell not in self.said:
                speaker = spoken.members.get(value, value)
                constraint = spoken.constraints.get(speaker)
                self.said[cell] = Said(cell, said[value], speaker, constraint)
        for i, sharding in enumerate(draft.function.results):
            if sharding:
                self.said[-1 - i] = Said(-1 - i, without_unit_axes(sharding), None)
        self.story.said += self.said.values()

    def step(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: Outcome
    ) -> None:
        """Record a step that changed a sharding; nodes below 0 are the function's results."""
        step = self.at(priority, round, number, state, outcome)
        self.story.steps.append(step)
        for tensor, sharding in outcome.updates:
            cell = step.cells[tensor]
            bridge = self.network.nodes[number].bridge if number >= 0 else None
            if bridge is not None and tensor == len(step.cells) - 1:
                sharding = bridge.kept(sharding)
            for tie in self.ties.get(cell, ()) if cell in self.network.groups else ():
                before = self.shardings[self.state.cells[tie.cells[1]]]
                self.story.steps.append(
                    self.tied(tie, priority, round, self.shardings[sharding], before)
                )

    def tied(
        self, tie: Tie, priority: int, round: int, now: Sharding | None, before: Sharding | None
    ) -> Step:
        """Return the step that gives the sharding of one group member to another."""
        type = tie.tensors[0].type
        rule = edge_rule((type, type), (False, False))
        gains = tuple(
            Gain(factor, 1, dim.axes, 0)
            for factor, dim in enumerate(now.dims if now else ())
            if before is None or before.dims[factor].axes != dim.axes
        )
        return Step(
            tie.op, None, priority, round, rule, _both(rule), tie.tensors, tie.cells,
            (now, before), (now, now), gains, (),
        )  # fmt: skip

    def finish(self, state: State, run: Run, written: Mapping[Value, Value]) -> None:
        """Record the refusals in the final state when all directions are allowed, and the final
        values."""
        ways = run.directions(LAST)
        last = run.strategies[-1]
        for number, node in enumerate(self.network.nodes):
            cells = node.state(state.cells)
            outcome = node.stepper.ask(last, ways[number], cells)
            self.story.standing.append(self.at(run.priority, LAST, number, cells, outcome))
        for i, (value, stepper) in enumerate(zip(self.returned, run.meets, strict=True)):
            cells = state.cells[self.network.cells[value]], state.results[i]
            outcome = stepper.ask(last, _both(stepper.rule), cells)
            self.story.standing.append(self.at(run.priority, LAST, -1 - i, cells, outcome))
        for ties in self.ties.values():
            for tie in ties:
                one, other = (self.shardings[state.cells[cell]] for cell in tie.cells)
                self.story.standing.append(self.tied(tie, run.priority, LAST, one, other))
        for cell, number in enumerate(state.cells):
            self.story.final[cell] = self.shardings[number]
        for i, number in enumerate(state.results):
            self.story.final[-1 - i] = self.shardings[number]
        self.story.written.update(written)

    def at(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: Outcome
    ) -> Step:
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
            op, edge, ways = None, None, _both(rule)
            tensors, cells = (value, value), (self.network.cells[value], number)
        else:
            node = self.network.nodes[number]
            op, edge, rule = node.op, node.edge, node.stepper.rule
            ways = self.directions(node, round)
            tensors, cells = node.tensors, node.cells
        refusals = tuple([self.named(r, rule, before, cells) for r in outcome.refusals])
        return Step(
            op, edge, priority, round, rule, ways, tensors, cells, before, tuple(after),
            outcome.gains, refusals,
        )  # fmt: skip

    def directions(self, node: Node, round: int) -> Directions:
        """Return the directions of a node; they are cached, because programs are repetitive."""
        rule = node.stepper.rule
        key = id(rule), node.kind, node.single_use, round
        found = self.known.get(key)
        if found is None:
            found = directions(rule, node.kind, single_use=node.single_use, round=round)
            self.known[key] = found
        return found

    def named(
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
        if refusal.reason not in (Reason.REPLICATED, Reason.CLOSED):
            return refusal
        said, now = self.said.get(cells[refusal.tensor]), before[refusal.tensor]
        if said is None or now is None:
            return refusal
        later = [dim for dim in said.sharding.dims if dim.priority]
        if refusal.reason is Reason.REPLICATED:
            early = any(refusal.axis.overlaps(axis) for dim in later for axis in dim.axes)
        else:
            mapping = rule.tensors[refusal.tensor]
            early = any(
                there in later and refusal.factor in factors and dim == WHOLE
                for there, factors, dim in zip(said.sharding.dims, mapping, now.dims, strict=True)
            )
        return replace(refusal, reason=Reason.PRIORITY) if early else refusal


def _both(rule: FactorRule) -> Directions:
    return (Direction.BOTH,) * len(rule.factors)
