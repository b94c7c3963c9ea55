"""Plan the passes of a body with reductions, and the steps of each.

A reduction is complete after the pass over its operand; its users are computed in a later pass, or
between passes if they vary along parallel axes only. An expensive value that several passes need is
stored in the first of them; a cheap one is recomputed.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from shardir.backends.cpu.kernels.elementwise.cost_model import CHEAP_OPS
from shardir.backends.cpu.kernels.elementwise.loop_body import (
    APPLY,
    ARRAY,
    IOTA,
    REDUCE,
    LoopBody,
    LoopStep,
)


@dataclass(frozen=True)
class ReductionPasses:
    """A body, and for each step and result whether it varies along parallel axes only."""

    body: LoopBody
    is_parallel: tuple[bool, ...]
    is_parallel_result: tuple[bool, ...]
    can_store: bool = True
    """True if there is memory for values that are needed again."""

    @cached_property
    def stage(self) -> tuple[int, ...]:
        """The first pass in which each step can be computed."""
        stages: list[int] = []
        for step in self.body.steps:
            latest = max((stages[i] for i in step.operands), default=0)
            stages.append(latest + (step.kind == REDUCE))
        return tuple(stages)

    @cached_property
    def passes(self) -> int:
        """The number of passes over the whole loop nest."""
        ends = [self.stage[self.body.steps[i].operands[0]] for i in self.body.reductions]
        ends += [self.stage[v] for v, kept in self._results() if not kept]
        return 1 + max(ends, default=0)

    def _results(self) -> Iterable[tuple[int, bool]]:
        return zip(self.body.results, self.is_parallel_result, strict=True)

    def reductions(self, number: int) -> list[int]:
        """Return the steps that are reduced in a pass."""
        steps = self.body.steps
        return [i for i in self.body.reductions if self.stage[steps[i].operands[0]] == number]

    def results(self, number: int) -> list[int]:
        """Return the results that are written in a pass."""
        return [
            i
            for i, (value, kept) in enumerate(self._results())
            if not kept and self.stage[value] == number
        ]

    def parallel_results(self) -> list[int]:
        """Return the results along parallel axes, which are written when they are complete."""
        return [i for i, kept in enumerate(self.is_parallel_result) if kept]

    def targets(self, number: int) -> list[int]:
        """Return the values that a pass computes."""
        result = [self.body.steps[i].operands[0] for i in self.reductions(number)]
        return result + [self.body.results[i] for i in self.results(number)]

    @cached_property
    def stored_steps(self) -> frozenset[int]:
        """The values that a later pass loads instead of recomputing them."""
        first: dict[int, int] = {}
        found: set[int] = set()
        if not self.can_store:
            return frozenset()
        for number in range(self.passes):
            for i in self.required_steps(self.targets(number), found):
                if i in first and i not in found and self._is_expensive(i):
                    found.add(i)
                first.setdefault(i, number)
        return frozenset(found)

    def _is_expensive(self, i: int) -> bool:
        step = self.body.steps[i]
        dear = step.kind == APPLY and step.op not in CHEAP_OPS and step.op != "div"
        return dear and not self.is_parallel[i]

    def steps_to_store(self, number: int) -> list[int]:
        """Return the stored values that are computed in a pass."""
        earlier = {
            i for n in range(number) for i in self.required_steps(self.targets(n), frozenset())
        }
        needed = self.required_steps(self.targets(number), frozenset())
        return [i for i in needed if i in self.stored_steps and i not in earlier]

    def steps(self, number: int) -> list[int]:
        """Return the steps of a pass in order, including those that are loaded."""
        known = self.stored_steps - set(self.steps_to_store(number))
        return self.required_steps(self.targets(number), known)

    def required_steps(self, targets: Sequence[int], known: Set[int]) -> list[int]:
        """Return the steps that some values need, in order, without operands of known or parallel
        steps."""
        return self.body.required_steps(targets, lambda i: i in known or self.is_parallel[i])

    @cached_property
    def parallel_steps(self) -> tuple[int, ...]:
        """The steps along parallel axes that passes or results need, in order, without
        reductions."""
        targets = [self.body.results[i] for i in self.parallel_results()]
        for number in range(self.passes):
            targets += self.required_steps(self.targets(number), frozenset())
        needed = self.body.required_steps(
            [i for i in targets if self.is_parallel[i]],
            lambda i: self.body.steps[i].kind == REDUCE,
        )
        return tuple(needed)

    def parallel_steps_after(self, number: int) -> list[int]:
        """Return the parallel steps that become available after a pass (-1: before the first)."""
        return [i for i in self.parallel_steps if self.stage[i] == number + 1]


def plan_passes(
    body: LoopBody,
    array_axes: Sequence[Set[int]],
    counted_axes: Sequence[int],
    result_axes: Sequence[Set[int]],
    reduced: Set[int],
) -> ReductionPasses:
    """Plan the passes of a body, given the axes of its arrays, indices and results."""
    axes: list[Set[int]] = []

    def of(step: LoopStep) -> Set[int]:
        if step.kind == ARRAY:
            return array_axes[step.number]
        if step.kind == IOTA:
            return {counted_axes[step.number]}
        along = frozenset[int]().union(*(axes[i] for i in step.operands))
        return along - reduced if step.kind == REDUCE else along

    for step in body.steps:
        axes.append(of(step))
    return ReductionPasses(
        body,
        tuple(not (along & reduced) for along in axes),
        tuple(not (along & reduced) for along in result_axes),
    )
