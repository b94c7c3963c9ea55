"""Dimension groups: dimensions of values that the operations of a program shard alike.

An operation shards all dimensions that map to one factor of its rule alike. The groups are the
connected components of dimensions through the factors of all operations, with forward, backward and
optimizer together, and through the data-flow edges of loops and branches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shardir.ir.module import Module, Value
from shardir.op_rules.custom_rules import rules_in_force
from shardir.op_rules.factors import FactorKind
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.propagation.propagation_network import StepperTable
from shardir.passes.propagation.step import ShardingTable


@dataclass(frozen=True, slots=True)
class DimensionGroups:
    """The group of each dimension of each value of a function, numbered from 0 in the order of
    the values: parameters first.
    """

    of_value: Mapping[Value, tuple[int, ...]]
    count: int


class _DisjointSets:
    def __init__(self) -> None:
        self.parents: list[int] = []

    def add(self) -> int:
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, member: int) -> int:
        parents = self.parents
        while parents[member] != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    def unite(self, a: int, b: int) -> None:
        first, second = sorted((self.find(a), self.find(b)))
        self.parents[second] = first


def find_dimension_groups(module: Module) -> DimensionGroups:
    """Return the dimension groups of the module's first function.

    A dimension that maps to several factors, as those of a reshape do, belongs to the group of the
    major factor, which is the first one that axes shard.
    """
    rules = rules_in_force()
    module = rules.bind(module)
    steppers = StepperTable(ShardingTable(module), explain=False)
    network = Propagate().prepare_function(module.main, steppers, rules).network
    sets = _DisjointSets()
    dims = [[sets.add() for _ in owner.type.shape] for owner in network.owners]
    for node in network.nodes:
        rule = node.stepper.rule
        of_factor: dict[int, int] = {}
        for cell, mapping in zip(node.cells, rule.tensors, strict=True):
            for dim, factors in enumerate(mapping):
                sized = [number for number in factors if rule.factors[number].size > 1]
                if not sized or rule.factors[sized[0]].kind is FactorKind.REPLICATE:
                    continue
                known = of_factor.setdefault(sized[0], dims[cell][dim])
                sets.unite(known, dims[cell][dim])
    numbers: dict[int, int] = {}
    of_cell = [
        tuple(numbers.setdefault(sets.find(member), len(numbers)) for member in members)
        for members in dims
    ]
    return DimensionGroups(
        {value: of_cell[cell] for value, cell in network.cells.items()}, len(numbers)
    )
