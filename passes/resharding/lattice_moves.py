"""Transitions from one sharding of a tensor to others, and their costs.

A transition is one collective, or a local slice. With few atoms all transitions are tried, with
more only those towards the goal.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardir.passes.resharding.lattice import DimAtoms, LatticeState, ReshardProblem, StepKind

MoveCost = tuple[int, int, int]
"""Bytes received per device, collectives, local steps."""


@dataclass(frozen=True, slots=True)
class LatticeMove:
    """One transition; `dim` loses or gains `atoms`, and `other` is the dimension that receives
    them."""

    kind: StepKind
    after: LatticeState
    cost: MoveCost
    atoms: tuple[int, ...] = ()
    dim: int = -1
    other: int = -1


def transitions_from(problem: ReshardProblem, state: LatticeState) -> Iterator[LatticeMove]:
    """Yield every transition from a state that may be useful."""
    dim_atoms, pending = state
    local_bytes = problem.local_bytes(dim_atoms)
    used = {a for sub_axes in dim_atoms for a in sub_axes}
    dims = range(len(dim_atoms))
    for a in problem.goal_atoms:
        if a not in used and a not in pending:
            for dim in dims if problem.is_full_search else (problem.goal_dim[a],):
                if problem.can_shard(dim_atoms, dim, (a,)):
                    after = with_dim_atoms(dim_atoms, dim, (*dim_atoms[dim], a))
                    yield LatticeMove(StepKind.ALL_SLICE, (after, pending), (0, 0, 1), (a,), dim)
    for dim, atoms in _combined_slices(problem, dim_atoms):
        if not any(a in used or a in pending for a in atoms):
            after = with_dim_atoms(dim_atoms, dim, atoms)
            yield LatticeMove(StepKind.ALL_SLICE, (after, pending), (0, 0, 1), atoms, dim)
    for dim in dims:
        for at in range(len(dim_atoms[dim])):
            remaining, moved = dim_atoms[dim][:at], dim_atoms[dim][at:]
            pieces = problem.shard_count(moved)
            less = with_dim_atoms(dim_atoms, dim, remaining)
            if problem.uneven[dim] and not problem.can_shard(less, dim, moved):
                continue
            yield LatticeMove(
                StepKind.ALL_GATHER, (less, pending), (local_bytes * (pieces - 1), 1, 0), moved, dim
            )
            for other in dims:
                towards = problem.is_full_search or problem.goal_dim.get(moved[0]) == other
                if other != dim and towards and problem.can_shard(dim_atoms, other, moved):
                    after = with_dim_atoms(less, other, (*dim_atoms[other], *moved))
                    cost = (problem.distributed_bytes(dim_atoms, other, moved) * (pieces - 1), 1, 0)
                    yield LatticeMove(
                        StepKind.ALL_TO_ALL, (after, pending), cost, moved, dim, other
                    )
    for after in _permuted_states(problem, dim_atoms, pending):
        yield LatticeMove(StepKind.COLLECTIVE_PERMUTE, (after, pending), (local_bytes, 1, 0))
    yield from _reductions(problem, state, local_bytes)


def _reductions(
    problem: ReshardProblem, state: LatticeState, local_bytes: int
) -> Iterator[LatticeMove]:
    dim_atoms, pending = state
    due = tuple(sorted(pending - problem.goal[1]))
    if due:
        after = dim_atoms, problem.goal[1]
        pieces = problem.shard_count(due)
        yield LatticeMove(
            StepKind.ALL_REDUCE, after, (2 * local_bytes * (pieces - 1) // pieces, 1, 0), due
        )
    for a in due:
        for dim in range(len(dim_atoms)):
            if a in problem.goal_atoms and problem.can_shard(dim_atoms, dim, (a,)):
                after = with_dim_atoms(dim_atoms, dim, (*dim_atoms[dim], a)), pending - {a}
                cost = (
                    problem.distributed_bytes(dim_atoms, dim, (a,)) * (problem.sizes[a] - 1),
                    1,
                    0,
                )
                yield LatticeMove(StepKind.REDUCE_SCATTER, after, cost, (a,), dim)
    for dim, atoms in _combined_slices(problem, dim_atoms):
        if all(a in due for a in atoms):
            after = with_dim_atoms(dim_atoms, dim, atoms), pending - set(atoms)
            cost = (
                problem.distributed_bytes(dim_atoms, dim, atoms) * (problem.shard_count(atoms) - 1),
                1,
                0,
            )
            yield LatticeMove(StepKind.REDUCE_SCATTER, after, cost, atoms, dim)


def _combined_slices(
    problem: ReshardProblem, dim_atoms: DimAtoms
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield unsharded dimensions that must be sharded by several atoms in one step, and the
    atoms."""
    for dim, atoms in enumerate(problem.goal[0]):
        if problem.uneven[dim] and len(atoms) > 1 and not (dim_atoms[dim] or problem.prefix[dim]):
            yield dim, atoms


