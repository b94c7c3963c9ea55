"""The lattice of shardings of one tensor: its states, the steps between them, the cheapest path.

Cuts are seen as atoms: mesh axes, or the parts of axes that both ends of the path agree on. What
both ends begin a dimension with stays out of it.

A dimension of n positions in p pieces has pieces of ceil(n / p) positions, and ends after the
last of them, p * ceil(n / p). Adding a cut to one that is there, or taking away the last, is right
only where that end stays where it is, for else the pieces begin elsewhere: 5 in two pieces are
012 34, in four 01 23 4. From a whole dimension any cut can be made, and it can be made whole
again. So a dimension that some cut does not divide is left alone or goes through the whole.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import combinations, count
from math import prod

from shardir.axes import coexist
from shardir.groups import merge, refine
from shardir.placement import Axes, Axis, Dim, Sharding
from shardir.types import TensorType

Cuts = tuple[tuple[int, ...], ...]
"""For each dimension, the atoms that cut it."""
State = tuple[Cuts, frozenset[int]]
"""The cuts, and the atoms over which a sum is pending."""
Cost = tuple[int, int, int]
"""Bytes received per device, collectives, local steps."""

PRIMES = 4
"""Up to so many prime atoms, atoms of different sizes are split so that they can trade places."""
FEW = 4
"""Up to so many atoms every step is tried; with more, only steps that lead towards the goal."""
VISITS = 500
"""How many states a search may settle before it takes the best path it has seen."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step on atoms; `dim` loses `atoms` or gains them, `other` is where they go."""

    name: str
    after: State
    cost: Cost
    atoms: tuple[int, ...] = ()
    dim: int = -1
    other: int = -1


