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

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import NamedTuple

from shardir.axes import append, clear_of, common_prefix, is_prefix, is_strict_prefix, truncate
from shardir.factors import FactorRule, Kind, TensorFactors
from shardir.passes.align import RANK, Alignment
from shardir.passes.propagation.projection import View, project, unproject
from shardir.placement import Axes, Axis, Sharding, size_of

Cuts = list[Axes]


@lru_cache(maxsize=1 << 14)
def align_exactly(
    rule: FactorRule, shardings: tuple[Sharding, ...], elements: tuple[int, ...], reshapes: bool
) -> Alignment:
    """Return compatible shardings.

    `shardings` are closed and have no unreduced axes; `elements` is the number of elements of each
    tensor. `reshapes` states whether the operation is a reshape.
    """
    sizes = tuple(factor.size for factor in rule.factors)
    views = [project(m, s, sizes) for m, s in zip(rule.tensors, shardings, strict=True)]
    tensors = [i for i, mapping in enumerate(rule.tensors) if mapping]
    cuts: Cuts | None
    if reshapes and any(cut.overflow for view in views for cut in view.cuts.values()):
        cuts = _handed_out_anew(rule, views, sizes)
    else:
        cuts = _agreed(rule, views)
    if cuts is None:
        compound = any(len(dim) > 1 for mapping in rule.tensors for dim in mapping)
        if len(tensors) == 2 and not compound and not rule.of_kind(Kind.REPLICATE):
            cuts = _follow_one(rule, views, tensors, elements)
        else:
            cuts = _vote(rule, views, elements)
            _clear(rule, cuts, tensors)
    for view in views:
        for i, cut in view.cuts.items():
            cut.axes, cut.overflow, cut.open = cuts[i], (), False
    aligned = tuple(
        unproject(view, sizes, sharding.mesh).close()
        for view, sharding in zip(views, shardings, strict=True)
    )
    pending = tuple(axis for i in rule.of_kind(Kind.REDUCE) for axis in cuts[i])
    return Alignment(aligned, pending, tuple(cuts))


def _agreed(rule: FactorRule, views: Sequence[View]) -> Cuts | None:
    """Return the axes of each factor if all tensors agree, else `None`."""
    cuts: dict[int, Axes] = {}
    for view in views:
        for factor, cut in view.cuts.items():
            if cuts.setdefault(factor, cut.axes) != cut.axes:
                return None
    if any(cuts.get(i) for i in rule.of_kind(Kind.REPLICATE)):
        return None
    used = [axis for axes in cuts.values() for axis in axes]
    if any(a.overlaps(b) for i, a in enumerate(used) for b in used[:i]):
        return None
    return [cuts.get(i, ()) for i in range(len(rule.factors))]


def _follow_one(
    rule: FactorRule, views: Sequence[View], tensors: Sequence[int], elements: Sequence[int]
) -> Cuts:
    """Return the axes of the preferred one of two tensors, extended by the other."""

    def preference(tensor: int) -> tuple[bool, int, int]:
        cuts = views[tensor].cuts
        exchanges = any(i in cuts and cuts[i].axes for i in rule.of_kind(Kind.PERMUTE))
        return not exchanges, elements[tensor], views[tensor].pieces

    leader, follower = tensors
    if preference(leader) < preference(follower):
        leader, follower = follower, leader
    cuts: Cuts = [()] * len(rule.factors)
    for i, cut in views[leader].cuts.items():
        cuts[i] = cut.axes
    taken = [axis for axes in cuts for axis in axes]
    for i, cut in views[follower].cuts.items():
        if i not in views[leader].cuts:
            cuts[i] = _beside(cut.axes, tuple(taken))
    return cuts


def _vote(rule: FactorRule, views: Sequence[View], elements: Sequence[int]) -> Cuts:
    """Return the axes chosen one after the other by the amount of data that has them."""
    cuts: Cuts = [()] * len(rule.factors)
    votes: dict[tuple[int, Axes], int] = {}
    for view in views:
        for i, cut in view.cuts.items():
            for n in range(1, len(cut.axes) + 1):
                votes[i, cut.axes[:n]] = 0
    for weight, view in zip(elements, views, strict=True):
        for i, axes in votes:
            if i in view.cuts and is_prefix(axes, view.cuts[i].axes):
                votes[i, axes] += weight
    candidates = [_Candidate(count, RANK[rule.factors[i].kind], size_of(axes), i, axes)
                  for (i, axes), count in votes.items()]  # fmt: skip
    waiting = _waiting(rule)
    while ready := [each for each in candidates if not waiting[each.factor]]:
        best = max(ready, key=lambda each: (*each[:4], len(each.axes), each.axes))
        cuts[best.factor] = best.axes
        if size_of(best.axes) == rule.factors[best.factor].size:
            for others in waiting:
                others.discard(best.factor)
        candidates = [left for each in candidates if (left := _left(each, best, cuts))]
    return cuts


