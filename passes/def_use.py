"""Definition and uses of each value of a function, nested blocks included, and execution counts.

Values that an edge ties together (what a loop carries) form one flow: they have one sharding and
one reduction state, so analyses decide for all of them together.
"""

from dataclasses import dataclass, field

from shardir import ops
from shardir.ir.module import Block, DataFlowEdge, Function, Op, Value

ASSUMED_WHILE_ITERATIONS = 2
"""Assumed number of iterations of a `while` loop, whose trip count is unknown."""
UNANALYZED_REGIONS = (ops.case, ops.manual_computation)
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
    result = DefUse()
    _analyze_block(function.body, 1, result)
    for value in function.body.returns:
        result.users[value].append(None)
    return result


def _add_definitions(values: tuple[Value, ...], times: int, analysis: DefUse) -> None:
    for value in values:
        analysis.times[value] = times
        analysis.users[value] = []


def _analyze_block(block: Block, times: int, analysis: DefUse) -> None:
    _add_definitions(block.params, times, analysis)
    for op in block.ops:
        _add_definitions(op.results, times, analysis)
        analysis.maker.update(dict.fromkeys(op.results, op))
        if not op.blocks:
            for value in dict.fromkeys(op.operands):
                analysis.users[value].append(op)
        elif op.spec in UNANALYZED_REGIONS:
            for value in dict.fromkeys(op.uses()):
                analysis.users[value].append(None)
        else:
            _analyze_region(op, times, analysis)


def _count_iterations(op: Op) -> int:
    if op.spec is ops.while_:
        return ASSUMED_WHILE_ITERATIONS
    return max(op.attrs["length"], 1) if op.spec is ops.scan else 1


def _analyze_region(op: Op, times: int, analysis: DefUse) -> None:
    inner = times * _count_iterations(op)
    for block in op.blocks:
        _analyze_block(block, inner, analysis)
    entering = dict.fromkeys((*op.operands, *(v for block in op.blocks for v in block.returns)))
    for edge in op.edges():
        tie = EdgeUse(op, edge)
        analysis.tied[edge.targets[0]] = tie
        analysis.owner.update(dict.fromkeys(edge.targets, edge.targets[0]))
        for value in dict.fromkeys(edge.sources):
            analysis.users[value].append(tie)
            entering.pop(value, None)
    for value in entering:
        analysis.users[value].append(None)
