"""Align the shardings of the tensors of one operation.

In a compatible alignment every factor has the same axes in all tensors that contain it, no mesh
axis shards two factors, and factors that cannot be sharded are unsharded. If the given shardings
are incompatible, one of two rules decides (as in OpenXLA Shardy, docs/insert-explicit-reshards
there): of two tensors the larger one is followed; among more, the axes with the most data are taken
one after the other. Axes of a factor that must be unsharded move to a factor that all tensors
contain, if its size permits: an all-to-all is cheaper than a gather.

`BlockShardings` states the shardings that an operation with regions requires.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Attr, OpSpec
from shardir.ir.sharding import REPLICATED_DIM, Axes, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import (
    append_axis,
    find_conflict,
    is_prefix,
    is_strict_prefix,
    take_disjoint_prefix,
    take_dividing_prefix,
)
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule, TensorFactors
from shardir.op_rules.partitioning import default_shardable_factors
from shardir.passes.propagation.factor_projection import ProjectedTensor, project_to_factors

KIND_PRIORITY = {
    FactorKind.PASS: 3,
    FactorKind.REDUCE: 2,
    FactorKind.PERMUTE: 1,
    FactorKind.REPLICATE: 0,
}
"""Priority of the factor kinds in decisions between axes of equal weight."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Shardings of operands and then results, the axes of sharded reduced factors, and the axes of
    each factor."""

    tensors: tuple[Sharding, ...]
    pending: Axes
    factor_axes: tuple[Axes, ...]


@lru_cache(maxsize=1 << 14)
def align(
    rule: FactorRule,
    shardings: tuple[Sharding, ...],
    cuttable: tuple[int, ...],
    uneven: tuple[int, ...] = (),
) -> Alignment:
    """Return compatible shardings that are close to the given ones.

    `shardings` are closed; their unreduced axes are dropped. `cuttable` are the factors that may be
    sharded, `uneven` those of them whose shards may differ in size.
    """
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project_to_factors(m, s, sizes) for m, s in zip(rule.tensors, shardings, strict=True)]
    for view in views:
        for i, factor_sharding in view.factor_shardings.items():
            if i not in uneven or not sizes[i]:
                factor_sharding.axes = (
                    take_dividing_prefix(factor_sharding.axes, sizes[i]) if sizes[i] else ()
                )
    factor_axes = _agreed_axes(rule, views, cuttable)
    if factor_axes is None:
        factor_axes = _resolve_conflict(rule, views, cuttable, uneven)
    tensors = tuple(
        sharding_of_factors(mapping, factor_axes, sharding.mesh)
        for mapping, sharding in zip(rule.tensors, shardings, strict=True)
    )
    pending = tuple(axis for i in rule.of_kind(FactorKind.REDUCE) for axis in factor_axes[i])
    return Alignment(tensors, pending, tuple(factor_axes))


def _agreed_axes(
    rule: FactorRule, views: Sequence[ProjectedTensor], cuttable: tuple[int, ...]
) -> list[Axes] | None:
    """Return the axes of each factor if all tensors agree, else `None`."""
    factor_axes: dict[int, Axes] = {}
    for view in views:
        for factor, factor_sharding in view.factor_shardings.items():
            if (
                factor_sharding.overflow
                or factor_axes.setdefault(factor, factor_sharding.axes) != factor_sharding.axes
            ):
                return None
            if factor_sharding.axes and factor not in cuttable:
                return None
    used = [axis for axes in factor_axes.values() for axis in axes]
    if find_conflict(used):
        return None
    return [factor_axes.get(i, ()) for i in range(len(rule.factors))]


def _resolve_conflict(
    rule: FactorRule,
    views: Sequence[ProjectedTensor],
    cuttable: tuple[int, ...],
    uneven: tuple[int, ...],
) -> list[Axes]:
    """Return the axes of each factor after resolving conflicts, and clear those that are
    impossible."""
    factors = rule.factors
    compound = any(len(dim) > 1 for mapping in rule.tensors for dim in mapping)
    tensors = [i for i, mapping in enumerate(rule.tensors) if any(mapping)]
    if len(tensors) == 2 and not compound and len(cuttable) == len(factors):
        factor_axes = _follow_one(rule, views, tensors)
    else:
        factor_axes = _AxesVote(rule, views, cuttable, uneven).run()
    for i in range(len(factors)):
        if i not in cuttable:
            axes, factor_axes[i] = factor_axes[i], ()
            if all(_contains_factor(rule.tensors[t], i) for t in tensors):
                _move_axes_to_shared_factors(rule, factor_axes, axes, tensors, cuttable)
    while loose := [
        i
        for i, axes in enumerate(factor_axes)
        if axes and not can_shard_factor(rule, factor_axes, i, axes, uneven)
    ]:
        for i in loose:
            factor_axes[i] = ()
    return factor_axes


def _contains_factor(mapping: TensorFactors, factor: int) -> bool:
    return any(factor in dim for dim in mapping)


def _follow_one(
    rule: FactorRule, views: Sequence[ProjectedTensor], tensors: Sequence[int]
) -> list[Axes]:
    """Return the axes of the larger tensor, or of the one with more shards if both have equal
    size."""

    def weight(tensor: int) -> tuple[int, int]:
        return _elements(rule, rule.tensors[tensor]), views[tensor].shard_count

    leader, follower = max(tensors, key=weight), min(tensors, key=weight)
    if leader == follower:
        leader, follower = tensors
    factor_axes: list[Axes] = [()] * len(rule.factors)
    for i, factor_sharding in views[leader].factor_shardings.items():
        factor_axes[i] = factor_sharding.axes
    taken = [axis for axes in factor_axes for axis in axes]
    for i, factor_sharding in views[follower].factor_shardings.items():
        if i not in views[leader].factor_shardings:
            factor_axes[i] = take_disjoint_prefix(factor_sharding.axes, taken)
    return factor_axes


def _elements(rule: FactorRule, mapping: TensorFactors) -> int:
    return prod(rule.factors[i].size for dim in mapping for i in dim)


def _move_axes_to_shared_factors(
    rule: FactorRule,
    factor_axes: list[Axes],
    axes: Axes,
    tensors: Sequence[int],
    cuttable: tuple[int, ...],
) -> None:
    """Shard factors that all tensors contain over axes that have no factor any more."""
    shared = [
        i
        for i, factor in enumerate(rule.factors)
        if factor.kind is FactorKind.PASS
        and i in cuttable
        and all(_contains_factor(rule.tensors[t], i) for t in tensors)
    ]
    for axis in axes:
        for i in shared:
            grown = append_axis(factor_axes[i], axis)
            if can_shard_factor(rule, factor_axes, i, grown):
                factor_axes[i] = grown
                break


def can_shard_factor(
    rule: FactorRule,
    factor_axes: Sequence[Axes],
    factor: int,
    axes: Axes,
    uneven: tuple[int, ...] = (),
) -> bool:
    """Return whether a factor can be sharded along `axes`.

    The axes must divide the factor unless it is one of `uneven`, and every factor that is major to
    it in some dimension must be sharded to single positions. A factor of size 0 cannot be sharded.
    """
    size = rule.factors[factor].size
    if not size or (factor not in uneven and size % count_positions(axes)):
        return False
    for mapping in rule.tensors:
        for dim in mapping:
            if factor in dim:
                major = dim[: dim.index(factor)]
                if any(count_positions(factor_axes[i]) != rule.factors[i].size for i in major):
                    return False
    return True


class _AxesVote:
    """Voting between candidate axes; every tensor votes with its elements for prefixes of its own
    axes."""

    def __init__(
        self,
        rule: FactorRule,
        views: Sequence[ProjectedTensor],
        cuttable: tuple[int, ...],
        uneven: tuple[int, ...],
    ) -> None:
        self.rule = rule
        self.uneven = uneven
        self.views = views
        self.factor_axes: list[Axes] = [()] * len(rule.factors)
        self.weights = [_elements(rule, mapping) for mapping in rule.tensors]
        self.rank = [
            KIND_PRIORITY[factor.kind] if i in cuttable else 0
            for i, factor in enumerate(rule.factors)
        ]
        candidates: dict[tuple[int, Axes], None] = {}
        for view in views:
            for i, factor_sharding in view.factor_shardings.items():
                for n in range(1, len(factor_sharding.axes) + 1):
                    candidates[i, factor_sharding.axes[:n]] = None
        self.candidates = list(candidates)

    def run(self) -> list[Axes]:
        while eligible := [
            c
            for c in self.candidates
            if can_shard_factor(self.rule, self.factor_axes, *c, self.uneven)
        ]:
            factor, axes = max(eligible, key=self.score)
            self.factor_axes[factor] = axes
            self.candidates = self.remaining(factor, axes)
        return self.factor_axes

    def score(self, candidate: tuple[int, Axes]) -> tuple[int, int, int, int, int, Axes]:
        factor, axes = candidate
        votes = sum(
            weight
            for weight, view in zip(self.weights, self.views, strict=True)
            if factor in view.factor_shardings
            and is_prefix(axes, view.factor_shardings[factor].axes)
        )
        gain = count_positions(axes) // max(count_positions(self.factor_axes[factor]), 1)
        return votes, self.rank[factor], gain, factor, len(axes), axes

    def remaining(self, factor: int, axes: Axes) -> list[tuple[int, Axes]]:
        """Return the remaining candidates: longer axes of this factor, and of the others the part
        that does not overlap."""
        left: dict[tuple[int, Axes], None] = {}
        for i, candidate in self.candidates:
            rest = candidate if i == factor else take_disjoint_prefix(candidate, axes)
            if is_strict_prefix(self.factor_axes[i], rest):
                left[i, rest] = None
        return list(left)


def sharding_of_factors(mapping: TensorFactors, factor_axes: Sequence[Axes], mesh: str) -> Sharding:
    """Return the sharding whose dimensions have the axes of their factors."""
    dims = []
    for factors in mapping:
        axes: Axes = ()
        for i in factors:
            for axis in factor_axes[i]:
                axes = append_axis(axes, axis)
        dims.append(DimSharding(axes, open=False))
    return Sharding(mesh, tuple(dims))


def partitioning_rule(op: Op) -> FactorRule | None:
    """Return the factor rule of an operation for partitioning."""
    if op.spec.partition is None or op.spec.partition.factors is None:
        return op.factors()
    operands = tuple(value.type for value in op.operands)
    results = tuple(value.type for value in op.results)
    return _declared_rule(op.spec, operands, results, tuple(op.attrs.items()))


@lru_cache(maxsize=1 << 12)
def _declared_rule(
    spec: OpSpec,
    operands: tuple[TensorType, ...],
    results: tuple[TensorType, ...],
    attrs: tuple[tuple[str, Attr], ...],
) -> FactorRule | None:
    assert spec.partition is not None
    assert spec.partition.factors is not None
    result = results[0] if len(results) == 1 else results
    return spec.partition.factors(*operands, result=result, **spec.rule_arguments(dict(attrs)))


def shardable_factors(op: Op, rule: FactorRule) -> tuple[int, ...]:
    """Return the factors along which an operation can be sharded."""
    declared = op.spec.partition
    if declared is None or declared.shardable is None:
        return default_shardable_factors(rule)
    types = [value.type for value in op.operands]
    results = tuple(value.type for value in op.results)
    result = results[0] if len(results) == 1 else results
    return tuple(declared.shardable(rule, *types, result=result, **op.rule_arguments))


def pending_reduction(op: Op, rule: FactorRule) -> str | None:
    """Return how results that are unreduced over sharded factors combine; `None` if none are
    unreduced."""
    declared = op.spec.partition
    if declared is not None and declared.reduction is not None:
        return declared.reduction(**op.rule_arguments)
    # The maximum of Boolean values is `any`.
    return {"or": "max", "and": "min"}.get(rule.reduction or "", rule.reduction)


class BlockShardings:
    """Required shardings of each operand, parameter, yielded value and result of `op`,
    an operation with regions.

    All values that an edge ties together (the operand, the parameter, the yielded value and the
    result of a loop carry) have one sharding, that of the edge's owner. The arrays that a scan
    slices or stacks have one more leading dimension, which is unsharded: each step needs its slice
    on all devices.

    `settled` returns the final sharding of a value, `whole` the unsharded sharding of a value,
    which applies to values outside of edges (loop conditions and branch indices).
    """

    def __init__(
        self,
        op: Op,
        settled: Callable[[Value], Sharding],
        whole: Callable[[Value], Sharding],
    ) -> None:
        # Edges name values, and one value may enter an operation in several positions. A distinct
        # copy for each position keeps the positions distinguishable.
        operands = tuple(replace(value) for value in op.operands)
        blocks = tuple(Block(b.params, (), tuple(map(replace, b.returns))) for b in op.blocks)
        places = replace(op, operands=operands, blocks=blocks)
        needs: dict[Value, Sharding] = {}
        for edge in places.edges():
            owner = edge.targets[0]
            reduced = replace(settled(owner), unreduced=(), reduction="add")
            if owner in edge.stacked:
                reduced = replace(reduced, dims=reduced.dims[1:])
            for value in (*edge.sources, *edge.targets):
                stacked = value in edge.stacked
                needs[value] = (
                    replace(reduced, dims=(REPLICATED_DIM, *reduced.dims)) if stacked else reduced
                )

        def required_sharding(value: Value) -> Sharding:
            return needs.get(value) or whole(value)

        self.operands = tuple(map(required_sharding, operands))
        self.params = {p: required_sharding(p) for b in blocks for p in b.params}
        self.returns = tuple(tuple(map(required_sharding, b.returns)) for b in blocks)
        self.results = tuple(map(required_sharding, op.results))