class Problem:
    """The shardings as atoms, without the cuts that both begin with."""

    def __init__(self, source: Sharding, target: Sharding, type: TensorType) -> None:
        self.source, self.target, self.type = source, target, type
        everything = (*source.used(), *target.used(), *source.unreduced, *target.unreduced)
        self.solvable = all(coexist(a, b) for a, b in combinations(everything, 2))
        parts = refine(everything) if self.solvable else {axis: (axis,) for axis in everything}

        def split(axes: Axes) -> Axes:
            return tuple(part for axis in axes for part in parts[axis])

        old, new = tuple(map(split, source.axes)), tuple(map(split, target.axes))
        shared = [_common(a, b, size) for a, b, size in zip(old, new, type.shape, strict=True)]
        self.uneven = tuple(
            any(size % _count(cut) for cut in both) if both[0] != both[1] else False
            for size, *both in zip(type.shape, old, new, strict=True)
        )
        self.prefix = tuple(a[:n] for a, n in zip(old, shared, strict=True))
        old = tuple(a[n:] for a, n in zip(old, shared, strict=True))
        new = tuple(a[n:] for a, n in zip(new, shared, strict=True))
        waiting, end = split(source.unreduced), split(target.unreduced)
        kept = end if source.reduction == target.reduction else ()
        atoms = tuple(dict.fromkeys(a for axes in (*old, *new, waiting) for a in axes))
        fine = _primes(atoms) if self.solvable else {atom: (atom,) for atom in atoms}
        self.atoms = tuple(part for atom in atoms for part in fine[atom])
        number = {atom: i for i, atom in enumerate(self.atoms)}

        def numbered(axes: Axes) -> tuple[int, ...]:
            return tuple(number[part] for atom in axes for part in fine[atom])

        self.sizes = tuple(atom.size for atom in self.atoms)
        self.start: State = tuple(map(numbered, old)), frozenset(numbered(waiting))
        keep = frozenset(numbered(tuple(a for a in waiting if a in kept)))
        self.goal: State = tuple(map(numbered, new)), keep
        self.wanted = tuple(a for cut in self.goal[0] for a in cut)
        self.home = {a: dim for dim, cut in enumerate(self.goal[0]) for a in cut}
        self.wide = len(self.atoms) <= FEW
        self.room = tuple(
            -(-size // _count(axes)) for size, axes in zip(type.shape, self.prefix, strict=True)
        )
        self.itemsize = type.numpy.itemsize
        self.begun = merge([a for a in end if a not in kept or a not in waiting])

    def pieces(self, atoms: tuple[int, ...]) -> int:
        return prod(self.sizes[a] for a in atoms)

    def local(self, dim: int, cut: tuple[int, ...]) -> int:
        """How many positions of a dimension a device holds."""
        return -(-self.room[dim] // self.pieces(cut))

    def held(self, cuts: Cuts) -> int:
        """Bytes that a device holds."""
        return prod(map(self.local, range(len(cuts)), cuts), start=self.itemsize)

    def left(self, state: State) -> int:
        """Bytes that a device must at least still receive."""
        return max(0, self.held(self.goal[0]) - self.held(state[0]))

    def fits(self, cuts: Cuts, dim: int, atoms: tuple[int, ...]) -> bool:
        """Whether the pieces of a dimension can be cut further, or be what is left of that."""
        before = self.pieces(cuts[dim])
        after, room = before * self.pieces(atoms), self.room[dim]
        if not self.uneven[dim]:
            return room % after == 0
        whole = before == 1 and not self.prefix[dim]
        return whole or before * -(-room // before) == after * -(-room // after)

    def shared(self, cuts: Cuts, dim: int, atoms: tuple[int, ...]) -> int:
        """Bytes of the part for each device when a dimension is dealt out over `atoms`."""
        held, after = self.held(cuts), self.local(dim, (*cuts[dim], *atoms))
        return held // max(self.local(dim, cuts[dim]), 1) * after

    def sharding(self, state: State) -> Sharding:
        """A state as a sharding, with the shared cuts in front again."""
        cuts, pending = state
        axes = (
            merge((*front, *(self.atoms[a] for a in cut)))
            for front, cut in zip(self.prefix, cuts, strict=True)
        )
        return Sharding(
            self.source.mesh,
            tuple(Dim(a, open=False) for a in axes),
            unreduced=merge([a for i, a in enumerate(self.atoms) if i in pending]),
            reduction=self.source.reduction if pending else "add",
        )


def _common(a: Axes, b: Axes, size: int) -> int:
    """How many axes two cuts begin with that leave the pieces where they are."""
    if a == b:
        return len(a)
    shorter = min(len(a), len(b))
    same = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    ends = _end(size, a), _end(size, b)
    return next((n for n in range(same, 0, -1) if ends == (_end(size, a[:n]),) * 2), 0)


def _end(size: int, axes: Axes) -> int:
    """Where the last piece ends."""
    count = _count(axes)
    return -(-size // count) * count


def _count(axes: Axes) -> int:
    return prod(axis.size for axis in axes)


def _primes(atoms: Axes) -> dict[Axis, Axes]:
    """Each atom's prime parts, if sizes differ and the parts are few; else the atom itself."""
    parts = {atom: tuple(_factored(atom)) for atom in atoms}
    few = sum(map(len, parts.values())) <= PRIMES
    mixed = len({atom.size for atom in atoms}) > 1
    return parts if few and mixed else {atom: (atom,) for atom in atoms}


def _factored(axis: Axis) -> Iterator[Axis]:
    pre, rest, prime = axis.pre, axis.size, 2
    while rest > 1:
        while rest % prime == 0:
            yield Axis(axis.name, pre, prime)
            pre, rest = pre * prime, rest // prime
        prime += 1


def search(problem: Problem) -> list[Move]:
    """Cheapest path from start to goal; what remains to be received at least guides it."""
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
        for move in _moves(problem, state):
            # Of plans that cost the same, the one that fills less memory on its way.
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


def _moves(problem: Problem, state: State) -> Iterator[Move]:
    """Every step that could be of use."""
    cuts, pending = state
    held = problem.held(cuts)
    used = {a for cut in cuts for a in cut}
    dims = range(len(cuts))
    for a in problem.wanted:
        if a not in used and a not in pending:
            for dim in dims if problem.wide else (problem.home[a],):
                if problem.fits(cuts, dim, (a,)):
                    after = _changed(cuts, dim, (*cuts[dim], a))
                    yield Move("all-slice", (after, pending), (0, 0, 1), (a,), dim)
    for dim, atoms in _at_once(problem, cuts):
        if not any(a in used or a in pending for a in atoms):
            after = _changed(cuts, dim, atoms)
            yield Move("all-slice", (after, pending), (0, 0, 1), atoms, dim)
    for dim in dims:
        for at in range(len(cuts[dim])):
            kept, moved = cuts[dim][:at], cuts[dim][at:]
            pieces = problem.pieces(moved)
            less = _changed(cuts, dim, kept)
            if problem.uneven[dim] and not problem.fits(less, dim, moved):
                continue
            yield Move("all-gather", (less, pending), (held * (pieces - 1), 1, 0), moved, dim)
            for other in dims:
                towards = problem.wide or problem.home.get(moved[0]) == other
                if other != dim and towards and problem.fits(cuts, other, moved):
                    after = _changed(less, other, (*cuts[other], *moved))
                    cost = (problem.shared(cuts, other, moved) * (pieces - 1), 1, 0)
                    yield Move("all-to-all", (after, pending), cost, moved, dim, other)
    for after in _rearranged(problem, cuts, pending):
        yield Move("collective-permute", (after, pending), (held, 1, 0))
    yield from _reductions(problem, state, held)


def _reductions(problem: Problem, state: State, held: int) -> Iterator[Move]:
    cuts, pending = state
    due = tuple(sorted(pending - problem.goal[1]))
    if due:
        after = cuts, problem.goal[1]
        pieces = problem.pieces(due)
        yield Move("all-reduce", after, (2 * held * (pieces - 1) // pieces, 1, 0), due)
    for a in due:
        for dim in range(len(cuts)):
            if a in problem.wanted and problem.fits(cuts, dim, (a,)):
                after = _changed(cuts, dim, (*cuts[dim], a)), pending - {a}
                cost = (problem.shared(cuts, dim, (a,)) * (problem.sizes[a] - 1), 1, 0)
                yield Move("reduce-scatter", after, cost, (a,), dim)
    for dim, atoms in _at_once(problem, cuts):
        if all(a in due for a in atoms):
            after = _changed(cuts, dim, atoms), pending - set(atoms)
            cost = (problem.shared(cuts, dim, atoms) * (problem.pieces(atoms) - 1), 1, 0)
            yield Move("reduce-scatter", after, cost, atoms, dim)


def _at_once(problem: Problem, cuts: Cuts) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Dimensions that are whole and have to be cut by several atoms at once, and by which."""
    for dim, atoms in enumerate(problem.goal[0]):
        if problem.uneven[dim] and len(atoms) > 1 and not (cuts[dim] or problem.prefix[dim]):
            yield dim, atoms


def _rearranged(problem: Problem, cuts: Cuts, pending: frozenset[int]) -> Iterator[Cuts]:
    """The same number of pieces along each dimension, by other atoms or in another order."""
    used = tuple(a for cut in cuts for a in cut)
    pool = [a for a in dict.fromkeys((*used, *problem.wanted)) if a not in pending]
    if problem.wide:
        choices = _filled([problem.sizes[a] for a in used], pool, problem.sizes)
    else:
        choices = _directed(problem, cuts, pool)
    for chosen in choices:
        if chosen != used:
            yield _dealt(chosen, cuts)


def _filled(slots: list[int], pool: list[int], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every way to fill slots with different atoms of their sizes."""
    if not slots:
        yield ()
        return
    for a in pool:
        if sizes[a] == slots[0]:
            for rest in _filled(slots[1:], [b for b in pool if b != a], sizes):
                yield (a, *rest)


def _directed(problem: Problem, cuts: Cuts, pool: list[int]) -> Iterator[tuple[int, ...]]:
    """Two arrangements: the goal's atoms in their places, and each dimension's own atoms in order
    of where they go next: those that stay first, those that are to be gathered last."""
    places: list[int] = []
    for cut, want in zip(cuts, problem.goal[0], strict=True):
        for i, a in enumerate(cut):
            same = i < len(want) and problem.sizes[want[i]] == problem.sizes[a]
            places.append(want[i] if same and want[i] in pool else -1)
    used = [a for cut in cuts for a in cut]
    rest = [a for a in dict.fromkeys((*used, *pool)) if a not in places]
    for i, a in enumerate(used):
        if places[i] < 0:
            places[i] = next((b for b in rest if problem.sizes[b] == problem.sizes[a]), -1)
            if places[i] < 0:
                break
            rest.remove(places[i])
    else:
        yield tuple(places)
    yield tuple(a for dim, cut in enumerate(cuts) for a in _by_home(problem, dim, cut))


def _by_home(problem: Problem, dim: int, cut: tuple[int, ...]) -> list[int]:
    def order(a: int) -> tuple[bool, int]:
        home = problem.home.get(a, len(problem.room))
        return home != dim, home

    return sorted(cut, key=order)


def _dealt(atoms: tuple[int, ...], cuts: Cuts) -> Cuts:
    """The atoms dealt out to dimensions in the numbers that `cuts` has."""
    it = iter(atoms)
    return tuple(tuple(next(it) for _ in cut) for cut in cuts)


def _changed(cuts: Cuts, dim: int, atoms: tuple[int, ...]) -> Cuts:
    return (*cuts[:dim], atoms, *cuts[dim + 1 :])


def plain(problem: Problem) -> list[Move]:
    """Reduce, gather what is in the way, slice: always right, seldom cheap."""
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
            cuts = _changed(cuts, dim, ())
            moves.append(Move("all-gather", (cuts, pending), (cost, 1, 0), atoms, dim))
    for dim, atoms in enumerate(problem.goal[0]):
        if atoms:
            cuts = _changed(cuts, dim, atoms)
            moves.append(Move("all-slice", (cuts, pending), (0, 0, 1), atoms, dim))
    return moves
