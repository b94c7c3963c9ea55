"""Transitions from one sharding of a tensor to others, and their costs.

A transition is one collective, or a local slice. With few sub-axes all transitions are tried, with
more only those towards the goal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardir.cost.collective_bytes import bytes_sent
from shardir.passes.resharding.lattice import DimSubAxes, LatticeState, ReshardProblem, StepKind

MoveCost = tuple[int, int, int]
"""Bytes received per device, collectives, local steps."""


@dataclass(frozen=True, slots=True)
class LatticeMove:
    """One transition; `dim` loses or gains `sub_axes`, and `other` is the dimension that receives
    them."""

    kind: StepKind
    after: LatticeState
    cost: MoveCost
    sub_axes: tuple[int, ...] = ()
    dim: int = -1
    other: int = -1


def transitions_from(problem: ReshardProblem, state: LatticeState) -> Iterator[LatticeMove]:
    """Yield every transition from a state that may be useful."""
    dim_sub_axes, pending = state
    local_bytes = problem.local_bytes(dim_sub_axes)
    used = {a for sub_axes in dim_sub_axes for a in sub_axes}
    dims = range(len(dim_sub_axes))
    for a in problem.goal_sub_axes:
        if a not in used and a not in pending:
            for dim in dims if problem.is_full_search else (problem.goal_dim[a],):
                if problem.can_shard(dim_sub_axes, dim, (a,)):
                    after = with_dim_sub_axes(dim_sub_axes, dim, (*dim_sub_axes[dim], a))
                    yield LatticeMove(StepKind.ALL_SLICE, (after, pending), (0, 0, 1), (a,), dim)
    for dim, sub_axes in _combined_slices(problem, dim_sub_axes):
        if not any(a in used or a in pending for a in sub_axes):
            after = with_dim_sub_axes(dim_sub_axes, dim, sub_axes)
            yield LatticeMove(StepKind.ALL_SLICE, (after, pending), (0, 0, 1), sub_axes, dim)
    for dim in dims:
        for at in range(len(dim_sub_axes[dim])):
            remaining, moved = dim_sub_axes[dim][:at], dim_sub_axes[dim][at:]
            pieces = problem.shard_count(moved)
            less = with_dim_sub_axes(dim_sub_axes, dim, remaining)
            if not problem.can_shard(less, dim, moved):
                continue
            yield LatticeMove(
                StepKind.ALL_GATHER, (less, pending), (local_bytes * (pieces - 1), 1, 0), moved, dim
            )
            for other in dims:
                towards = problem.is_full_search or problem.goal_dim.get(moved[0]) == other
                if other != dim and towards and problem.can_shard(dim_sub_axes, other, moved):
                    after = with_dim_sub_axes(less, other, (*dim_sub_axes[other], *moved))
                    cost = (
                        problem.distributed_bytes(dim_sub_axes, other, moved) * (pieces - 1),
                        1,
                        0,
                    )
                    yield LatticeMove(
                        StepKind.ALL_TO_ALL, (after, pending), cost, moved, dim, other
                    )
    for after in _permuted_states(problem, dim_sub_axes, pending):
        yield LatticeMove(StepKind.COLLECTIVE_PERMUTE, (after, pending), (local_bytes, 1, 0))
    yield from _reductions(problem, state, local_bytes)


def _reductions(
    problem: ReshardProblem, state: LatticeState, local_bytes: int
) -> Iterator[LatticeMove]:
    dim_sub_axes, pending = state
    due = tuple(sorted(pending - problem.goal[1]))
    if due:
        after = dim_sub_axes, problem.goal[1]
        nbytes = bytes_sent(StepKind.ALL_REDUCE.value, local_bytes, problem.shard_count(due))
        yield LatticeMove(StepKind.ALL_REDUCE, after, (nbytes, 1, 0), due)
    for a in due:
        for dim in range(len(dim_sub_axes)):
            if a in problem.goal_sub_axes and problem.can_shard(dim_sub_axes, dim, (a,)):
                after = with_dim_sub_axes(dim_sub_axes, dim, (*dim_sub_axes[dim], a)), pending - {a}
                cost = (
                    problem.distributed_bytes(dim_sub_axes, dim, (a,)) * (problem.sizes[a] - 1),
                    1,
                    0,
                )
                yield LatticeMove(StepKind.REDUCE_SCATTER, after, cost, (a,), dim)
    for dim, sub_axes in _combined_slices(problem, dim_sub_axes):
        if all(a in due for a in sub_axes):
            after = with_dim_sub_axes(dim_sub_axes, dim, sub_axes), pending - set(sub_axes)
            cost = (
                problem.distributed_bytes(dim_sub_axes, dim, sub_axes)
                * (problem.shard_count(sub_axes) - 1),
                1,
                0,
            )
            yield LatticeMove(StepKind.REDUCE_SCATTER, after, cost, sub_axes, dim)


def _combined_slices(
    problem: ReshardProblem, dim_sub_axes: DimSubAxes
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield unsharded dimensions that must be sharded by several sub-axes in one step, and the
    sub-axes."""
    for dim, sub_axes in enumerate(problem.goal[0]):
        if problem.uneven[dim] and len(sub_axes) > 1 and not dim_sub_axes[dim]:
            yield dim, sub_axes


