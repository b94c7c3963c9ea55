"""The cause of a collective, and plans that would have cost more."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from shardir import ops as specs
from shardir.cost.communication import (
    REQUESTED,
    Collective,
    format_axes,
    list_collectives,
    name_counted_function,
)
from shardir.errors import PipelineError, suggest_name
from shardir.ir.location import SourceLocations
from shardir.ir.module import Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.passes.explain.communication import with_source_line
from shardir.passes.explain.propagated_program import (
    ExplainError,
    Program,
    pipeline_of,
    propagate_with_history,
)
from shardir.passes.explain.propagation_history.axis_origins import origins_of_value
from shardir.passes.explain.propagation_history.history import FunctionHistory
from shardir.passes.explain.reports import Annotation, Report
from shardir.passes.pipeline import Pipeline
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.resharding.explanations import Explanations
from shardir.passes.resharding.planner import LOCAL_STEPS, PlanStep, plan_reshard

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class ReshardAlternative:
    """Collectives from one sharding to another, via the sharding `middle` if not empty.

    `nbytes` are received by each device; `count` excludes steps without communication.
    """

    steps: tuple[str, ...]
    nbytes: int
    count: int
    middle: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveCause(Report):
    """The cause of a collective.

    `move` is the reshard that it is part of, `chosen` its plan, and `dearer` the more expensive
    alternatives; they are empty if an operation communicates by itself, such as a convolution over
    a sharded dimension. `annotations` are the origin of its axes.
    """

    collective: Collective
    move: str
    chosen: ReshardAlternative | None
    dearer: tuple[ReshardAlternative, ...]
    annotations: tuple[Annotation, ...]


def explain_collective(
    program: Program,
    collective: Collective | str,
    *,
    pipeline: str | None = None,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
) -> CollectiveCause:
    """Return the cause of a collective: its reshard, the annotations behind it, more expensive
    plans.

    `collective` is one of `collectives(...)` or the name of its result; `pipeline` and `propagate`
    are those of `explain`. Raises `ExplainError` if there is no such collective, and
    `PipelineError` for a pipeline that does not partition the program.
    """
    steps = pipeline_of(program, pipeline, propagate)
    run = propagate_with_history(program, steps, places)
    names = [step.name for step in steps.partitioning]
    if "partition" not in names:
        raise PipelineError(
            f"the pipeline {str(steps.whole)!r} does not partition the program, so it has no "
            "collectives; add the pass partition"
        )
    last = names.index("partition")
    before = Pipeline(steps.partitioning[:last])(run.decided)
    row = _row(Pipeline(steps.partitioning[last:])(before), collective)
    history = run.history()
    return CollectiveCauses(before, history).cause(row)


class CollectiveCauses:
    """The causes of the collectives of a program.

    `before` is the program before it is partitioned, and `history` the propagation record of its
    first function.
    """

    def __init__(self, before: Module, history: FunctionHistory) -> None:
        self.before, self.history = before, history
        body = self.before.main.body
        self._ops = {result.name: op for op in body.walk() for result in op.results}
        self._users: dict[Value, list[Op]] = {}
        for other in body.walk():
            if other.spec is not specs.reshard:
                for value in dict.fromkeys((*other.operands, *other.results)):
                    self._users.setdefault(value, []).append(other)

    def cause(self, row: Collective) -> CollectiveCause:
        """Return the cause of one of the collectives."""
        row = with_source_line(row, self.before.main.name, self.history.places)
        op = _find_by_name(self._ops, row.value)
        annotations = tuple(self._annotations(op, row)) if op else ()
        # An operation that communicates by itself may have named its collective after an operand.
        if op is None or op.spec is not specs.reshard or row.why != (op.why or REQUESTED):
            return CollectiveCause(row, "", None, (), annotations)
        (source,), target = op.operands, op.result
        old, new = _sharding(source, target), _sharding(target, source)
        words = Explanations(self.before.mesh(old.mesh))
        chosen = _alternative(plan_reshard(old, new, target.type))
        dearer = tuple(
            way for way in _alternatives(old, new, target.type, words)
            if (way.nbytes, way.count) > (chosen.nbytes, chosen.count)
        )  # fmt: skip
        move = f"{target.type} from {words.format_sharding(old)} to {words.format_sharding(new)}"
        return CollectiveCause(row, move, chosen, tuple(dict.fromkeys(dearer)), annotations)

    def _annotations(self, op: Op, row: Collective) -> Iterator[Annotation]:
        """Yield the annotations that the axes of a collective come from."""
        axes = {axis.partition(":")[0] for axis in row.axes}
        annotations: dict[Annotation, None] = {}
        for value in self._tensors(op):
            history_value = _find_by_name(self.history.values, value.name)
            for origin in (
                origins_of_value(self.history, history_value) if history_value is not None else ()
            ):
                if origin.axis.partition(":")[0] in axes:
                    annotations.update(dict.fromkeys(origin.annotations))
        yield from annotations

    def _tensors(self, op: Op) -> Iterator[Value]:
        """Yield the tensors of the operation that defines a resharded value, and of those that use
        it."""
        yield from op.tensors
        beside = (
            *(user for v in op.results for user in self._users.get(v, ())),
            *(user for v in op.operands for user in self._users.get(v, ()) if v in user.results),
        )
        for other in sorted(dict.fromkeys(beside), key=self._positions.__getitem__):
            if other is not op:
                yield from other.tensors

    @cached_property
    def _positions(self) -> dict[Op, int]:
        return {op: i for i, op in enumerate(self.before.main.body.walk())}


def _row(program: Module, collective: Collective | str) -> Collective:
    """Return the row of a collective of the first function of a per-device program."""
    if not isinstance(collective, str | Collective):
        raise ExplainError(
            f"a collective is a `Collective` or the name of its result, got {collective!r}"
        )
    name = (collective if isinstance(collective, str) else collective.value).removeprefix("%")
    rows = list_collectives(program)
    for row in rows:
        if row.value == name:
            return row
    names = [f"%{row.value}" for row in rows]
    counted = name_counted_function(program)
    if not names:
        subject = f"{counted}," if counted else "the program"
        raise ExplainError(f"{subject} does not communicate")
    hint = suggest_name(f"%{name}", names) or f"the collectives are {', '.join(names)}"
    where = f" in {counted}" if counted else ""
    raise ExplainError(f"no collective makes %{name}{where}; {hint}")


def _find_by_name(known: Mapping[str, Found], name: str) -> Found | None:
    """Return the operation or value that a value was created for: passes add suffixes to names."""
    while name:
        if name in known:
            return known[name]
        name = name.rpartition(".")[0]
    return None


def _sharding(value: Value, other: Value) -> Sharding:
    if value.sharding is not None:
        return value.sharding
    assert other.sharding is not None
    return Sharding.fully_replicated(other.sharding.mesh, value.type.rank)


def _alternative(steps: tuple[PlanStep, ...], middle: str = "") -> ReshardAlternative:
    return ReshardAlternative(
        tuple(step.kind for step in steps),
        sum(step.nbytes for step in steps),
        sum(step.kind not in LOCAL_STEPS for step in steps),
        middle,
    )


def _alternatives(
    old: Sharding, new: Sharding, type: TensorType, words: Explanations
) -> Iterator[ReshardAlternative]:
    """Yield alternative plans: Shardy's, and those via unsharded or reduced tensors."""
    yield _alternative(plan_reshard(old, new, type, "greedy"))
    replicated = Sharding.fully_replicated(old.mesh, type.rank)
    completed = Sharding.of(old.mesh, old.axes)
    for middle in (completed, replicated):
        if not new.unreduced:
            steps = plan_reshard(old, middle, type) + plan_reshard(middle, new, type)
            yield _alternative(steps, words.format_sharding(middle))


def collective_heading(row: Collective) -> str:
    """Return `%3 = all-reduce over model`."""
    return f"%{row.value} = {row.kind} over {format_axes(row)}"
