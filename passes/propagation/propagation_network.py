"""The network of a function: the operations that propagation visits again when a sharding changes.

Every value has a *cell* that holds its sharding; all values that an edge connects, except the
initial value of a loop carry, share one cell. A *node* propagates axes: an operation with a factor
rule, or an edge, which is an identity from all its sources to its cell. When a cell changes, the
nodes in its `wakes` are visited again: the operation that defines the value, then its users, the
most recent first.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from shardir import ops as specs
from shardir.ir.module import Block, DataFlowEdge, Op, Value
from shardir.ir.types import TensorType
from shardir.op_rules.custom_rules import RuleSet
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.passes.propagation.conservative_rules import conservative_rule
from shardir.passes.propagation.draft import FunctionDraft, OperandUse
from shardir.passes.propagation.manual_computations import BoundaryConversion
from shardir.passes.propagation.priorities import PriorityKind, is_elementwise, priority_kind
from shardir.passes.propagation.sharding_groups import ShardingGroup
from shardir.passes.propagation.step import RuleStepper, ShardingTable

RUNNING_ONCE = (specs.manual_computation, specs.call)
"""Operations with an edge to each parameter, and an edge from each returned value."""


@dataclass(slots=True)
class NetworkNode:
    """`cells` correspond to the tensors of the stepper's rule, and `tensors` to their values."""

    op: Op
    edge: DataFlowEdge | None
    cells: tuple[int, ...]
    tensors: tuple[Value, ...]
    stepper: RuleStepper
    kind: PriorityKind
    single_use: bool
    bridge: BoundaryConversion | None = None
    """Conversion of the sharding of the cell that an edge of a manual computation owns, its
    last."""

    def state(self, states: Sequence[int]) -> tuple[int, ...]:
        """Return the shardings of its tensors, from those of all cells."""
        result = tuple([states[cell] for cell in self.cells])
        return result if self.bridge is None else (*result[:-1], self.bridge.to_edge(result[-1]))


GroupMember = tuple[int, tuple[int, ...]]
"""The cell of a member of a sharding group, and the nodes to visit when its sharding is set."""


@dataclass(slots=True)
class PropagationNetwork:
    nodes: list[NetworkNode] = field(default_factory=list)
    cells: dict[Value, int] = field(default_factory=dict)
    owners: list[Value] = field(default_factory=list)
    """The value that each cell belongs to."""
    siblings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """For each result of an operation that has several, all of them."""
    wakes: list[tuple[int, ...]] = field(default_factory=list)
    impassable: list[Op] = field(default_factory=list)
    """Operations through which axes cannot propagate: those without a rule and without edges."""
    groups: dict[int, tuple[GroupMember, ...]] = field(default_factory=dict)
    """The cells that are set to the sharding of a cell: the other members of its group."""


class StepperTable:
    """One stepper per rule, for all functions of a module."""

    def __init__(
        self, shardings: ShardingTable, *, explain: bool, conservative: bool = False
    ) -> None:
        self.shardings = shardings
        self.conservative = conservative
        self._explain = explain
        self._of: dict[tuple[int, bool, bool], RuleStepper] = {}

    def of(
        self, rule: FactorRule, *, elementwise: bool = False, is_edge: bool = True
    ) -> RuleStepper:
        """Return the stepper of a rule. Parts of axes propagate along edges and barriers also if
        propagation is conservative."""
        conservative = self.conservative and not is_edge
        # Equal rules are almost always one object, and a stepper keeps its rule alive, so the
        # identity serves as the key; hashing a rule would take longer than a step.
        key = (id(rule), elementwise, conservative)
        stepper = self._of.get(key)
        if stepper is None:
            stepper = self._of[key] = RuleStepper(
                rule,
                self.shardings,
                elementwise=elementwise,
                explain=self._explain,
                conservative=conservative,
            )
        return stepper


