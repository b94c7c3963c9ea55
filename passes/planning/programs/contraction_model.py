"""A model of matrix products and convolutions, with which splits of axes are predicted.

An axis shards the dimensions of some groups. A contraction executes fewer flops if one of its
dimensions is among them. If that is a dimension that it sums over, its result is all-reduced; if
two of its dimensions are, operands with the other one are gathered. All other operations cost
nothing. The model predicts which sets of groups a search should evaluate, and no costs of plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from shardir import ops
from shardir.cost.op_cost import flops_of
from shardir.ir.module import Block, Value

MIN_IMPROVEMENT = 0.01
"""The relative improvement of the cost from which on a plan splits an axis."""
MAX_COVERS = 12
"""The number of sets of groups, those that send the fewest bytes, that are combined."""

Groups = frozenset[int]
AxisGroups = tuple[Groups, int]
"""The groups that an axis shards, and the size of the axis."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted flops and sent bytes of each device."""

    flops: float
    bytes_sent: float

    def is_better_than(self, other: "Prediction") -> bool:
        """Return whether these costs are lower by more than `MIN_IMPROVEMENT`; flops come first."""
        least = 1 - MIN_IMPROVEMENT
        if self.flops < other.flops * least:
            return True
        return self.flops <= other.flops and self.bytes_sent < other.bytes_sent * least


@dataclass(frozen=True, slots=True)
class _Contraction:
    """A contraction: the groups and bytes of its operands and of its result, and its flops."""

    operands: tuple[tuple[Groups, int], ...]
    result: tuple[Groups, int]
    flops: int
    groups: Groups

    def predict(self, axes: Sequence[AxisGroups]) -> tuple[float, float]:
        """Return the flops and sent bytes with groups of each axis."""
        flops, sent = float(self.flops), 0.0
        for number, (groups, size) in enumerate(axes):
            own = groups & self.groups
            if not own:
                continue
            flops /= size
            others = [*axes[:number], *axes[number + 1 :]]
            reduced = 2 * _shard_bytes(self.result, others)
            gathered = [(each[0], _shard_bytes(each, others)) for each in self.operands]
            moved = min(
                (0.0 if kept in self.result[0] else reduced)
                + sum(nbytes for dims, nbytes in gathered if dims & own - {kept})
                for kept in own
            )
            sent += moved * (size - 1) / size
        return flops, sent


def _shard_bytes(tensor: tuple[Groups, int], axes: Sequence[AxisGroups]) -> float:
    """Return the bytes of a shard of a tensor with some groups, which axes shard."""
    groups, nbytes = tensor
    return nbytes / prod(size for sharded, size in axes if sharded & groups)


@dataclass(frozen=True)
class ContractionModel:
    """The contractions of a program, by the groups of their dimensions.

    `divisors` has for each group that an assignment can shard the greatest common divisor of the
    sizes of its dimensions in contractions.
    """

    contractions: tuple[_Contraction, ...]
    divisors: Mapping[int, int]

    def predict(self, axes: Sequence[AxisGroups]) -> Prediction:
        """Return the predicted costs with groups of each axis."""
        costs = [each.predict(axes) for each in self.contractions]
        return Prediction(sum(flops for flops, _ in costs), sum(sent for _, sent in costs))

    def list_covers(self, size: int) -> list[Groups]:
        """Return sets of groups, that an axis of a size divides, of which each contraction of the
        program has one if possible; each set is found from a first group."""
        usable = [group for group, divisor in self.divisors.items() if divisor % size == 0]
        found = {}
        for first in usable:
            cover = self._extend(frozenset((first,)), usable, size)
            found[cover] = self.predict([(cover, size)])
        ranked = sorted(found, key=lambda each: (found[each].flops, found[each].bytes_sent))
        return ranked[:MAX_COVERS]

    def _extend(self, cover: Groups, usable: Sequence[int], size: int) -> Groups:
        """Return a set of groups with those that reduce the flops at the least cost added."""
        while True:
            now = self.predict([(cover, size)])
            best: tuple[float, Groups] | None = None
            for group in usable:
                more = cover | {group}
                after = self.predict([(more, size)])
                if after.flops < now.flops:
                    price = (after.bytes_sent - now.bytes_sent) / (now.flops - after.flops)
                    if best is None or price < best[0]:
                        best = price, more
            if best is None:
                return cover
            cover = best[1]


def model_contractions(
    body: Block, groups: Mapping[Value, tuple[int, ...]], classes: Mapping[int, int]
) -> ContractionModel:
    """Return the model of a program; `groups` has those of all values, and `classes` the class of
    each group that an assignment can shard."""
    found = []
    divisors: dict[int, int] = {}
    for op in body.walk():
        if op.spec not in (ops.dot, ops.convolution) or op.results[0] not in groups:
            continue
        tensors = []
        for value in (*op.operands, op.results[0]):
            own = [classes.get(group) for group in groups.get(value, ())]
            tensors.append((frozenset(each for each in own if each is not None), value.type.nbytes))
            for each, size in zip(own, value.type.shape, strict=True):
                if each is not None:
                    divisors[each] = gcd(divisors.get(each, 0), size)
        union = frozenset[int]().union(*(each for each, _ in tensors))
        found.append(_Contraction(tuple(tensors[:-1]), tensors[-1], flops_of(op), union))
    return ContractionModel(tuple(found), divisors)
