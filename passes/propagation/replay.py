"""Incremental propagation without one annotation, at the cost of the differences.

The worklist begins with all operations in program order, the newest on top. It therefore works in
*units*: one operation of that order, and those before it that it wakes; those after it are on the
list already. At the end of a unit, the list is as planned. The effect of a unit depends only on the
shardings of the tensors it reads. A run without one annotation repeats only the units that read a
cell with a different sharding; all other units have the same effect. The connection of a function
result with the returned value is a unit too.

The result is exact, not an estimate: it equals that of a separate run, and tests compare the two.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from shardir.passes.propagation.aggressive import PropagationStrategy
from shardir.passes.propagation.priorities import (
    LAST_ROUND,
    ROUND_COUNT,
    FactorDirections,
    PropagationDirection,
)
from shardir.passes.propagation.propagation_levels import PropagationRun, PropagationState
from shardir.passes.propagation.propagation_network import PropagationNetwork
from shardir.passes.propagation.step import RuleStepper, StepMemo

CellReader = Callable[[int], int]
"""Returns the sharding of a cell; function results are cells behind all others."""


@dataclass(slots=True)
class ReplayPhase:
    """One pass of the worklist, or of the results (`memos` is `None` then).

    `first` is the number of its first unit. `additional_units` maps a cell to the units that read
    it, beyond those whose own operation has it.
    """

    propagate: PropagationStrategy
    directions: Sequence[FactorDirections]
    memos: list[StepMemo | None] | None
    first: int
    count: int
    additional_units: dict[int, list[int]] = field(default_factory=dict)


class PropagationReplay:
    """A recorded run of a function, unit by unit; `state` is the initial state.

    Priorities, groups, manual computations, several meshes, and orders other than the default one
    are not supported: such functions are propagated again.
    """

    def __init__(
        self, network: PropagationNetwork, run: PropagationRun, state: PropagationState
    ) -> None:
        self.network = network
        self.run = run
        self.size = len(state.cells)
        self.initial = [*state.cells, *state.results]
        self.nodes_of: dict[int, list[int]] = defaultdict(list)
        for number, node in enumerate(network.nodes):
            for cell in dict.fromkeys(node.cells):
                self.nodes_of[cell].append(number)
        self.meets_of: dict[int, list[int]] = defaultdict(list)
        for number, cell in enumerate(run.returned):
            self.meets_of[cell].append(number)
            self.meets_of[self.size + number].append(number)
        self.times: dict[int, list[int]] = defaultdict(list)
        self.numbers: dict[int, list[int]] = defaultdict(list)
        self.written: dict[int, tuple[int, ...]] = {}
        """The cells that a unit changed."""
        self.phases = list(self._phases())
        self.now = list(self.initial)
        for phase in self.phases:
            for unit in range(phase.count):
                self._record(phase, unit)

    def _phases(self) -> Iterator[ReplayPhase]:
        run, first = self.run, 0
        count = len(self.network.nodes)
        prioritise = run.level in ("op-priority", "user-priority")
        both = [
            (PropagationDirection.BOTH,) * len(stepper.rule.factors)
            for stepper in run.result_steppers
        ]
        for round in range(ROUND_COUNT) if prioritise else (LAST_ROUND,):
            ways = run.directions(round)
            for propagate in run.strategies:
                memos = [
                    node.stepper.memo(propagate, way) if any(way) else None
                    for node, way in zip(self.network.nodes, ways, strict=True)
                ]
                for each, its_ways, number in (
                    (None, both, len(both)), (memos, ways, count), (None, both, len(both))
                ):  # fmt: skip
                    yield ReplayPhase(propagate, its_ways, each, first, number)
                    first += number

    def _record(self, phase: ReplayPhase, unit: int) -> None:
        if phase.memos is not None:
            memo = phase.memos[unit]
            if memo is None:
                return
            now = self.now
            quiet = memo.get(tuple([now[cell] for cell in self.network.nodes[unit].cells]))
            if quiet is not None and not quiet.updates:
                return
        changed, looked = self._work(phase, unit, self.now.__getitem__)
        if not changed:
            return
        number = phase.first + unit
        self.written[number] = tuple(changed)
        for cell, sharding in changed.items():
            self.now[cell] = sharding
            self.times[cell].append(number)
            self.numbers[cell].append(sharding)
        for cell in looked:
            phase.additional_units.setdefault(cell, []).append(unit)

    def _work(
        self, phase: ReplayPhase, unit: int, read: CellReader
    ) -> tuple[dict[int, int], dict[int, None]]:
        """Return the changes of a unit, and the cells it reads beyond those of its own
        operation."""
        if phase.memos is None:
            return self._meet(phase, unit, read), {}
        nodes, wakes = self.network.nodes, self.network.wakes
        changed: dict[int, int] = {}
        looked: dict[int, None] = {}
        waiting, listed = [unit], {unit}
        while waiting:
            number = waiting.pop()
            listed.discard(number)
            memo = phase.memos[number]
            assert memo is not None
            node = nodes[number]
            if number != unit:
                looked.update(dict.fromkeys(node.cells))
            state = tuple([changed[c] if c in changed else read(c) for c in node.cells])
            outcome = memo.get(state)
            if outcome is None:
                outcome = node.stepper.step(phase.propagate, phase.directions[number], state)
            for tensor, sharding in outcome.updates:
                changed[node.cells[tensor]] = sharding
                for other in wakes[node.cells[tensor]]:
                    # Nodes after this unit are still on the list.
                    if (
                        other != number
                        and other <= unit
                        and other not in listed
                        and phase.memos[other] is not None
                    ):
                        listed.add(other)
                        waiting.append(other)
        return changed, looked

    def _meet(self, phase: ReplayPhase, unit: int, read: CellReader) -> dict[int, int]:
        cells = self.run.returned[unit], self.size + unit
        stepper: RuleStepper = self.run.result_steppers[unit]
        state = read(cells[0]), read(cells[1])
        outcome = stepper.step(phase.propagate, phase.directions[unit], state)
        return {cells[tensor]: sharding for tensor, sharding in outcome.updates}

    def before(self, cell: int, number: int) -> int:
        """Return the recorded sharding of a cell before a unit."""
        at = bisect_left(self.times[cell], number) if cell in self.times else 0
        return self.numbers[cell][at - 1] if at else self.initial[cell]

    def differences_without(self, cell: int, sharding: int) -> dict[int, int]:
        """Return the final differences if a cell begins with another sharding."""
        if self.initial[cell] == sharding:
            return {}
        other = {cell: sharding}
        for phase in self.phases:
            waiting = [unit for c in other for unit in self._units(phase, c, 0)]
            heapify(waiting)
            last = -1
            while waiting:
                unit = heappop(waiting)
                if unit == last or (phase.memos is not None and phase.memos[unit] is None):
                    continue
                last = unit
                for changed in self._repeat(phase, unit, other):
                    for later in self._units(phase, changed, unit + 1):
                        heappush(waiting, later)
            if not other:
                break
        return other

    def _units(self, phase: ReplayPhase, cell: int, start: int) -> list[int]:
        """Return the units of a phase from `start` on that read a cell."""
        if phase.memos is None:
            units = self.meets_of.get(cell, [])
            return units[bisect_left(units, start) :]
        units, large = self.nodes_of.get(cell, []), phase.additional_units.get(cell, [])
        return [*units[bisect_left(units, start) :], *large[bisect_left(large, start) :]]

    def _repeat(self, phase: ReplayPhase, unit: int, other: dict[int, int]) -> list[int]:
        """Repeat a unit where `other` cells differ; return those that differ afterwards."""
        number = phase.first + unit

        def read(cell: int) -> int:
            state = other.get(cell)
            return self.before(cell, number) if state is None else state

        changed, _ = self._work(phase, unit, read)
        became = []
        for cell in dict.fromkeys((*changed, *self.written.get(number, ()))):
            mine = changed[cell] if cell in changed else read(cell)
            theirs = self.before(cell, number + 1)
            if mine == theirs:
                other.pop(cell, None)
            elif other.get(cell) != mine:
                other[cell] = mine
                became.append(cell)
        return became