class _Candidate(NamedTuple):
    """Axes that a factor may be sharded over; the first three fields decide in this order.

    A shortened candidate keeps its votes.
    """

    votes: int
    rank: int
    gain: int
    factor: int
    axes: Axes


def _left(candidate: _Candidate, best: _Candidate, cuts: Cuts) -> _Candidate | None:
    """Return the remaining candidate after `best` was taken, else `None`."""
    axes, before = candidate.axes, cuts[candidate.factor]
    if candidate.factor == best.factor:
        longer = is_strict_prefix(best.axes, axes)
        return candidate._replace(gain=size_of(axes) // size_of(before)) if longer else None
    axes = _beside(candidate.axes, best.axes)
    if axes == candidate.axes:
        return candidate._replace(gain=size_of(axes))
    return None if axes == before else candidate._replace(
        axes=axes, gain=size_of(axes) // size_of(before))  # fmt: skip


def _beside(axes: Axes, others: Axes) -> Axes:
    """Return the longest prefix that overlaps none of `others`."""
    return truncate(axes, lambda axis, _: clear_of(axis, others))


def _waiting(rule: FactorRule) -> list[set[int]]:
    """Return the factors that must be fully sharded before each factor can be."""
    waiting: list[set[int]] = [set() for _ in rule.factors]
    for mapping in rule.tensors:
        for dim in mapping:
            for major, minor in pairwise(dim):
                waiting[minor].add(major)
    return waiting


def _clear(rule: FactorRule, cuts: Cuts, tensors: Sequence[int]) -> None:
    """Unshard the factors that must be; their axes move to factors that all tensors contain."""

    def is_in_all(factor: int) -> bool:
        return all(any(factor in dim for dim in rule.tensors[t]) for t in tensors)

    targets = [i for i in rule.of_kind(Kind.PASS) if is_in_all(i)]
    for factor in rule.of_kind(Kind.REPLICATE):
        axes, cuts[factor] = list(cuts[factor]), ()
        if is_in_all(factor):
            for target in targets:
                _fill(rule.factors[target].size, cuts, target, axes)


def _fill(size: int, cuts: Cuts, target: int, axes: list[Axis]) -> None:
    """Move leading axes that divide a factor from `axes` to it."""
    if size % size_of(cuts[target]):
        return
    while size and axes and not size // size_of(cuts[target]) % axes[0].size:
        cuts[target] = append(cuts[target], axes.pop(0))


def _handed_out_anew(rule: FactorRule, views: Sequence[View], sizes: tuple[int, ...]) -> Cuts:
    """Return the axes of a reshape that both its sides can have, from the side with more shards."""
    source, target = views
    side = source if source.pieces >= target.pieces else target
    cut = [side.cuts[i] for i in sorted(side.cuts)]
    axes = [axis for each in cut for axis in (*each.axes, *each.overflow)]
    first, second = (_redistributed(view, rule.tensors[t], axes, sizes)
                     for t, view in enumerate(views))  # fmt: skip
    cuts: Cuts = []
    for i in range(len(sizes)):
        both = [view.cuts[i].axes for view in (first, second) if i in view.cuts]
        cuts.append(common_prefix(*both) if len(both) == 2 else both[0] if both else ())
    return cuts


def _redistributed(
    view: View, mapping: TensorFactors, axes: Sequence[Axis], sizes: tuple[int, ...]
) -> View:
    """Return the tensor with `axes` distributed to its factors: each to the first that can take a
    part."""
    order = [i for dim in mapping for i in dim if i in view.cuts]
    room = {i: sizes[i] for i in order}
    new: dict[int, Axes] = dict.fromkeys(order, ())
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
            new[i] = append(new[i], Axis(axis.name, axis.pre, part))
            room[i] //= part
            if part == axis.size:
                del waiting[0]
                break
            waiting[0] = Axis(axis.name, axis.pre * part, axis.size // part)
    for i, taken in new.items():
        view.cuts[i].axes, view.cuts[i].overflow = taken, ()
    if order:
        for axis in waiting:
            view.cuts[order[-1]].overflow = append(view.cuts[order[-1]].overflow, axis)
    assert view.sharding is not None
    return project(mapping, unproject(view, sizes, view.sharding.mesh), sizes)
