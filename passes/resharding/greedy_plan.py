"""State of the greedy reshard planner of OpenXLA Shardy: the remaining axes after each collective.

`leaving` lists for each dimension the axes of the source beyond the common prefix, `coming` those
of the target. Every step updates both lists.

The algorithm is that of `reshard_to_collectives` in OpenXLA Shardy (transforms/export).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd

from shardir.ir.device_groups import merge_axes
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import append_axis, can_coexist, take_disjoint_part
from shardir.passes.resharding.lattice import StepKind


@dataclass(frozen=True, slots=True)
class GreedyCollective:
    """One collective on all dimensions, and the resulting sharding.

    `axes` holds the axes that each dimension gains (`all-slice`, `reduce-scatter`) or loses
    (`all-gather`, `all-to-all`), or those of a reduction (`all-reduce`); `target` is the dimension
    that an `all-to-all` moves them to.
    """

    kind: StepKind
    sharding: Sharding
    axes: tuple[Axes, ...] = ()
    target: int = -1


class GreedyPlan:
    """The plan from one sharding to the other so far."""

    def __init__(
        self, source: Sharding, target: Sharding, shape: Sequence[int], *, reordered: bool = False
    ) -> None:
        self.reordered = reordered
        self.source, self.shape = source, shape
        self.collectives: list[GreedyCollective] = []
        old, new = [list(axes) for axes in source.axes], [list(axes) for axes in target.axes]
        self.leaving = [_refine_axes(axes, _flatten(new)) for axes in old]
        self.coming = [_refine_axes(axes, _flatten(old)) for axes in new]
        self.placed: list[list[Axis]] = [[] for _ in shape]
        self.room = [1] * len(shape)
        for dim in self.dims:
            while self.leaving[dim] and self.coming[dim][:1] == self.leaving[dim][:1]:
                self.placed[dim].append(self.leaving[dim].pop(0))
                self.coming[dim].pop(0)

    @cached_property
    def dims(self) -> range:
        return range(len(self.shape))

    @property
    def is_done(self) -> bool:
        return not any(self.leaving) and not any(self.coming) and not self.reordered

    def target_positions(self) -> dict[Axis, tuple[int, int]]:
        """Return the target dimension and the position in it of each axis that is still to be
        placed."""
        return {axis: (d, i) for d, axes in enumerate(self.coming) for i, axis in enumerate(axes)}

    def in_use(self) -> set[Axis]:
        return set(_flatten(self.leaving))

    def add(self, kind: StepKind, axes: tuple[Axes, ...] = (), target: int = -1) -> None:
        dims = (
            DimSharding(merge_axes((*front, *rest)), open=False)
            for front, rest in zip(self.placed, self.leaving, strict=True)
        )
        sharding = Sharding(
            self.source.mesh,
            tuple(dims),
            unreduced=self.source.unreduced,
            reduction=self.source.reduction,
        )
        self.collectives.append(GreedyCollective(kind, sharding, axes, target))

    # Slices

    def slice(self) -> None:
        """Slice along unused axes, no finer than the target does."""
        for dim in self.dims:
            before, after = count_positions(self.leaving[dim]), count_positions(self.coming[dim])
            self.room[dim] = after // gcd(before, after)
        gained: list[Axes] = [() for _ in self.dims]
        for dim in self.dims:
            for axis in self.axes_for_all_to_all(dim):
                self.leaving[dim].append(axis)
                gained[dim] = append_axis(gained[dim], axis)
        elsewhere: list[Axis] = []
        for dim in self.dims:
            self.slice_to_target(dim, gained, elsewhere)

        def take(axis: Axis, dim: int) -> None:
            gained[dim] = append_axis(gained[dim], axis)

        self.distribute(lambda _: elsewhere, take=take)
        if any(gained):
            self.add(StepKind.ALL_SLICE, tuple(gained))

    def axes_for_all_to_all(self, dim: int) -> list[Axis]:
        """Return axes by which to slice `dim` although they belong to another dimension.

        A following all-to-all moves them there together with others; without them it would need a
        permutation.
        """
        here, homes = self.leaving[dim], self.target_positions()
        if not here or self.coming[dim] or here[-1] not in homes:
            return []
        target, position = homes[here[-1]]
        target_axes, used = self.coming[target], self.in_use()
        ahead = [*target_axes[position + 1 :]]
        if self.leaving[target] or not ahead or ahead[0] in used:
            return []
        shared = 0
        while (
            shared < min(len(here), position + 1)
            and here[-1 - shared] == target_axes[position - shared]
        ):
            shared += 1
        if any(homes.get(axis, (-1, 0))[0] == target for axis in here[: len(here) - shared]):
            return []
        free: list[Axis] = []
        for axis in ahead:
            if axis in used:
                break
            free.append(axis)
        if self.shape[dim] % (count_positions([*self.placed[dim], *here]) * count_positions(free)):
            return []
        self.room[target] //= count_positions(here[len(here) - shared :]) * count_positions(free)
        return free

    def slice_to_target(self, dim: int, gained: list[Axes], elsewhere: list[Axis]) -> None:
        """Slice `dim` along the axes of its target; axes that do not fit are added to
        `elsewhere`."""
        here, target_axes, used = self.leaving[dim], self.coming[dim], self.in_use()
        i = 0
        while i < len(target_axes):
            axis = target_axes[i]
            if axis in used:
                i += 1
                continue
            part, rest = self.take_fitting_part(axis, dim)
            if part is None:
                elsewhere.append(axis)
                i += 1
                continue
            gained[dim] = append_axis(gained[dim], part)
            if i == 0 and not here:
                self.placed[dim].append(part)
                del target_axes[0]
            else:
                here.append(part)
                used.add(part)
                target_axes[i] = part
                i += 1
            if rest is not None:
                target_axes.insert(i, rest)
                elsewhere.append(rest)
                i += 1

    def take_fitting_part(self, axis: Axis, dim: int) -> tuple[Axis | None, Axis | None]:
        """Return the part of an axis that fits into the remaining size of `dim`, which it uses up,
        and the rest."""
        room = self.room[dim]
        if room <= 1 or (axis.size % room and room % axis.size):
            return None, None
        if room >= axis.size:
            self.room[dim] = room // axis.size
            return axis, None
        self.room[dim] = 1
        return (
            Axis(axis.name, axis.pre, room),
            Axis(axis.name, axis.pre * room, axis.size // room),
        )

    def distribute(
        self,
        pool: Callable[[int], list[Axis]],
        take: Callable[[Axis, int], None] = lambda axis, dim: None,
        *,
        front: bool = False,
    ) -> None:
        """Shard each dimension along axes of its pool while they fit, before or behind its existing
        axes."""
        parted: list[Axis] = []
        for dim in self.dims:
            available, i = pool(dim), 0
            at = 0 if front else len(self.leaving[dim])
            while i < len(available):
                part, rest = self.take_fitting_part(available[i], dim)
                if part is None:
                    i += 1
                    continue
                del available[i]
                self.leaving[dim].insert(at, part)
                at += 1
                take(part, dim)
                if rest is not None:
                    parted.append(part)
                    available.insert(0, rest)
        if parted:
            self.coming = [_refine_axes(axes, parted) for axes in self.coming]

    # Permutations

    def permute(self) -> None:
        """Replace or reorder axes without changing the number of shards of each dimension."""
        reordered, self.reordered = self.reordered, False
        if not self.needs_permutation():
            if reordered:
                self.add(StepKind.COLLECTIVE_PERMUTE)
            return
        homes = self.target_positions()
        own: list[list[Axis]] = []
        away: list[Axis] = []
        for dim in self.dims:
            here, target_axes = self.leaving[dim], self.coming[dim]
            pieces = self.room[dim] = count_positions(here)
            while target_axes:
                part, rest = self.take_fitting_part(target_axes[0], dim)
                if part is None:
                    break
                self.placed[dim].append(part)
                target_axes[:1] = [] if rest is None else [rest]
            away.extend(target_axes)
            dropped = [axis for axis in here if axis not in homes]
            own.append(_move_to_end(dropped, pieces // self.room[dim]))
            here.clear()
        self.distribute(lambda _: away)
        self.distribute(lambda dim: own[dim], front=True)
        left = _flatten(own)
        self.distribute(lambda _: left, front=True)
        self.add(StepKind.COLLECTIVE_PERMUTE)

    def needs_permutation(self) -> bool:
        """Return whether a permutation moves some axis to its target, or in front of one that
        leaves earlier."""
        homes, used = self.target_positions(), self.in_use()
        new: Axis | None = None
        old: Axis | None = None
        for dim in self.dims:
            here, target_axes = self.leaving[dim], self.coming[dim]
            if here and target_axes and _is_divisible(here[0], target_axes[0]):
                return True
            new = next((axis for axis in reversed(target_axes) if axis not in used), new)
            last: tuple[int, int] | None = None
            seen: set[int] = set()
            for axis in here:
                home = homes.get(axis)
                if home is not None:
                    follows = last is not None and home == (last[0], last[1] + 1)
                    if (home[0] == dim or home[0] in seen) and not follows:
                        return True
                    seen.add(home[0])
                elif last is not None and not target_axes:
                    return True
                else:
                    old = axis
                last = home
        return new is not None and old is not None and _is_divisible(new, old)

    # Exchanges between dimensions

    def exchange(self, *, in_order: bool) -> None:
        """Move the last axes of a dimension to another by all-to-all.

        If `in_order`, the axes move only to their final positions, otherwise to any position in the
        dimension.
        """
        for dim in self.dims:
            while (movable := self.movable(dim, in_order)) is not None:
                target, count = movable
                moved = self.leaving[dim][-count:]
                del self.leaving[dim][-count:]
                for axis in moved:
                    if not self.leaving[target] and self.coming[target][:1] == [axis]:
                        self.placed[target].append(self.coming[target].pop(0))
                    else:
                        self.leaving[target].append(axis)
                axes = tuple(merge_axes(moved) if d == dim else () for d in self.dims)
                self.add(StepKind.ALL_TO_ALL, axes, target)

    def movable(self, dim: int, in_order: bool) -> tuple[int, int] | None:
        """Return the dimension to which the last axes of `dim` belong, and their number."""
        here, homes = self.leaving[dim], self.target_positions()
        target, count = -1, 0
        for axis in reversed(here):
            home = homes.get(axis, (dim, 0))[0]
            if home == dim or target not in (-1, home):
                break
            target, count = home, count + 1
        if not count or (in_order and here[-count:] != self.coming[target][:count]):
            return None
        return target, count

    # Gathers

    def gather(self) -> None:
        """Gather the last axes of every dimension that the target does not have."""
        homes = self.target_positions()
        lost: list[Axes] = []
        for here in self.leaving:
            keep = max((i + 1 for i, axis in enumerate(here) if axis in homes), default=0)
            lost.append(merge_axes(here[keep:]))
            del here[keep:]
        if any(lost):
            self.add(StepKind.ALL_GATHER, tuple(lost))


def _flatten(axes: Iterable[Sequence[Axis]]) -> list[Axis]:
    return [axis for each in axes for axis in each]


def _is_divisible(a: Axis, b: Axis) -> bool:
    return a.size % b.size == 0 or b.size % a.size == 0


def _refine_axes(axes: Iterable[Axis], others: Iterable[Axis]) -> list[Axis]:
    """Return axes split into the sub-axes of `others`; unsplit if no common refinement exists."""
    order = sorted(others, key=lambda axis: (axis.name, axis.pre))
    parts: list[Axis] = []
    for axis in axes:
        rest: Axis | None = axis
        for other in order:
            if rest is None or not rest.overlaps(other):
                continue
            if not can_coexist(rest, other):
                break
            start, end = max(rest.pre, other.pre), min(rest.next, other.next)
            if before := take_disjoint_part(rest, [other]):
                parts.append(before)
            parts.append(Axis(rest.name, start, end // start))
            rest = Axis(rest.name, end, rest.next // end) if end < rest.next else None
        if rest is not None:
            parts.append(rest)
    return parts


def _move_to_end(axes: list[Axis], pieces: int) -> list[Axis]:
    """Return the axes with those that form the first `pieces` shards moved to the end."""
    rest, front = list(axes), []
    while pieces > 1 and rest:
        size = rest[0].size
        if pieces % size and size % pieces:
            break
        axis = rest.pop(0)
        if size <= pieces:
            front.append(axis)
            pieces //= size
        else:
            front.append(Axis(axis.name, axis.pre, pieces))
            rest.insert(0, Axis(axis.name, axis.pre * pieces, size // pieces))
            pieces = 1
    return [*rest, *front]
