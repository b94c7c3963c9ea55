"""Plan resharding as OpenXLA Shardy does: a fixed order of collectives, without a search.

Both shardings are represented without the axes that they share: `leaving` lists the axes of each
dimension of the source beyond the common prefix, `coming` those of the target. At most twice, the
plan tries in this order to slice along unused axes, to permute devices, to move axes between
dimensions (all-to-all), and to gather the remaining axes. Every step updates both lists, and the
plan is complete when both are empty. Pending reductions come first, and absorb a following slice
that covers all their axes (reduce-scatter).

The algorithm is that of `reshard_to_collectives` in OpenXLA Shardy (transforms/export). It serves
comparison; `shardir.passes.resharding.planner` finds plans that receive fewer bytes.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir.device_groups import merge_axes
from shardir.ir.sharding import Axes, DimSharding, Sharding
from shardir.passes.resharding.greedy_plan import GreedyCollective as GreedyCollective, GreedyPlan
from shardir.passes.resharding.lattice import StepKind

MAX_ROUNDS = 2
"""Number of rounds. One is enough on meshes whose sizes are powers of two, two on all others."""


def greedy_collectives(
    source: Sharding, target: Sharding, shape: Sequence[int], *, reordered: bool = False
) -> tuple[GreedyCollective, ...]:
    """Return the collectives from `source` to `target`, closed shardings of a tensor of `shape`.

    Reductions that are unreduced in `target` are unreduced in `source`. `reordered` states that the
    meshes of both have a different device order, so that a permutation is needed in any case.
    """
    same = source.reduction == target.reduction
    still_unreduced = tuple(a for a in source.unreduced if same and a in target.unreduced)
    due = tuple(a for a in source.unreduced if a not in still_unreduced)
    reduced = replace(
        source, unreduced=still_unreduced, reduction=source.reduction if still_unreduced else "add"
    )
    plan = GreedyPlan(reduced, target, shape, reordered=reordered)
    for _ in range(MAX_ROUNDS):
        if plan.is_done:
            break
        plan.slice()
        plan.permute()
        plan.exchange(in_order=True)
        plan.exchange(in_order=False)
        plan.gather()
    return (
        (*_reduce_first(reduced, due, plan.collectives[:1]), *plan.collectives[1:])
        if due
        else tuple(plan.collectives)
    )


def _reduce_first(
    reduced: Sharding, due: Axes, following: Sequence[GreedyCollective]
) -> tuple[GreedyCollective, ...]:
    """Return the reduction over the `due` axes, combined with a following slice if that slices
    along all of these axes."""
    left = list(due)
    scattered: list[Axes] = []
    for axes in following[0].axes if following and following[0].kind is StepKind.ALL_SLICE else ():
        count = 0
        while count < len(axes) and axes[count] in left:
            left.remove(axes[count])
            count += 1
        scattered.append(axes[:count])
    if left:
        return (GreedyCollective(StepKind.ALL_REDUCE, reduced, (due,)), *following)
    (slice_,) = following
    dims = (
        DimSharding(merge_axes((*dim.axes, *axes)), open=False)
        for dim, axes in zip(reduced.dims, scattered, strict=True)
    )
    first = GreedyCollective(
        StepKind.REDUCE_SCATTER, replace(reduced, dims=tuple(dims)), tuple(scattered)
    )
    rest = tuple(axes[len(n) :] for axes, n in zip(slice_.axes, scattered, strict=True))
    return (first, replace(slice_, axes=rest)) if any(rest) else (first,)
