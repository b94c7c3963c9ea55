"""Find the batch of a traced program: the dimensions that the factor rules connect.

Two dimensions belong to one group if a factor of an operation is the major factor of both, or if a
data flow edge of a loop or a branch connects their values. A group can be the batch if it has a
dimension of an argument, and if no value has two of its dimensions, as the rows and columns of
attention scores have the sequence. Groups without a dimension of a state, an argument with a result
of its type, are preferred; of several groups, the batch is the one whose values have most bytes.
"""

from collections.abc import Iterator, Mapping

from shardir.ir.module import Block, Function, Op, Value
from shardir.passes.resharding.align import partitioning_rule
from shardir.passes.rewriting import all_values

Dimension = tuple[Value, int]
"""A value, and the index of one of its dimensions."""


def find_batch(function: Function) -> Mapping[Value, int] | None:
    """Return the batch dimension of each value of a traced function that has one; `None` if no
    group of dimensions can be the batch."""
    groups = _DimensionGroups(function.body)
    states = _find_states(function)
    params = set(function.body.params)
    members: dict[Dimension, list[Dimension]] = {}
    for value in all_values(function.body):
        for dim in range(value.type.rank):
            members.setdefault(groups.root((value, dim)), []).append((value, dim))
    best: dict[Value, int] | None = None
    best_rank = (False, 0)
    for group in members.values():
        found = dict(group)
        if len(found) < len(group) or params.isdisjoint(found):
            continue
        rank = states.isdisjoint(found), sum(value.type.nbytes for value in found)
        if rank > best_rank:
            best, best_rank = found, rank
    return best


def _find_states(function: Function) -> set[Value]:
    """Return the arguments that have a result of their type, one for each result."""
    types = [value.type for value in function.body.returns]
    states = set()
    for param in function.body.params:
        if param.type in types:
            types.remove(param.type)
            states.add(param)
    return states


class _DimensionGroups:
    """Disjoint sets of the dimensions of a block and of its nested blocks."""

    def __init__(self, block: Block) -> None:
        self._parents: dict[Dimension, Dimension] = {}
        for op in block.walk():
            for connected in _connections(op):
                self._unite(connected)

    def root(self, dimension: Dimension) -> Dimension:
        """Return the dimension that represents the group of a dimension."""
        parents = self._parents
        while (parent := parents.get(dimension, dimension)) != dimension:
            parents[dimension] = parents.get(parent, parent)
            dimension = parent
        return dimension

    def _unite(self, dimensions: list[Dimension]) -> None:
        for dimension in dimensions[1:]:
            self._parents[self.root(dimension)] = self.root(dimensions[0])


def _connections(op: Op) -> Iterator[list[Dimension]]:
    """Yield lists of dimensions of the tensors of an operation that belong to one group."""
    if op.spec.edges is not None:
        for edge in op.spec.edges(op):
            values = (*edge.sources, *edge.targets)
            rank = min(value.type.rank - (value in edge.stacked) for value in values)
            for dim in range(rank):
                yield [(value, dim + (value in edge.stacked)) for value in values]
        return
    rule = partitioning_rule(op)
    if rule is None:
        return
    connected: dict[int, list[Dimension]] = {}
    for value, mapping in zip((*op.operands, *op.results), rule.tensors, strict=True):
        for dim, factors in enumerate(mapping):
            if factors:
                connected.setdefault(factors[0], []).append((value, dim))
    yield from connected.values()
