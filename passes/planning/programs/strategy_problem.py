"""The planning problem of a program: a strategy for each operation, at least communication.

The nodes are the arguments and the operations of a program, with their placements and strategies
(`strategies.py`). An edge from the operation that computes a value to one that uses it costs the
least bytes that each device then sends (`sent_part`). A value with several uses has a node of its
own, whose strategies also state how many bytes its copies cost at most; that it is resharded to
several placements then costs as much as the most expensive one of them. The costs in a loop count
once for each iteration, except for values that the loop does not change. Branches cost nothing, and
neither do diagonals, which `reshard` replaces by masked sums. The optimum is therefore
a lower bound of what any program sends that runs each operation once, with one of its strategies.

Only the strategies with the fewest flops are allowed, as a plan without a machine first minimizes
flops.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, prod

import numpy as np

from shardir import ops
from shardir.cost.trip_counts import Definitions, find_definitions, trip_count
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Op, Value
from shardir.ir.types import TensorType
from shardir.ops.control_flow.control_flow import LoopAttributes
from shardir.passes.def_use import DefUse, analyze_def_use
from shardir.passes.planning.problem import (
    FORBIDDEN,
    Edge,
    Ints,
    PlanningError,
    PlanningProblem,
)
from shardir.passes.planning.programs.assignment import DimAxes
from shardir.passes.planning.programs.placements import (
    PARTIAL,
    UNSHARDED,
    Placement,
    has_partial,
    sent_part,
)
from shardir.passes.planning.programs.strategies import placements_of, strategies_of
from shardir.passes.resharding.reassociate import is_read_by_diagonals
from shardir.passes.simulation.machine_model import Flops
from shardir.passes.simulation.utilization import add_flops, flops_of_block

MAX_PAIRS = 20_000_000
"""The number of pairs of strategies of neighbouring nodes of the largest problem."""


@dataclass(eq=False, slots=True)
class _Source:
    """The node that computes a value, with the placement of the value for each strategy."""

    node: int
    placements: Sequence[Placement]

    @property
    def partial_axes(self) -> set[int]:
        """The axes over which some strategy leaves partial sums."""
        return {
            axis
            for placement in self.placements
            for axis, place in enumerate(placement)
            if place == PARTIAL
        }


@dataclass(eq=False, slots=True)
class _Use:
    """A node that uses a value: the placements that each of its strategies needs, one of which
    suffices for a result whose placement is free, and how often the value is resharded."""

    node: int
    needed: Sequence[tuple[Placement, ...]]
    times: int = 1


@dataclass(frozen=True)
class StrategyProblem:
    """A planning problem, and the fewest flops of each dtype that each device executes."""

    problem: PlanningProblem
    flops_by_dtype: Flops
    _sources: Mapping[Value, _Source] = field(repr=False)
    _uses: Mapping[Value, Sequence[_Use]] = field(repr=False)

    @property
    def flops(self) -> int:
        """The fewest flops that each device executes."""
        return sum(self.flops_by_dtype.values())

    def place_values(self, strategies: Sequence[int]) -> dict[Value, Placement]:
        """Return the placement that each value has with the strategies of a solution. A partial sum
        has the placement into which its first use that needs a complete value reduces it; values
        that are only used as partial sums are missing."""
        placed = {}
        for value, source in self._sources.items():
            choices: list[tuple[Placement, ...]] = [(source.placements[strategies[source.node]],)]
            choices += [use.needed[strategies[use.node]] for use in self._uses.get(value, ())]
            complete = [each[0] for each in choices if len(each) == 1 and not has_partial(each[0])]
            if complete:
                placed[value] = complete[0]
        return placed


@dataclass(eq=False, slots=True)
class _Builder:
    sizes: tuple[int, ...]
    max_pairs: int
    costs: list[Ints] = field(default_factory=list)
    usages: list[Ints] = field(default_factory=list)
    edges: dict[tuple[int, int], Ints] = field(default_factory=dict)
    pairs: int = 0

    def add_node(self, costs: Ints, usages: Ints | None = None) -> int:
        self.costs.append(costs)
        self.usages.append(np.zeros(len(costs), np.int64) if usages is None else usages)
        return len(self.costs) - 1

    def add_edge(self, a: int, b: int, costs: Ints) -> None:
        """Add the costs of an edge; those of parallel edges are added."""
        self.pairs += costs.size
        if self.pairs > self.max_pairs:
            raise PlanningError(
                f"the program has more than {self.max_pairs:,} pairs of strategies of operations, "
                "too many for a lower bound; use a mesh with fewer axes, or fewer layers"
            )
        key, costs = ((a, b), costs) if a < b else ((b, a), costs.T)
        known = self.edges.get(key)
        self.edges[key] = costs if known is None else np.minimum(known + costs, FORBIDDEN)

    def sent(self, source: Placement, needed: Iterable[Placement], nbytes: int) -> int:
        """Return the bytes that each device sends to have a value in one of some placements."""
        return min(ceil(nbytes * sent_part(source, each, self.sizes)) for each in needed)

    def connect(self, type: TensorType, source: _Source, uses: Sequence[_Use]) -> None:
        """Add the costs of bringing a value to its uses."""
        merged: dict[int, list[_Use]] = {}
        for use in uses:
            if use.node != source.node:  # The next value of an argument may be the argument.
                merged.setdefault(use.node, []).append(use)
        if not merged:
            return
        # The bytes for each placement of the value and strategy of a user, which needs the most
        # expensive one of the placements that it needs.
        tables = {
            node: self._table(list(dict.fromkeys(source.placements)), same, type.nbytes)
            for node, same in merged.items()
        }
        places = {place: i for i, place in enumerate(dict.fromkeys(source.placements))}
        own = np.array([places[place] for place in source.placements])
        if len(tables) == 1:
            ((node, table),) = tables.items()
            self.add_edge(source.node, node, table[own])
            return
        levels = [
            (row, int(level))
            for row in range(len(places))
            for level in np.unique(np.concatenate([table[row] for table in tables.values()]))
        ]
        rows, costs = (np.array(each, np.int64) for each in zip(*levels, strict=True))
        copies = self.add_node(costs)
        self.add_edge(source.node, copies, np.where(own[:, None] == rows[None, :], 0, FORBIDDEN))
        for node, table in tables.items():
            self.add_edge(copies, node, np.where(table[rows] <= costs[:, None], 0, FORBIDDEN))

    def _table(self, places: Sequence[Placement], uses: Sequence[_Use], nbytes: int) -> Ints:
        known: dict[tuple[Placement, ...], Ints] = {}
        columns = []
        for needed in zip(*(use.needed for use in uses), strict=True):
            column = np.zeros(len(places), np.int64)
            for use, each in zip(uses, needed, strict=True):
                if each not in known:
                    known[each] = np.array(
                        [self.sent(place, each, nbytes) for place in places], np.int64
                    )
                column = np.maximum(column, known[each] * use.times)
            columns.append(column)
        return np.stack(columns, axis=1)


def build_strategy_problem(
    module: Module,
    mesh: Mesh,
    state_pairs: Mapping[int, int],
    fixed: Sequence[DimAxes | None] = (),
    count: int | None = None,
    memory_limit: int | None = None,
    *,
    pads: bool = False,
    max_pairs: int | None = None,
) -> StrategyProblem:
    """Return the planning problem of the first function of a module without shardings.

    Raises `PlanningError` if it has more than `max_pairs` pairs of strategies, by default
    `MAX_PAIRS`.

    The first `count` parameters are arguments, and have even shards unless `pads`; `fixed` states
    the axes of some of them. With a memory limit, the shards of all arguments together have to fit
    into it.
    """
    axes = [(name, size) for name, size in mesh.axes if size > 1]
    sizes = tuple(size for _, size in axes)
    names = [name for name, _ in axes]
    body = module.main.body
    builder = _Builder(sizes, MAX_PAIRS if max_pairs is None else max_pairs)
    sources: dict[Value, _Source] = {}
    for number, value in enumerate(body.params):
        stated = fixed[number] if number < len(fixed) else None
        if stated is not None:
            places = [placement_of(stated, names)]
        else:
            even = not pads and (count is None or number < count)
            places = placements_of(value.type.shape, sizes, even=even)
        usages = [shard_bytes(value.type, place, sizes) for place in places]
        node = builder.add_node(np.zeros(len(places), np.int64), np.array(usages, np.int64))
        sources[value] = _Source(node, places)
    reader = _BodyReader(builder, sources, analyze_def_use(module.main), find_definitions(body))
    reader.read(body, 1)
    uses = reader.uses
    for index, value in enumerate(body.returns):
        if index in state_pairs:
            argument = sources[body.params[state_pairs[index]]]
            need = [(place,) for place in argument.placements]
            uses.setdefault(value, []).append(_Use(argument.node, need))
        elif any(map(has_partial, sources[value].placements)):
            complete = tuple(placements_of(value.type.shape, sizes, even=False))
            node = builder.add_node(np.zeros(1, np.int64))
            uses.setdefault(value, []).append(_Use(node, [complete]))
    for value, source in sources.items():
        builder.connect(value.type, source, uses.get(value, ()))
    problem = _problem(builder, module.main.name, len(body.params), memory_limit)
    return StrategyProblem(problem, reader.flops, sources, uses)


@dataclass(eq=False, slots=True)
class _BodyReader:
    """Adds the nodes of operations, also of those in the bodies of loops.

    `times` has for each value how often it changes: a value that depends on nothing that a loop
    changes is resharded once. Other values change once. `aliases` are the values that a loop
    carries without a change, with their values before the loop.
    """

    builder: _Builder
    sources: dict[Value, _Source]
    def_use: DefUse
    definitions: Definitions
    uses: dict[Value, list[_Use]] = field(default_factory=dict)
    flops: Flops = field(default_factory=dict)
    times: dict[Value, int] = field(default_factory=dict)
    aliases: dict[Value, Value] = field(default_factory=dict)

    def read(self, block: Block, runs: int) -> None:
        """Add the operations of a block that runs `runs` times."""
        for op in block.ops:
            times = max((self.times.get(self._resolve_alias(v), 1) for v in op.uses()), default=1)
            self.times.update(dict.fromkeys(op.results, times))
            if op.spec in (ops.scan, ops.while_):
                self._read_loop(op, runs, times)
            else:
                self._read_op(op, runs)

    def _resolve_alias(self, value: Value) -> Value:
        return self.aliases.get(value, value)

    def _read_op(self, op: Op, runs: int) -> None:
        builder, sizes = self.builder, self.builder.sizes
        operands = [self._resolve_alias(value) for value in op.operands]
        strategies = None
        if not is_read_by_diagonals(op, self.def_use):
            partial = [self.sources[value].partial_axes for value in operands]
            strategies = strategies_of(op, sizes, partial)
        if strategies is None:
            found = flops_of_block(Block((), (op,), ()), recomputed=True)
            self._add_flops({dtype: n // prod(sizes) for dtype, n in found.items()}, runs)
            for value in op.results:
                self.sources[value] = _free_source(builder, value)
            return
        least = min(each.flops for each in strategies)
        if least:
            self._add_flops({op.operands[0].type.dtype: least}, runs)
        strategies = [each for each in strategies if each.flops == least]
        node = builder.add_node(np.zeros(len(strategies), np.int64))
        for i, value in enumerate(operands):
            needed = [(each.operands[i],) for each in strategies]
            self._add_use(value, node, needed, self.times.get(value, 1))
        for i, value in enumerate(op.results):
            self.sources[value] = _Source(node, [each.results[i] for each in strategies])

    def _read_loop(self, op: Op, runs: int, times: int) -> None:
        """Add the body of a loop. Each carried value has one placement in all iterations, possibly
        with partial sums; the condition, slices and results are free."""
        body = op.blocks[-1]
        known_count = trip_count(op, self.definitions)
        count = 1 if known_count is None else known_count
        carried = LoopAttributes.of(op).carries if op.spec is ops.scan else len(op.operands)
        changed: list[tuple[Value, _Source]] = []
        for i, param in enumerate(body.params):
            before = self._resolve_alias(op.operands[i])
            if i < carried and body.returns[i] is param:
                self.aliases[param] = before
                continue
            self.times[param] = times * count
            self.sources[param] = source = _free_source(self.builder, param, partial=i < carried)
            if i < carried:
                needed = [(place,) for place in source.placements]
                self._add_use(before, source.node, needed, self.times.get(before, 1))
                changed.append((body.returns[i], source))
        self.read(body, runs * count)
        for value, source in changed:
            after = self._resolve_alias(value)
            needed = [(place,) for place in source.placements]
            repeats = times * max(count - 1, 0)
            self._add_use(after, source.node, needed, min(self.times.get(after, 1), repeats))
        for value in op.results:
            self.sources[value] = _free_source(self.builder, value)

    def _add_flops(self, flops: Flops, runs: int) -> None:
        self.flops = add_flops(self.flops, {dtype: n * runs for dtype, n in flops.items()})

    def _add_use(
        self, value: Value, node: int, needed: Sequence[tuple[Placement, ...]], times: int
    ) -> None:
        self.uses.setdefault(value, []).append(_Use(node, needed, times))


def placement_of(axes: DimAxes, names: Sequence[str]) -> Placement:
    """Return the placement of a value whose dimensions mesh axes shard."""
    dims = {axis: dim for dim, each in enumerate(axes) for axis in each}
    return tuple(dims.get(name, UNSHARDED) for name in names)


def shard_bytes(type: TensorType, placement: Placement, sizes: Sequence[int]) -> int:
    """Return the bytes of the shard of each device."""
    shards = prod(n for place, n in zip(placement, sizes, strict=True) if place >= 0)
    return type.nbytes // shards


def _free_source(builder: _Builder, value: Value, *, partial: bool = False) -> _Source:
    """Add the node of a value in any placement, with `partial` also a partial sum."""
    places = placements_of(value.type.shape, builder.sizes, even=False, partial=partial)
    return _Source(builder.add_node(np.zeros(len(places), np.int64)), places)


def _problem(
    builder: _Builder, name: str, argument_count: int, memory_limit: int | None
) -> PlanningProblem:
    """Return the problem, in which only arguments use memory, at time 0."""
    ends = np.zeros(len(builder.costs), np.int64)
    ends[:argument_count] = 1
    return PlanningProblem(
        name,
        np.zeros(len(builder.costs), np.int64),
        ends,
        builder.costs,
        builder.usages,
        [Edge(a, b, costs) for (a, b), costs in builder.edges.items()],
        memory_limit,
    )