def _permuted_states(
    problem: ReshardProblem, dim_sub_axes: DimSubAxes, pending: frozenset[int]
) -> Iterator[DimSubAxes]:
    """Yield the states with the same number of shards in each dimension by other or reordered
    sub-axes."""
    used = tuple(a for sub_axes in dim_sub_axes for a in sub_axes)
    pool = [a for a in dict.fromkeys((*used, *problem.goal_sub_axes)) if a not in pending]
    if problem.is_full_search:
        choices = _fill_slots([problem.sizes[a] for a in used], pool, problem.sizes)
    else:
        choices = _goal_directed_permutations(problem, dim_sub_axes, pool)
    for chosen in choices:
        if chosen != used:
            yield _distribute(chosen, dim_sub_axes)


def _fill_slots(
    slots: list[int], pool: list[int], sizes: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield every assignment of distinct sub-axes to slots of their sizes."""
    if not slots:
        yield ()
        return
    for a in pool:
        if sizes[a] == slots[0]:
            for rest in _fill_slots(slots[1:], [b for b in pool if b != a], sizes):
                yield (a, *rest)


def _goal_directed_permutations(
    problem: ReshardProblem, dim_sub_axes: DimSubAxes, pool: list[int]
) -> Iterator[tuple[int, ...]]:
    """Yield two permutations.

    The first puts the goal's sub-axes into their positions. The second orders the sub-axes of each
    dimension by their destination: those that stay first, those that are to be gathered last.
    """
    places: list[int] = []
    for sub_axes, want in zip(dim_sub_axes, problem.goal[0], strict=True):
        for i, a in enumerate(sub_axes):
            same = i < len(want) and problem.sizes[want[i]] == problem.sizes[a]
            places.append(want[i] if same and want[i] in pool else -1)
    used = [a for sub_axes in dim_sub_axes for a in sub_axes]
    rest = [a for a in dict.fromkeys((*used, *pool)) if a not in places]
    for i, a in enumerate(used):
        if places[i] < 0:
            # The pool contains `used`, so that a sub-axis of this size is left.
            places[i] = next(b for b in rest if problem.sizes[b] == problem.sizes[a])
            rest.remove(places[i])
    yield tuple(places)
    yield tuple(
        a
        for dim, sub_axes in enumerate(dim_sub_axes)
        for a in _sort_by_goal_dim(problem, dim, sub_axes)
    )


def _sort_by_goal_dim(problem: ReshardProblem, dim: int, sub_axes: tuple[int, ...]) -> list[int]:
    def order(a: int) -> tuple[bool, int]:
        home = problem.goal_dim.get(a, len(problem.room))
        return home != dim, home

    return sorted(sub_axes, key=order)


def _distribute(sub_axes: tuple[int, ...], dim_sub_axes: DimSubAxes) -> DimSubAxes:
    """Return the sub-axes distributed to dimensions in the counts of `dim_sub_axes`."""
    it = iter(sub_axes)
    return tuple(tuple(next(it) for _ in sub_axes) for sub_axes in dim_sub_axes)


def with_dim_sub_axes(dim_sub_axes: DimSubAxes, dim: int, sub_axes: tuple[int, ...]) -> DimSubAxes:
    """Return the sub-axes of all dimensions with those of one dimension replaced."""
    return (*dim_sub_axes[:dim], sub_axes, *dim_sub_axes[dim + 1 :])
