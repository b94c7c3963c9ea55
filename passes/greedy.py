"""Resharding as OpenXLA Shardy plans it: a fixed order of collectives, no search.

Both shardings are seen as what they do not share: `leaving` lists, for each dimension, the cuts
that the tensor has beyond the common prefix, `coming` those that it shall have. At most twice,
the plan tries in this order to slice along axes that are nowhere yet, to exchange axes by one
permutation, to move axes between dimensions, and to gather what is left. Every step keeps the two
lists true, and the plan is complete when both are empty. Sums that are due come first, and take a
slice that follows with them if it is along all their axes.

The algorithm is that of `reshard_to_collectives` in OpenXLA Shardy (transforms/export there). Use
it to compare; `shardir.passes.planner` finds plans that receive fewer bytes.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.groups import merge
from shardir.passes.greedy_plan import Collective as Collective, Plan
from shardir.placement import Axes, Dim, Sharding

ROUNDS = 2
"""On meshes whose sizes are powers of two one round is enough; two are enough on every other."""


def greedy_collectives(
    source: Sharding, target: Sharding, shape: Sequence[int], *, reordered: bool = False
) -> tuple[Collective, ...]:
    """Collectives from `source` to `target`, two closed shardings of a tensor of shape `shape`.

    Sums that are pending in `target` are pending in `source`. `reordered` tells whether the meshes
    of both have their devices in another order, so that a permutation is needed in any case.
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
    """The sum over the axes that are due, together with a slice that follows if that takes all."""
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
