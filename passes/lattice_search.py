"""Shortest-path search (A*) from one sharding of a tensor to another."""

from heapq import heappop, heappush
from itertools import count

from shardir.passes.lattice import Problem, State
from shardir.passes.lattice_moves import Move, changed, moves_from

VISITS = 500
"""States that a search settles before it returns the best path found so far."""


def search(problem: Problem) -> list[Move]:
    """Return the cheapest path from start to goal.

    The A* heuristic is a lower bound of the bytes that are still to be received.
    """
    start = problem.start
    ticket = count()
    queue = [(problem.left(start), 0, 0, 0, next(ticket), start)]
    best: dict[State, tuple[int, int, int, int]] = {start: (0, 0, 0, 0)}
    came: dict[State, tuple[State, Move]] = {}
    settled: set[State] = set()
    while queue and len(settled) < VISITS:
        *_, state = heappop(queue)
        if state == problem.goal:
            break
        if state in settled:
            continue
        settled.add(state)
        here = best[state]
        for move in moves_from(problem, state):
            # Among plans of equal cost, the one with the smaller intermediate results wins.
            made = problem.held(move.after[0]) if move.cost[1] else 0
            received, collectives, local = (a + b for a, b in zip(here, move.cost, strict=False))
            cost = (received, collectives, local, here[3] + made)
            if move.after not in best or cost < best[move.after]:
                best[move.after] = cost
                came[move.after] = state, move
                estimate = cost[0] + problem.left(move.after)
                heappush(queue, (estimate, *cost[1:], next(ticket), move.after))
    simple = plain(problem)
    found = best.get(problem.goal)
    if found is None or found[0] > sum(move.cost[0] for move in simple):
        return simple
    return _path(problem.goal, came)


def _path(state: State, came: dict[State, tuple[State, Move]]) -> list[Move]:
    moves = []
    while state in came:
        state, move = came[state]
        moves.append(move)
    return moves[::-1]


def plain(problem: Problem) -> list[Move]:
    """Return the path that reduces, gathers conflicting axes and slices: always valid, seldom
    cheap."""
    moves: list[Move] = []
    cuts, pending = problem.start
    if due := tuple(sorted(pending - problem.goal[1])):
        pending = problem.goal[1]
        pieces = problem.pieces(due)
        cost = 2 * problem.held(cuts) * (pieces - 1) // pieces
        moves.append(Move("all-reduce", (cuts, pending), (cost, 1, 0), due))
    for dim, atoms in enumerate(cuts):
        if atoms:
            cost = problem.held(cuts) * (problem.pieces(atoms) - 1)
            cuts = changed(cuts, dim, ())
            moves.append(Move("all-gather", (cuts, pending), (cost, 1, 0), atoms, dim))
    for dim, atoms in enumerate(problem.goal[0]):
        if atoms:
            cuts = changed(cuts, dim, atoms)
            moves.append(Move("all-slice", (cuts, pending), (0, 0, 1), atoms, dim))
    return moves
