"""Align the shardings of the tensors of one operation exactly as OpenXLA Shardy does.

This solves the same problem as `shardir.passes.resharding.align` with the decisions of Shardy's
pass `insert-explicit-reshards`: whether an operation can run sharded along a factor, and whether
the shards are even, is left to a later pass. One of four rules decides:

- The tensors agree already.
- A reshape with a dimension whose axes share no divisor with its factors: the axes of the side with
  more shards are redistributed.
- Of two tensors without factors that must be unsharded, one is followed: one without sharded
  permutation factors, then the larger one, then the one with more shards.
- Otherwise tensors vote with their elements; axes of a factor that must be unsharded move to
  factors that all tensors contain.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from shardir.ir.sharding import Axes, Axis, Sharding, count_positions
from shardir.ir.sub_axes import (
    append_axis,
    find_common_prefix,
    find_conflict,
    is_prefix,
    is_strict_prefix,
    take_disjoint_prefix,
)
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.passes.propagation.factor_projection import (
    FactorSharding,
    ProjectedTensor,
    project_to_dims,
    project_to_factors,
)
from shardir.passes.resharding.align import KIND_PRIORITY, Alignment

FactorAxes = list[Axes]


@lru_cache(maxsize=1 << 14)
def align_as_shardy(
    rule: FactorRule, shardings: tuple[Sharding, ...], elements: tuple[int, ...], reshapes: bool
) -> Alignment:
    """Return compatible shardings.

    `shardings` are closed and have no unreduced axes; `elements` is the number of elements of each
    tensor. `reshapes` states whether the operation is a reshape.
    """
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project_to_factors(m, s, sizes) for m, s in zip(rule.tensors, shardings, strict=True)]
    tensors = [i for i, mapping in enumerate(rule.tensors) if mapping]
    factor_axes: FactorAxes | None
    if reshapes and any(
        factor_sharding.overflow
        for view in views
        for factor_sharding in view.factor_shardings.values()
    ):
        factor_axes = _redistribute_reshape_axes(rule, views, sizes)
    else:
        factor_axes = _agreed_axes(rule, views)
    if factor_axes is None:
        compound = any(len(dim) > 1 for mapping in rule.tensors for dim in mapping)
        if len(tensors) == 2 and not compound and not rule.of_kind(FactorKind.REPLICATE):
            factor_axes = _follow_one(rule, views, tensors, elements)
        else:
            factor_axes = _vote_for_axes(rule, views, elements)
            _unshard_replicated_factors(rule, factor_axes, tensors)
    aligned = tuple(
        project_to_dims(_shard_tensor(view, factor_axes, {}), sizes, sharding.mesh).close()
        for view, sharding in zip(views, shardings, strict=True)
    )
    pending = tuple(axis for i in rule.of_kind(FactorKind.REDUCE) for axis in factor_axes[i])
    return Alignment(aligned, pending, tuple(factor_axes))


def _shard_tensor(
    view: ProjectedTensor, axes: Sequence[Axes], overflow: Mapping[int, Axes]
) -> ProjectedTensor:
    """Return the tensor with these axes of its factors, also of those that a projection omits, as
    they follow a factor that axes overflow."""
    factor_shardings = {
        i: FactorSharding(axes[i], overflow.get(i, ()), open=False, last=False)
        for dim in view.mapping
        for i in dim
    }
    return ProjectedTensor(factor_shardings, view.sharding, view.mapping)


def _agreed_axes(rule: FactorRule, views: Sequence[ProjectedTensor]) -> FactorAxes | None:
    """Return the axes of each factor if all tensors agree, else `None`."""
    factor_axes: dict[int, Axes] = {}
    for view in views:
        for factor, factor_sharding in view.factor_shardings.items():
            if factor_axes.setdefault(factor, factor_sharding.axes) != factor_sharding.axes:
                return None
    if any(factor_axes.get(i) for i in rule.of_kind(FactorKind.REPLICATE)):
        return None
    used = [axis for axes in factor_axes.values() for axis in axes]
    if find_conflict(used):
        return None
    return [factor_axes.get(i, ()) for i in range(len(rule.factors))]


def _follow_one(
    rule: FactorRule,
    views: Sequence[ProjectedTensor],
    tensors: Sequence[int],
    elements: Sequence[int],
) -> FactorAxes:
    """Return the axes of the preferred one of two tensors, extended by the other."""

    def preference(tensor: int) -> tuple[bool, int, int]:
        factor_axes = views[tensor].factor_shardings
        exchanges = any(
            i in factor_axes and factor_axes[i].axes for i in rule.of_kind(FactorKind.PERMUTE)
        )
        return not exchanges, elements[tensor], views[tensor].shard_count

    leader, follower = tensors
    if preference(leader) < preference(follower):
        leader, follower = follower, leader
    factor_axes: FactorAxes = [()] * len(rule.factors)
    for i, factor_sharding in views[leader].factor_shardings.items():
        factor_axes[i] = factor_sharding.axes
    taken = [axis for axes in factor_axes for axis in axes]
    for i, factor_sharding in views[follower].factor_shardings.items():
        if i not in views[leader].factor_shardings:
            factor_axes[i] = take_disjoint_prefix(factor_sharding.axes, tuple(taken))
    return factor_axes


def _vote_for_axes(
    rule: FactorRule, views: Sequence[ProjectedTensor], elements: Sequence[int]
) -> FactorAxes:
    """Return the axes chosen one after the other by the amount of data that has them."""
    factor_axes: FactorAxes = [()] * len(rule.factors)
    votes: dict[tuple[int, Axes], int] = {}
    for view in views:
        for i, factor_sharding in view.factor_shardings.items():
            for n in range(1, len(factor_sharding.axes) + 1):
                votes[i, factor_sharding.axes[:n]] = 0
    for weight, view in zip(elements, views, strict=True):
        for i, axes in votes:
            if i in view.factor_shardings and is_prefix(axes, view.factor_shardings[i].axes):
                votes[i, axes] += weight
    candidates = [
        _AxesCandidate(count, KIND_PRIORITY[rule.factors[i].kind], count_positions(axes), i, axes)
        for (i, axes), count in votes.items()
    ]
    waiting = _major_factors(rule)
    while ready := [each for each in candidates if not waiting[each.factor]]:
        best = max(ready, key=lambda each: (*each[:4], len(each.axes), each.axes))
        factor_axes[best.factor] = best.axes
        if count_positions(best.axes) == rule.factors[best.factor].size:
            for others in waiting:
                others.discard(best.factor)
        candidates = [
            left for each in candidates if (left := _remaining_candidate(each, best, factor_axes))
        ]
    return factor_axes


class _AxesCandidate(NamedTuple):
    """Axes that a factor may be sharded over; the first three fields decide in this order.

    A shortened candidate keeps its votes.
    """

    votes: int
    rank: int
    gain: int
    factor: int
    axes: Axes


def _remaining_candidate(
    candidate: _AxesCandidate, best: _AxesCandidate, factor_axes: FactorAxes
) -> _AxesCandidate | None:
    """Return the remaining candidate after `best` was taken, else `None`."""
    axes, before = candidate.axes, factor_axes[candidate.factor]
    if candidate.factor == best.factor:
        longer = is_strict_prefix(best.axes, axes)
        return (
            candidate._replace(gain=count_positions(axes) // count_positions(before))
            if longer
            else None
        )
    axes = take_disjoint_prefix(candidate.axes, best.axes)
    if axes == candidate.axes:
        return candidate._replace(gain=count_positions(axes))
    return None if axes == before else candidate._replace(
        axes=axes, gain=count_positions(axes) // count_positions(before))  # fmt: skip


def _major_factors(rule: FactorRule) -> list[set[int]]:
    """Return the factors that must be fully sharded before each factor can be."""
    waiting: list[set[int]] = [set() for _ in rule.factors]
    for mapping in rule.tensors:
        for dim in mapping:
            for major, minor in pairwise(dim):
                waiting[minor].add(major)
    return waiting


def _unshard_replicated_factors(
    rule: FactorRule, factor_axes: FactorAxes, tensors: Sequence[int]
) -> None:
    """Unshard the factors that must be; their axes move to factors that all tensors contain."""

    def is_in_all(factor: int) -> bool:
        return all(any(factor in dim for dim in rule.tensors[t]) for t in tensors)

    targets = [i for i in rule.of_kind(FactorKind.PASS) if is_in_all(i)]
    for factor in rule.of_kind(FactorKind.REPLICATE):
        axes, factor_axes[factor] = list(factor_axes[factor]), ()
        if is_in_all(factor):
            for target in targets:
                _move_dividing_axes(rule.factors[target].size, factor_axes, target, axes)


def _move_dividing_axes(size: int, factor_axes: FactorAxes, target: int, axes: list[Axis]) -> None:
    """Move leading axes that divide a factor from `axes` to it."""
    if size % count_positions(factor_axes[target]):
        return
    while size and axes and not size // count_positions(factor_axes[target]) % axes[0].size:
        factor_axes[target] = append_axis(factor_axes[target], axes.pop(0))


def _redistribute_reshape_axes(
    rule: FactorRule, views: Sequence[ProjectedTensor], sizes: tuple[int, ...]
) -> FactorAxes:
    """Return the axes of a reshape that both its sides can have, from the side with more shards."""
    source, target = views
    side = source if source.shard_count >= target.shard_count else target
    factor_shardings = [side.factor_shardings[i] for i in sorted(side.factor_shardings)]
    axes = [axis for each in factor_shardings for axis in (*each.axes, *each.overflow)]
    first, second = (_redistribute_axes(view, axes, sizes) for view in views)
    factor_axes: FactorAxes = []
    for i in range(len(sizes)):
        both = [
            view.factor_shardings[i].axes for view in (first, second) if i in view.factor_shardings
        ]
        factor_axes.append(find_common_prefix(*both) if len(both) == 2 else both[0] if both else ())
    return factor_axes


def _redistribute_axes(
    view: ProjectedTensor, axes: Sequence[Axis], sizes: tuple[int, ...]
) -> ProjectedTensor:
    """Return the tensor with `axes` distributed to its factors: each to the first that can take a
    part."""
    order = [i for dim in view.mapping for i in dim if i in view.factor_shardings]
    room = {i: sizes[i] for i in order}
    new: FactorAxes = [()] * len(sizes)
    waiting = list(axes)
    used = True
    while waiting and used:
        used = False
        for i in order:
            axis = waiting[0]
            part = gcd(room[i], axis.size)
            if room[i] <= 1 or part == 1:
                continue
            used = True
            new[i] = append_axis(new[i], Axis(axis.name, axis.pre, part))
            room[i] //= part
            if part == axis.size:
                del waiting[0]
                break
            waiting[0] = Axis(axis.name, axis.pre * part, axis.size // part)
    overflow: Axes = ()
    for axis in waiting:
        overflow = append_axis(overflow, axis)
    tensor = _shard_tensor(view, new, dict.fromkeys(order[-1:], overflow))
    assert view.sharding is not None
    placed = project_to_dims(tensor, sizes, view.sharding.mesh)
    return project_to_factors(view.mapping, placed, sizes)
