"""In how many passes a body with reductions is computed, and what is done in each.

A reduction is known after the pass that walks over what it reduces; what uses it is computed in a
later pass (or, where it lies along kept axes alone, between passes). A value that is expensive and
needed in several passes is stored in the first of them; what is cheap is computed again.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.cpu.native.loops.body import APPLY, ARRAY, IOTA, REDUCE, Body, Step
from shardir.backends.cpu.native.loops.prices import CHEAP


@dataclass(frozen=True)
class Stages:
    """A body, for each of its steps whether it lies along kept axes alone, and for each of its
    results whether it does."""

    body: Body
    kept: tuple[bool, ...]
    kept_results: tuple[bool, ...]
    storing: bool = True
    """Whether there is room for values that are needed again."""

    @cached_property
    def stage(self) -> tuple[int, ...]:
        """For each step the first pass in which it can be computed."""
        stages: list[int] = []
        for step in self.body.steps:
            latest = max((stages[i] for i in step.operands), default=0)
            stages.append(latest + (step.kind == REDUCE))
        return tuple(stages)

    @cached_property
    def passes(self) -> int:
        """How many walks over the whole nest there are."""
        ends = [self.stage[self.body.steps[i].operands[0]] for i in self.body.reductions]
        ends += [self.stage[v] for v, kept in self._results() if not kept]
        return 1 + max(ends, default=0)

    def _results(self) -> Iterable[tuple[int, bool]]:
        return zip(self.body.results, self.kept_results, strict=True)

    def reductions(self, number: int) -> list[int]:
        """The steps that are reduced in a pass."""
        steps = self.body.steps
        return [i for i in self.body.reductions if self.stage[steps[i].operands[0]] == number]

    def results(self, number: int) -> list[int]:
        """Which results are written in a pass."""
        return [
            i
            for i, (value, kept) in enumerate(self._results())
            if not kept and self.stage[value] == number
        ]

    def ends(self) -> list[int]:
        """Which results lie along kept axes, and are written when all is known."""
        return [i for i, kept in enumerate(self.kept_results) if kept]

    def targets(self, number: int) -> list[int]:
        """The values that a pass is about."""
        made = [self.body.steps[i].operands[0] for i in self.reductions(number)]
        return made + [self.body.results[i] for i in self.results(number)]

    @cached_property
    def stored(self) -> frozenset[int]:
        """The values that a later pass loads rather than computes again."""
        first: dict[int, int] = {}
        found: set[int] = set()
        if not self.storing:
            return frozenset()
        for number in range(self.passes):
            for i in self.walk(self.targets(number), found):
                if i in first and i not in found and self._is_dear(i):
                    found.add(i)
                first.setdefault(i, number)
        return frozenset(found)

    def _is_dear(self, i: int) -> bool:
        step = self.body.steps[i]
        dear = step.kind == APPLY and step.op not in CHEAP and step.op != "div"
        return dear and not self.kept[i]

    def stores(self, number: int) -> list[int]:
        """The stored values that are computed in a pass."""
        earlier = {i for n in range(number) for i in self.walk(self.targets(n), frozenset())}
        needed = self.walk(self.targets(number), frozenset())
        return [i for i in needed if i in self.stored and i not in earlier]

    def steps(self, number: int) -> list[int]:
        """The steps of a pass in order; among them those that are loaded again."""
        known = self.stored - set(self.stores(number))
        return self.walk(self.targets(number), known)

    def walk(self, targets: Sequence[int], known: Set[int]) -> list[int]:
        """What has to be there for some values, in order; nothing before what is known or kept."""
        found: set[int] = set()
        left = list(targets)
        while left:
            i = left.pop()
            if i in found:
                continue
            found.add(i)
            if i not in known and not self.kept[i]:
                left += self.body.steps[i].operands
        return sorted(found)

    @cached_property
    def between(self) -> tuple[int, ...]:
        """The steps along kept axes that passes or results need, reductions aside, in order."""
        needed: set[int] = set()
        left = [self.body.results[i] for i in self.ends()]
        for number in range(self.passes):
            left += [i for i in self.walk(self.targets(number), frozenset()) if self.kept[i]]
        while left:
            i = left.pop()
            if i not in needed and self.kept[i]:
                needed.add(i)
                if self.body.steps[i].kind != REDUCE:
                    left += self.body.steps[i].operands
        return tuple(sorted(needed))

    def between_after(self, number: int) -> list[int]:
        """The steps along kept axes that are known after a pass and not before (-1: at first)."""
        return [i for i in self.between if self.stage[i] == number + 1]


def stages_of(
    body: Body,
    array_axes: Sequence[Set[int]],
    counted_axes: Sequence[int],
    result_axes: Sequence[Set[int]],
    reduced: Set[int],
) -> Stages:
    """The stages of a body, told along which axes its arrays, indices and results lie."""
    axes: list[Set[int]] = []

    def of(step: Step) -> Set[int]:
        if step.kind == ARRAY:
            return array_axes[step.number]
        if step.kind == IOTA:
            return {counted_axes[step.number]}
        along = frozenset[int]().union(*(axes[i] for i in step.operands))
        return along - reduced if step.kind == REDUCE else along

    for step in body.steps:
        axes.append(of(step))
    return Stages(
        body,
        tuple(not (along & reduced) for along in axes),
        tuple(not (along & reduced) for along in result_axes),
    )
