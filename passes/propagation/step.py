"""One propagation step: the new shardings of the tensors of one operation.

A step depends on the factor rule of the operation, on the directions of its factors, and on the
shardings of its tensors; not on the operation itself. Programs are repetitive (layers, and five
rounds over all operations), so every result is memoized. Shardings are numbered, which makes a memo
key a tuple of small integers and a repeated step a dictionary lookup.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from shardir.ir.mesh import Mesh
from shardir.ir.module import Module
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.sub_axes import is_prefix
from shardir.op_rules.factors import FactorRule
from shardir.passes.propagation.factor_projection import (
    ProjectedTensor,
    project_to_dims,
    project_to_factors,
)
from shardir.passes.propagation.priorities import FactorDirections, PropagationDirection
from shardir.passes.propagation.record import Gain, Refusal, RefusalReason, Refuse

if TYPE_CHECKING:
    from shardir.passes.propagation.aggressive import PropagationStrategy

NO_SHARDING = 0
"""Number of "no sharding" among the shardings."""


class ShardingTable:
    """Numbering of shardings, and their meshes."""

    def __init__(self, module: Module) -> None:
        self.meshes: Mapping[str, Mesh] = {mesh.name: mesh for mesh in module.meshes}
        self._all: list[Sharding | None] = [None]
        self._numbers: dict[Sharding | None, int] = {None: NO_SHARDING}

    def number(self, sharding: Sharding | None) -> int:
        number = self._numbers.get(sharding)
        if number is None:
            number = self._numbers[sharding] = len(self._all)
            self._all.append(sharding)
        return number

    def __getitem__(self, number: int) -> Sharding | None:
        return self._all[number]

    def common_mesh(self, shardings: Sequence[Sharding | None]) -> str | RefusalReason | None:
        """Return the mesh of all shardings, or the reason why there is none; `None` without any
        sharding.

        Meshes of different names are equal if they have the same axes and devices. A mesh without
        axes is compatible with any.
        """
        common: Mesh | None = None
        for sharding in shardings:
            if sharding is None:
                continue
            mesh = self.meshes[sharding.mesh]
            if common is None or not (common.axes or common.is_maximal):
                common = mesh
            elif not (mesh.axes or mesh.is_maximal):
                continue
            elif (mesh.axes, mesh.device_ids) != (common.axes, common.device_ids):
                single = mesh.is_maximal or common.is_maximal
                return RefusalReason.SINGLE_DEVICE if single else RefusalReason.MESHES
        if common is None:
            return None
        return RefusalReason.SINGLE_DEVICE if common.is_maximal else common.name


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """`updates` are (tensor, number of its new sharding), operands first."""

    updates: tuple[tuple[int, int], ...]
    gains: tuple[Gain, ...]
    refusals: tuple[Refusal, ...]


StepMemo = dict[tuple[int, ...], StepOutcome]


class RuleStepper:
    """A factor rule and the memoized outcomes for combinations of shardings.

    `explain` records refusals. If it is `conservative`, no parts of axes propagate.
    """

    def __init__(
        self,
        rule: FactorRule,
        shardings: ShardingTable,
        *,
        elementwise: bool,
        explain: bool,
        conservative: bool = False,
    ) -> None:
        self.rule = rule
        self._shardings = shardings
        self._elementwise = elementwise
        self._explain = explain
        self._conservative = conservative
        self._sizes = tuple(factor.size for factor in rule.factors)
        self._memos: dict[tuple[PropagationStrategy, FactorDirections], StepMemo] = {}

    def memo(self, propagate: "PropagationStrategy", directions: FactorDirections) -> StepMemo:
        """Return the memoized outcomes of a strategy and directions."""
        return self._memos.setdefault((propagate, directions), {})

    def step(
        self, propagate: "PropagationStrategy", directions: FactorDirections, state: tuple[int, ...]
    ) -> StepOutcome:
        """Return the outcome for tensors whose shardings have the numbers in `state`."""
        memo = self.memo(propagate, directions)
        outcome = memo.get(state)
        if outcome is None:
            outcome = memo[state] = self._compute(propagate, directions, state)
        return outcome

    def _compute(
        self, propagate: "PropagationStrategy", directions: FactorDirections, state: tuple[int, ...]
    ) -> StepOutcome:
        before = tuple([self._shardings[number] for number in state])
        mesh = self._shardings.common_mesh(before)
        refusals: dict[Refusal, None] = {}

        def refuse(factor: int, tensor: int, axis: Axis, reason: RefusalReason) -> None:
            refusals[Refusal(factor, tensor, axis, reason)] = None

        if not isinstance(mesh, str):
            if self._explain and mesh is not None:
                for number, axis in _used_axes(before):
                    refuse(-1, number, axis, mesh)
            return StepOutcome((), (), tuple(refusals))
        complete_axes = None
        if self._conservative:
            its_mesh = self._shardings.meshes[mesh]
            complete_axes = frozenset(Axis.full(name, its_mesh) for name in its_mesh.sizes)
        if not self._explain:
            new = _new_shardings(
                self.rule, before, mesh, propagate, directions, self._elementwise, complete_axes
            )
            return StepOutcome(self._number_updates(new), (), ())
        views = _project_tensors(self.rule, before)
        changed = propagate(
            views,
            len(self.rule.operands),
            self._sizes,
            directions,
            self._elementwise,
            refuse,
            complete_axes,
        )
        updates = self._number_updates(_changed_shardings(self.rule, views, changed, mesh))
        old = _project_tensors(self.rule, before)
        _note_overflow(old, refuse)
        self._note_directions(old, directions, refuse)
        gains = self._gains(old, views, changed, updates, refuse)
        return StepOutcome(updates, gains, tuple(refusals))

    def _number_updates(self, new: Iterable[tuple[int, Sharding]]) -> tuple[tuple[int, int], ...]:
        return tuple((tensor, self._shardings.number(sharding)) for tensor, sharding in new)

    def _note_directions(
        self, views: Sequence[ProjectedTensor], directions: FactorDirections, refuse: Refuse
    ) -> None:
        """Record the axes that tensors lack because of the directions."""
        operands = len(self.rule.operands)
        for factor, direction in enumerate(directions):
            if direction is PropagationDirection.BOTH:
                continue
            blocked = self.rule.factors[factor].blocked
            reason = RefusalReason.BLOCKED if blocked else RefusalReason.DIRECTION
            for source, view in enumerate(views):
                factor_sharding = view.factor_shardings.get(factor)
                way = (
                    PropagationDirection.FORWARD
                    if source < operands
                    else PropagationDirection.BACKWARD
                )
                if factor_sharding is None or not factor_sharding.axes or direction & way:
                    continue
                for number, other in enumerate(views):
                    theirs = other.factor_shardings.get(factor)
                    for axis in factor_sharding.axes[len(theirs.axes) :] if theirs else ():
                        refuse(factor, number, axis, reason)

    def _gains(
        self,
        old: Sequence[ProjectedTensor],
        new: Sequence[ProjectedTensor],
        changed: set[int],
        updates: Sequence[tuple[int, int]],
        refuse: Refuse,
    ) -> tuple[Gain, ...]:
        """Return the axes that each factor of each tensor gained, and their sources.

        Axes that `project_to_dims` dropped are no gain: they would have resulted in strided shards.
        """
        new_shardings = {
            number: project_to_factors(
                self.rule.tensors[number], self._shardings[sharding], self._sizes
            )
            for number, sharding in updates
        }
        gains = []
        for number in sorted(changed):
            result = new_shardings.get(number, old[number])
            for factor, factor_sharding in new[number].factor_shardings.items():
                if factor_sharding.axes == old[number].factor_shardings[factor].axes:
                    continue
                if result.factor_shardings[factor].axes != factor_sharding.axes:
                    for axis in factor_sharding.axes:
                        if axis not in old[number].factor_shardings[factor].axes:
                            refuse(factor, number, axis, RefusalReason.STRIDED)
                else:
                    gains.append(
                        Gain(
                            factor,
                            number,
                            factor_sharding.axes,
                            _source_tensor(factor, factor_sharding.axes, old),
                        )
                    )
        return tuple(gains)


@lru_cache(maxsize=1 << 15)
def _new_shardings(
    rule: FactorRule,
    before: tuple[Sharding | None, ...],
    mesh: str,
    propagate: "PropagationStrategy",
    directions: FactorDirections,
    elementwise: bool,
    complete_axes: frozenset[Axis] | None,
) -> tuple[tuple[int, Sharding], ...]:
    """Return the tensors that a step changes, and their new shardings. Programs with the same
    operations share the results, such as the candidates of a plan."""
    views = _project_tensors(rule, before)
    sizes = tuple(factor.size for factor in rule.factors)
    changed = propagate(
        views, len(rule.operands), sizes, directions, elementwise, None, complete_axes
    )
    return tuple(_changed_shardings(rule, views, changed, mesh))


def _changed_shardings(
    rule: FactorRule, views: Sequence[ProjectedTensor], changed: set[int], mesh: str
) -> Iterator[tuple[int, Sharding]]:
    """Yield the tensors whose shardings differ from those before the views changed, and the new
    shardings.

    Axes of a factor behind one that is not fully sharded are dropped. Then a sharding may differ
    only in the priorities of its dimensions, which a step removes.
    """
    sizes = tuple(factor.size for factor in rule.factors)
    for number in sorted(changed):
        before, new = views[number].sharding, project_to_dims(views[number], sizes, mesh)
        if any(new.axes) if before is None else new != before:
            yield number, new


def _project_tensors(
    rule: FactorRule, shardings: Sequence[Sharding | None]
) -> list[ProjectedTensor]:
    sizes = tuple(factor.size for factor in rule.factors)
    return [
        project_to_factors(mapping, sharding, sizes)
        for mapping, sharding in zip(rule.tensors, shardings, strict=True)
    ]


def _note_overflow(views: Sequence[ProjectedTensor], refuse: Refuse) -> None:
    """Record that overflowing axes cannot propagate."""
    for number, view in enumerate(views):
        for factor, factor_sharding in view.factor_shardings.items():
            for axis in factor_sharding.overflow:
                refuse(factor, number, axis, RefusalReason.SPILL)


def _used_axes(shardings: Sequence[Sharding | None]) -> list[tuple[int, Axis]]:
    return [(i, axis) for i, sharding in enumerate(shardings) if sharding for axis in
            sharding.used_axes()]  # fmt: skip


def _source_tensor(factor: int, axes: tuple[Axis, ...], old: Sequence[ProjectedTensor]) -> int:
    """Return the first tensor that had all of `axes` along `factor`.

    There is one: the axes that the tensors agree on are those of one of them, or its first ones.
    """
    return next(
        number
        for number, view in enumerate(old)
        if factor in view.factor_shardings and is_prefix(axes, view.factor_shardings[factor].axes)
    )