def build_network(
    draft: FunctionDraft,
    edges: Mapping[Op, tuple[DataFlowEdge, ...]],
    groups: Iterable[ShardingGroup],
    bridges: Mapping[Value, BoundaryConversion],
    steppers: StepperTable,
    rules: RuleSet,
) -> PropagationNetwork:
    """Return the network of a prepared function; `edges` are those of its operations.

    `rules` are stated by users.
    """
    network = PropagationNetwork()
    _NetworkBuilder(draft, edges, bridges, steppers, rules, network).run(groups)
    return network


class _NetworkBuilder:
    def __init__(
        self,
        draft: FunctionDraft,
        edges: Mapping[Op, tuple[DataFlowEdge, ...]],
        bridges: Mapping[Value, BoundaryConversion],
        steppers: StepperTable,
        rules: RuleSet,
        network: PropagationNetwork,
    ) -> None:
        self.draft = draft
        self.edges = edges
        self.bridges = bridges
        self.steppers = steppers
        self.rules = rules
        self.network = network
        self.node_of: dict[Op, int] = {}
        self.edge_nodes: dict[Op, list[tuple[int, DataFlowEdge]]] = {}
        self.edge_of_owner: dict[Value, tuple[int, DataFlowEdge]] = {}
        self.holders: dict[Block, Op] = {}
        self.conservative_rules: dict[FactorRule, FactorRule] = {}
        self.moved = {op for ops in draft.moved_behind.values() for op in ops}

    def run(self, groups: Iterable[ShardingGroup]) -> None:
        body = self.draft.function.body
        for param in body.params:
            self.cell(param)
        self.add_block(body)
        for value in self.network.owners:
            self.network.wakes.append(tuple(dict.fromkeys(self.wakes(value))))
        for group in groups:
            self.connect_group(group.members)

    def connect_group(self, members: Sequence[Value]) -> None:
        """Let each member of a group set its sharding on the others.

        A member that an edge shows but does not own is set like the others, which wakes only its
        own users, and sets nothing: its changes are changes of the owner. This corresponds to
        OpenXLA Shardy.
        """
        network = self.network
        group_members: list[GroupMember] = []
        for value in members:
            cell = network.cells[value]
            own = network.owners[cell] is value
            wakes = network.wakes[cell] if own else tuple(dict.fromkeys(self.users(value)))
            group_members.append((cell, wakes))
        for value, mine in zip(members, group_members, strict=True):
            if network.owners[mine[0]] is value:
                network.groups[mine[0]] = tuple(each for each in group_members if each is not mine)

    def cell(self, value: Value) -> int:
        """Return the cell of a value, a new one the first time."""
        cells = self.network.cells
        number = cells.get(value)
        if number is None:
            number = cells[value] = len(self.network.owners)
            self.network.owners.append(value)
        return number

    def add_block(self, block: Block) -> None:
        """Create the nodes of a block, in the initial order of the worklist.

        The edges of an operation come behind it, each followed by operations that were moved behind
        it; those to parameters of a manual computation or a call come first in its body.
        """
        for op in self.draft.ops(block):
            if op in self.moved:
                continue
            edges = self.edges.get(op)
            if edges is None:
                self.add_op(op)
            else:
                for edge in edges:
                    self.share_cell(edge)
                for value in op.results:
                    self.cell(value)
            for inner in op.blocks:
                self.holders[inner] = op
                for param in inner.params:
                    self.cell(param)
                if op.spec in RUNNING_ONCE:
                    self.add_edges(op, [e for e in self.edges[op] if e.targets[0] in inner.params])
                self.add_block(inner)
            if op.spec in RUNNING_ONCE:
                edges = tuple(e for e in self.edges[op] if e.targets[0] in op.results)
            self.add_edges(op, edges or ())

    def add_edges(self, op: Op, edges: Iterable[DataFlowEdge]) -> None:
        for edge in edges:
            self.edge_nodes.setdefault(op, []).append((self.add_edge(op, edge), edge))
            for behind in self.draft.moved_behind.get(edge.targets[0], ()):
                self.add_op(behind)

    def share_cell(self, edge: DataFlowEdge) -> None:
        owner, *others = edge.targets
        number = self.cell(owner)
        for target in others:
            self.network.cells[target] = number

    def add_op(self, op: Op) -> None:
        results = tuple([self.cell(value) for value in op.results])
        if len(results) > 1:
            self.network.siblings.update(dict.fromkeys(results, results))
        if op.spec is specs.sharding_group:
            return
        rule = self.rules.factors_of(op)
        if rule is None:
            if op.operands:
                self.network.impassable.append(op)
            return
        if self.steppers.conservative:
            # Equal rules must be one object, which is the key of its stepper.
            rule = conservative_rule(op, rule)
            rule = self.conservative_rules.setdefault(rule, rule)
        operands = tuple(self.draft.inputs(op))
        single_use = all(
            len(self.draft.uses_of(value)) == 1 for value in operands if value.type.shape
        )
        self.node_of[op] = len(self.network.nodes)
        self.network.nodes.append(
            NetworkNode(
                op,
                None,
                tuple([self.cell(value) for value in operands]) + results,
                operands + op.results,
                self.steppers.of(
                    rule,
                    elementwise=is_elementwise(op),
                    is_edge=op.spec is specs.propagation_barrier,
                ),
                priority_kind(op),
                single_use,
            )
        )

    def add_edge(self, op: Op, edge: DataFlowEdge) -> int:
        tensors = (*edge.sources, edge.targets[0])
        bridge = self.bridges.get(edge.targets[0])
        types = tuple(value.type for value in tensors)
        if bridge is not None:
            types = (types[-1],) * len(types)  # the sources have other sizes, but the same factors
        rule = edge_rule(types, tuple(value in edge.stacked for value in tensors))
        cells = tuple([self.cell(value) for value in tensors])
        stepper = self.steppers.of(rule)
        self.network.nodes.append(
            NetworkNode(op, edge, cells, tensors, stepper, PriorityKind.THROUGH, True, bridge)
        )
        number = len(self.network.nodes) - 1
        self.edge_of_owner[edge.targets[0]] = number, edge
        return number

    def wakes(self, owner: Value) -> Iterable[int]:
        """Yield the nodes to visit when the cell of `owner` changes, in MLIR's order."""
        if owner in self.edge_of_owner:
            number, edge = self.edge_of_owner[owner]
            for target in edge.targets[1:]:
                yield from self.users(target)
            yield number
        elif (maker := self.draft.makers.get(owner)) in self.node_of:
            assert maker is not None
            yield self.node_of[maker]
        yield from self.users(owner)

    def users(self, value: Value) -> Iterable[int]:
        for use in reversed(self.draft.uses_of(value)):
            yield from self.nodes_of_use(use, value)

    def nodes_of_use(self, use: OperandUse, value: Value) -> Iterable[int]:
        user, position = use
        op = self.holders.get(user) if isinstance(user, Block) else user
        if op is None:
            return
        if op is user and op.spec in RUNNING_ONCE:
            return  # Shardy looks up the edge at the operand, not at the parameter that owns it
        if op in self.node_of:
            yield self.node_of[op]
        edges = [n for n, edge in self.edge_nodes.get(op, ()) if value in edge.sources]
        uses = [each for each in self.draft.uses_of(value) if each[0] is user]
        if len(edges) == len(uses):  # Each use is a source of another edge, in the same order.
            edges = [edges[sorted(index for _, index in uses).index(position)]]
        yield from edges


@lru_cache(maxsize=1 << 12)
def edge_rule(types: tuple[TensorType, ...], stacked: tuple[bool, ...]) -> FactorRule:
    """Return the rule of an identity from all tensors but the last to the last.

    A stacked tensor has one more leading dimension, which no other tensor has.
    """
    shapes = [type.shape for type in types]
    builder = RuleBuilder(shapes[:-1], shapes[-1:])
    base = next(shape[extra:] for shape, extra in zip(shapes, stacked, strict=True))
    for dim, size in enumerate(base):
        where = [dim + extra for extra in stacked]
        builder.add(where[:-1], where[-1:], size)
    for number, extra in enumerate(stacked):
        if extra:
            alone = [0 if i == number else None for i in range(len(types))]
            builder.add(alone[:-1], alone[-1:], shapes[number][0], FactorKind.REPLICATE)
    return builder.build()
