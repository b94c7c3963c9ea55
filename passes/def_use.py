"""Definition and uses of each value of a function, nested blocks included, and execution counts.

Values that an edge ties together (what a loop carries) form one flow: they have one sharding and
one reduction state, so analyses decide for all of them together.
"""

from dataclasses import dataclass, field

from shardir import ops
from shardir.ir.module import Block, DataFlowEdge, Function, Op, Value

ASSUMED_WHILE_ITERATIONS = 2
"""Assumed number of iterations of a `while` loop, whose trip count is unknown."""
UNANALYZED_REGIONS = ("case", "manual_computation")
"""Operations whose blocks are not analyzed: only one branch of a `case` runs, and values in a
`manual_computation` are local."""


@dataclass(eq=False, slots=True)
class EdgeUse:
    """An edge of an operation: values flow from its sources to its targets."""

    op: Op
    edge: DataFlowEdge


Use = Op | EdgeUse | None
"""An operation, an edge of one, or (`None`) a use that requires the value as it is."""


@dataclass(eq=False, slots=True)
class DefUse:
    """Definitions and uses of the values of one function.

    `owner` maps a tied value to the representative of its flow, `tied` a flow to its edge; `maker`
    maps a value to the operation that defines it, `times` to how often it is computed.
    """

    times: dict[Value, int] = field(default_factory=dict)
    maker: dict[Value, Op] = field(default_factory=dict)
    users: dict[Value, list[Use]] = field(default_factory=dict)
    owner: dict[Value, Value] = field(default_factory=dict)
    tied: dict[Value, EdgeUse] = field(default_factory=dict)

    def flow(self, value: Value) -> Value:
        return self.owner.get(value, value)

    def members(self, flow: Value) -> tuple[Value, ...]:
        """Return the values of a flow."""
        tie = self.tied.get(flow)
        return tuple(dict.fromkeys(tie.edge.targets)) if tie else (flow,)


def analyze_def_use(function: Function) -> DefUse:
    """Return the definitions and uses of all values of a function."""
    found = DefUse()
    _analyze_block(function.body, 1, found)
    for value in function.body.returns:
        found.users[value].append(None)
    return found


def _add_definitions(values: tuple[Value, ...], times: int, found: DefUse) -> None:
    for value in values:
        found.times[value] = times
        found.users[value] = []


def _analyze_block(block: Block, times: int, found: DefUse) -> None:
    _add_definitions(block.params, times, found)
    for op in block.ops:
        _add_definitions(op.results, times, found)
        found.maker.update(dict.fromkeys(op.results, op))
        if not op.blocks:
            for value in dict.fromkeys(op.operands):
                found.users[value].append(op)
        elif op.name in UNANALYZED_REGIONS:
            for value in dict.fromkeys(op.uses()):
                found.users[value].append(None)
        else:
            _analyze_region(op, times, found)


def _analyze_region(op: Op, times: int, found: DefUse) -> None:
    inner = times * (
        max(op.attrs["length"], 1) if op.spec is ops.scan else ASSUMED_WHILE_ITERATIONS
    )
    for block in op.blocks:
        _analyze_block(block, inner, found)
    entering = dict.fromkeys((*op.operands, *(v for block in op.blocks for v in block.returns)))
    for edge in op.edges():
        tie = EdgeUse(op, edge)
        found.tied[edge.targets[0]] = tie
        found.owner.update(dict.fromkeys(edge.targets, edge.targets[0]))
        for value in dict.fromkeys(edge.sources):
            found.users[value].append(tie)
            entering.pop(value, None)
    for value in entering:
        found.users[value].append(None)
