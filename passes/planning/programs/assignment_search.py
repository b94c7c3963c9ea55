"""Local search over assignments. Each is evaluated by partitioning the program.

The search first adds the decision that improves the program most, until none improves it. Then it
removes, exchanges and reorders decisions, and excepts parameters from them. It evaluates the moves
that were best before first, and accepts the best move of a small number of improving ones. It is
deterministic: the limit is a number of evaluations, not a time.

With a memory limit, the search first reduces the excess at the smallest cost per byte.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from shardir.passes.planning.programs.assignment import ArgumentAxes, Assignment, AssignmentReader
from shardir.passes.planning.programs.evaluation import Evaluation, Evaluator, Key

MOVES_AFTER_IMPROVEMENT = 6
"""The number of moves that are evaluated after the first improving one, before the best of them is
accepted."""
WORSE = 1.0
"""The rank of a move that does not improve a plan."""

Progress = Callable[[int, Evaluation | None], None]
"""A function that is called after each evaluation, with the number of evaluations and the best
one."""


class AssignmentSearch:
    """Searches from given assignments; `best` is the best evaluation so far.

    `min_improvement` is the relative improvement from which on a move is accepted, and
    `max_starts` the number of given assignments that are improved, the best ones first.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        reader: AssignmentReader,
        memory_limit: int | None,
        max_evaluations: int,
        progress: Progress | None = None,
        *,
        min_improvement: float = 0.0,
        max_starts: int | None = None,
    ) -> None:
        self.evaluator, self.reader = evaluator, reader
        self.memory_limit, self.max_evaluations = memory_limit, max_evaluations
        self.progress = progress
        self.min_improvement, self.max_starts = min_improvement, max_starts
        self.best: Evaluation | None = None
        self.best_assignment = Assignment()
        self._classes = self._without_small(reader.decisions.params)
        self._alike = self._without_small(reader.decisions.alike)

    def run(self, starts: Iterable[Assignment]) -> Evaluation | None:
        """Return the best evaluation found from the assignments `starts`."""
        ranked = []
        for number, start in enumerate(dict.fromkeys(starts)):
            found = self._evaluate(start)
            if found is not None:
                ranked.append((self._key(found), number, start))
        for _, _, start in sorted(ranked)[: self.max_starts]:
            self._improve(start)
        return self.best

    @property
    def _is_exhausted(self) -> bool:
        return self.evaluator.count >= self.max_evaluations

    def _key(self, found: Evaluation) -> Key:
        return found.key(self.memory_limit)

    def _evaluate(
        self, assignment: Assignment, worst: Evaluation | None = None
    ) -> Evaluation | None:
        """Return the evaluation, `None` if it fails or costs more than `worst`."""
        found = self.evaluator.evaluate(self.reader.axes_of(assignment), worst)
        if found is not None and (self.best is None or self._key(found) < self._key(self.best)):
            self.best, self.best_assignment = found, assignment
        if self.progress is not None:
            self.progress(self.evaluator.count, self.best)
        return found

    def _without_small(
        self, classes: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Return the classes of parameters with their indices, without those whose part of all
        parameters is less than the improvement that is looked for."""
        sizes = [
            sum(self.reader.params[number].type.nbytes for number in numbers) for numbers in classes
        ]
        least = self.min_improvement * sum(sizes)
        numbered = enumerate(classes)
        return [each for each, size in zip(numbered, sizes, strict=True) if size >= least]

    def _improve(self, start: Assignment) -> None:
        current = start
        stale: dict[object, float] = {}
        for moves in (self._group_additions, self._additions, self._changes):
            while not self._is_exhausted:
                better = self._best_move(current, moves(current), stale)
                if better is None:
                    break
                current = better

    def _best_move(
        self,
        current: Assignment,
        moves: Iterator[tuple[object, Assignment]],
        stale: dict[object, float],
    ) -> Assignment | None:
        """Return the best of the first improving moves, or `None` if no move improves."""
        now = self._evaluate(current)
        assert now is not None
        seen: set[ArgumentAxes] = {now.arguments}
        candidates: list[tuple[float, int, object, Assignment]] = []
        for number, (name, move) in enumerate(moves):
            axes = self.reader.axes_of(move)
            if axes not in seen:
                seen.add(axes)
                # Moves that were not evaluated before come first.
                candidates.append((stale.get(name, float("-inf")), number, name, move))
        candidates.sort(key=lambda each: each[:2])
        best: tuple[tuple[float, ...], Assignment] | None = None
        # A plan that fits into the memory is better than all those that cost more.
        worst = None if now.excess(self.memory_limit) else now
        left = MOVES_AFTER_IMPROVEMENT
        for expected, _, name, move in candidates:
            if self._is_exhausted or left == 0:
                break
            found = self._evaluate(move, worst)
            rank = None if found is None else self._rank(now, found)
            if rank is not None:
                stale[name] = rank[0]
            else:
                has_failed = self.evaluator.has_failed(self.reader.axes_of(move))
                stale[name] = float("inf") if has_failed else WORSE
            if (
                rank is not None
                and rank < (-self.min_improvement,)
                and (best is None or rank < best[0])
            ):
                best = rank, move
            if best is not None and expected != float("-inf"):
                left -= 1
        return None if best is None else best[1]

    def _rank(self, now: Evaluation, found: Evaluation) -> tuple[float, ...]:
        """Return a rank that is negative if `found` is better than `now`, smaller if more so."""
        before, after = self._key(now), self._key(found)
        if before[0] > 0:
            # The excess that the move removes, for each unit of cost that it adds.
            removed = min(before[0], before[0] - after[0]) / before[0]
            if removed > 0:
                added = max(0.0, _relative(before[1], after[1]))
                return (-1.0 - removed / (added + 0.01), *after)
            return (WORSE, *after)
        if after >= before:
            return (WORSE, *after)
        for old, new in zip(before, after, strict=True):
            if new != old:
                return (_relative(old, new), *after)
        return (WORSE, *after)

    def _group_additions(self, current: Assignment) -> Iterator[tuple[object, Assignment]]:
        """Yield the assignments with one more axis of a group."""
        axes = [name for name, size in self.reader.mesh.axes if size > 1]
        for group in range(len(self.reader.decisions.groups)):
            for axis in axes:
                if (pair := (group, axis)) in current.groups:
                    continue
                yield ("append", pair), replace(current, groups=(*current.groups, pair))
                yield ("prepend", pair), replace(current, groups=(pair, *current.groups))

    def _additions(self, current: Assignment) -> Iterator[tuple[object, Assignment]]:
        """Yield the assignments with one more decision."""
        yield from self._group_additions(current)
        axes = [name for name, size in self.reader.mesh.axes if size > 1]
        for kind, numbers in self._classes:
            for dim in range(self.reader.params[numbers[0]].type.rank):
                for axis in axes:
                    if (item := (kind, dim, axis)) not in current.storage:
                        yield ("store", item), replace(current, storage=(*current.storage, item))

    def _changes(self, current: Assignment) -> Iterator[tuple[object, Assignment]]:
        """Yield the assignments with one decision removed, exchanged or in another place, those
        with two axes exchanged, and those with one more decision or exception."""
        groups, storage = current.groups, current.storage
        for i, pair in enumerate(groups):
            rest = groups[:i] + groups[i + 1 :]
            yield ("remove", pair), replace(current, groups=rest)
            yield ("first", pair), replace(current, groups=(pair, *rest))
        for i, exception in enumerate(current.exceptions):
            rest = current.exceptions[:i] + current.exceptions[i + 1 :]
            yield ("include", exception), replace(current, exceptions=rest)
        for i, item in enumerate(storage):
            yield ("unstore", item), replace(current, storage=storage[:i] + storage[i + 1 :])
        for a, b in permutations([name for name, _ in self.reader.mesh.axes], 2):
            if a < b:
                yield ("exchange", a, b), _exchange_axes(current, a, b)
        yield from self._additions(current)
        for i, (group, axis) in enumerate(groups):
            for other in range(len(self.reader.decisions.groups)):
                if (other, axis) not in groups:
                    changed = (*groups[:i], (other, axis), *groups[i + 1 :])
                    yield ("change", group, other, axis), replace(current, groups=changed)
        used = {axis for _, axis in groups}
        for kind, _ in self._alike:
            for axis in sorted(used):
                if (exception := (kind, axis)) not in current.exceptions:
                    more = (*current.exceptions, exception)
                    yield ("except", exception), replace(current, exceptions=more)


def _exchange_axes(assignment: Assignment, a: str, b: str) -> Assignment:
    new = {a: b, b: a}
    return Assignment(
        tuple((group, new.get(axis, axis)) for group, axis in assignment.groups),
        tuple((kind, dim, new.get(axis, axis)) for kind, dim, axis in assignment.storage),
        tuple((kind, new.get(axis, axis)) for kind, axis in assignment.exceptions),
    )


def _relative(old: float, new: float) -> float:
    """Return the relative change from `old` to `new`."""
    return (new - old) / abs(old) if old else float(new > old)


def group_starts(batch_groups: Sequence[int], axes: Sequence[str]) -> Iterator[Assignment]:
    """Yield the assignments from which the search starts: replicated, and data parallel along
    all axes, along each of them, and along all but one."""
    yield Assignment()
    sets = [tuple(axes), *((axis,) for axis in axes)]
    sets += [tuple(other for other in axes if other != axis) for axis in axes]
    for chosen in sets:
        yield Assignment(tuple((group, axis) for group in batch_groups for axis in chosen))
