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

from shardir.groups import merge
from shardir.passes.greedy_plan import Collective as Collective, Plan
from shardir.placement import Axes, Dim, Sharding

ROUNDS = 2
"""Number of rounds. One is enough on meshes whose sizes are powers of two, two on all others."""


def greedy_collectives(
    source: Sharding, target: Sharding, shape: Sequence[int], *, reordered: bool = False
) -> tuple[Collective, ...]:
    """Return the collectives from `source` to `target`, closed shardings of a tensor of `shape`.

    Reductions that are unreduced in `target` are unreduced in `source`. `reordered` states that the
    meshes of both have a different device order, so that a permutation is needed in any case.
    """
    same = source.reduction == target.reduction
    kept = tuple(a for a in source.unreduced if same and a in target.unreduced)
    due = tuple(a for a in source.unreduced if a not in kept)
    reduced = replace(source, unreduced=kept, reduction=source.reduction if kept else "add")
    plan = Plan(reduced, target, shape, reordered=reordered)
    for _ in range(ROUNDS):
        if plan.done:
            break
        plan.slice()
        plan.permute()
        plan.exchange(in_order=True)
        plan.exchange(in_order=False)
        plan.gather()
    return (*_summed(reduced, due, plan.made[:1]), *plan.made[1:]) if due else tuple(plan.made)


def _summed(
    reduced: Sharding, due: Axes, following: Sequence[Collective]
) -> tuple[Collective, ...]:
    """Return the reduction over the `due` axes, combined with a following slice if that slices
    along all of these axes."""
    left = list(due)
    scattered: list[Axes] = []
    for axes in following[0].axes if following and following[0].name == "all-slice" else ():
        count = 0
        while count < len(axes) and axes[count] in left:
            left.remove(axes[count])
            count += 1
        scattered.append(axes[:count])
    if left or not scattered:
        return (Collective("all-reduce", reduced, (due,)), *following)
    (slice_,) = following
    dims = (
        Dim(merge((*dim.axes, *axes)), open=False)
        for dim, axes in zip(reduced.dims, scattered, strict=True)
    )
    first = Collective("reduce-scatter", replace(reduced, dims=tuple(dims)), tuple(scattered))
    rest = tuple(axes[len(n) :] for axes, n in zip(slice_.axes, scattered, strict=True))
    return (first, replace(slice_, axes=rest)) if any(rest) else (first,)