def _permuted_states(
    problem: ReshardProblem, dim_atoms: DimAtoms, pending: frozenset[int]
) -> Iterator[DimAtoms]:
    """Yield the states with the same number of shards in each dimension by other or reordered
    atoms."""
    used = tuple(a for atoms in dim_atoms for a in atoms)
    pool = [a for a in dict.fromkeys((*used, *problem.goal_atoms)) if a not in pending]
    if problem.is_full_search:
        choices = _fill_slots([problem.sizes[a] for a in used], pool, problem.sizes)
    else:
        choices = _goal_directed_permutations(problem, dim_atoms, pool)
    for chosen in choices:
        if chosen != used:
            yield _distribute(chosen, dim_atoms)


def _fill_slots(
    slots: list[int], pool: list[int], sizes: tuple[int, ...]
) -> Iterator[tuple[int, ...]]:
    """Yield every assignment of distinct atoms to slots of their sizes."""
    if not slots:
        yield ()
        return
    for a in pool:
        if sizes[a] == slots[0]:
            for rest in _fill_slots(slots[1:], [b for b in pool if b != a], sizes):
                yield (a, *rest)


def _goal_directed_permutations(
    problem: ReshardProblem, dim_atoms: DimAtoms, pool: list[int]
) -> Iterator[tuple[int, ...]]:
    """Yield two permutations.

    The first puts the goal's atoms into their positions. The second orders the atoms of each
    dimension by their destination: those that stay first, those that are to be gathered last.
    """
    places: list[int] = []
    for atoms, want in zip(dim_atoms, problem.goal[0], strict=True):
        for i, a in enumerate(atoms):
            same = i < len(want) and problem.sizes[want[i]] == problem.sizes[a]
            places.append(want[i] if same and want[i] in pool else -1)
    used = [a for atoms in dim_atoms for a in atoms]
    rest = [a for a in dict.fromkeys((*used, *pool)) if a not in places]
    for i, a in enumerate(used):
        if places[i] < 0:
            places[i] = next((b for b in rest if problem.sizes[b] == problem.sizes[a]), -1)
            if places[i] < 0:
                break
            rest.remove(places[i])
    else:
        yield tuple(places)
    yield tuple(
        a for dim, atoms in enumerate(dim_atoms) for a in _sort_by_goal_dim(problem, dim, atoms)
    )


def _sort_by_goal_dim(problem: ReshardProblem, dim: int, atoms: tuple[int, ...]) -> list[int]:
    def order(a: int) -> tuple[bool, int]:
        home = problem.goal_dim.get(a, len(problem.room))
        return home != dim, home

    return sorted(atoms, key=order)


def _distribute(atoms: tuple[int, ...], dim_atoms: DimAtoms) -> DimAtoms:
    """Return the atoms distributed to dimensions in the counts of `dim_atoms`."""
    it = iter(atoms)
    return tuple(tuple(next(it) for _ in sub_axes) for sub_axes in dim_atoms)


def with_dim_atoms(dim_atoms: DimAtoms, dim: int, atoms: tuple[int, ...]) -> DimAtoms:
    """Return the atoms of all dimensions with those of one dimension replaced."""
    return (*dim_atoms[:dim], atoms, *dim_atoms[dim + 1 :])
