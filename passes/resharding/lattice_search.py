"""Shortest-path search (A*) from one sharding of a tensor to another."""

from heapq import heappop, heappush
from itertools import count

from shardir.cost.collective_bytes import bytes_sent
from shardir.passes.resharding.lattice import LatticeState, ReshardProblem, StepKind
from shardir.passes.resharding.lattice_moves import LatticeMove, transitions_from, with_dim_sub_axes

MAX_SETTLED_STATES = 500
"""States that a search settles before it returns the best path found so far."""


def find_cheapest_path(problem: ReshardProblem) -> list[LatticeMove]:
    """Return the cheapest path from start to goal.

    The A* heuristic is a lower bound of the bytes that are still to be received.
    """
    start = problem.start
    ticket = count()
    queue = [(problem.remaining_bytes(start), 0, 0, 0, next(ticket), start)]
    best: dict[LatticeState, tuple[int, int, int, int]] = {start: (0, 0, 0, 0)}
    came: dict[LatticeState, tuple[LatticeState, LatticeMove]] = {}
    settled: set[LatticeState] = set()
    while len(settled) < MAX_SETTLED_STATES:  # Gathers and slices always lead to the goal.
        *_, state = heappop(queue)
        if state == problem.goal:
            break
        if state in settled:
            continue
        settled.add(state)
        here = best[state]
        for move in transitions_from(problem, state):
            # Among plans of equal cost, the one with the smaller intermediate results wins.
            moved_bytes = problem.local_bytes(move.after[0]) if move.cost[1] else 0
            received, collectives, local = (a + b for a, b in zip(here, move.cost, strict=False))
            cost = (received, collectives, local, here[3] + moved_bytes)
            if move.after not in best or cost < best[move.after]:
                best[move.after] = cost
                came[move.after] = state, move
                estimate = cost[0] + problem.remaining_bytes(move.after)
                heappush(queue, (estimate, *cost[1:], next(ticket), move.after))
    simple = gather_and_slice_path(problem)
    goal_entry = best.get(problem.goal)
    if goal_entry is None or goal_entry[0] > sum(move.cost[0] for move in simple):
        return simple
    return _path(problem.goal, came)


def _path(
    state: LatticeState, came: dict[LatticeState, tuple[LatticeState, LatticeMove]]
) -> list[LatticeMove]:
    moves = []
    while state in came:
        state, move = came[state]
        moves.append(move)
    return moves[::-1]


def gather_and_slice_path(problem: ReshardProblem) -> list[LatticeMove]:
    """Return the path that reduces, gathers conflicting axes and slices: always valid, seldom
    cheap."""
    moves: list[LatticeMove] = []
    dim_sub_axes, pending = problem.start
    if due := tuple(sorted(pending - problem.goal[1])):
        pending = problem.goal[1]
        local_bytes, devices = problem.local_bytes(dim_sub_axes), problem.shard_count(due)
        cost = bytes_sent(StepKind.ALL_REDUCE.value, local_bytes, devices)
        moves.append(LatticeMove(StepKind.ALL_REDUCE, (dim_sub_axes, pending), (cost, 1, 0), due))
    for dim, sub_axes in enumerate(dim_sub_axes):
        if sub_axes:
            cost = problem.local_bytes(dim_sub_axes) * (problem.shard_count(sub_axes) - 1)
            dim_sub_axes = with_dim_sub_axes(dim_sub_axes, dim, ())
            moves.append(
                LatticeMove(
                    StepKind.ALL_GATHER, (dim_sub_axes, pending), (cost, 1, 0), sub_axes, dim
                )
            )
    for dim, sub_axes in enumerate(problem.goal[0]):
        if sub_axes:
            dim_sub_axes = with_dim_sub_axes(dim_sub_axes, dim, sub_axes)
            moves.append(
                LatticeMove(StepKind.ALL_SLICE, (dim_sub_axes, pending), (0, 0, 1), sub_axes, dim)
            )
    return moves
