"""Writes down what the work list does, in terms of operations and values."""

from collections.abc import Mapping
from dataclasses import replace

from shardir.factors import FactorRule
from shardir.ir import Value
from shardir.passes.propagation.draft import Draft
from shardir.passes.propagation.levels import Run
from shardir.passes.propagation.network import Network, edge_rule
from shardir.passes.propagation.priorities import LAST
from shardir.passes.propagation.record import Reason, Record, Step, Stop
from shardir.passes.propagation.step import Outcome, Shardings


class Recorder:
    """Turns node and cell numbers of one function into steps of a record."""

    def __init__(
        self, record: Record, draft: Draft, network: Network, shardings: Shardings
    ) -> None:
        self.record = record
        self.name = draft.function.name
        self.returned = tuple(draft.inputs(draft.function.body))
        self.network = network
        self.shardings = shardings
        record.stops += [Stop(self.name, op, Reason.NO_RULE) for op in network.mute]

    def step(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: Outcome
    ) -> None:
        """Keep a step that changed something; nodes below 0 are the function's results."""
        if number < 0:
            value = self.returned[-1 - number]
            rule = edge_rule((value.type, value.type), (False, False))
            step = self.described(priority, round, rule, (value, value), state, outcome)
        else:
            step = self.at_node(priority, round, number, state, outcome)
        self.record.steps.append(step)

    def finish(self, states: list[int], run: Run, written: Mapping[Value, Value]) -> None:
        """Keep what is still refused when everything may move, and what values became."""
        ways = run.directions(LAST)
        for number, node in enumerate(self.network.nodes):
            state = tuple(states[cell] for cell in node.cells)
            outcome = node.stepper.ask(run.strategies[-1], ways[number], state)
            if outcome.refusals:
                step = self.at_node(run.priority, LAST, number, state, outcome)
                self.record.standing.append(step)
        self.record.written.update(written)

    def at_node(
        self, priority: int, round: int, number: int, state: tuple[int, ...], outcome: Outcome
    ) -> Step:
        node = self.network.nodes[number]
        step = self.described(priority, round, node.stepper.rule, node.tensors, state, outcome)
        return replace(step, op=node.op, edge=node.edge)

    def described(
        self,
        priority: int,
        round: int,
        rule: FactorRule,
        tensors: tuple[Value, ...],
        state: tuple[int, ...],
        outcome: Outcome,
    ) -> Step:
        before = tuple(self.shardings[n] for n in state)
        after = list(before)
        for tensor, sharding in outcome.updates:
            after[tensor] = self.shardings[sharding]
        return Step(
            self.name, None, None, priority, round, rule, tensors, before, tuple(after),
            outcome.gains, outcome.refusals,
        )  # fmt: skip
