"""Annotations without effect: those without which propagation decides the same.

Each is tried. Most are tried by repeating only the differing steps (`passes.propagation.replay`);
if other parts of the preparation depend on an annotation, the function is propagated again without
it.
"""

from collections.abc import Iterator
from dataclasses import replace

from shardir import ops
from shardir.ir.module import Value
from shardir.ir.sharding import Sharding
from shardir.passes.explain.annotation_edits import changes, remove_annotation
from shardir.passes.explain.propagated_program import PropagatedProgram
from shardir.passes.explain.propagation_history.history import (
    RESULT_PREFIX,
    FunctionHistory,
    stated_annotations,
)
from shardir.passes.explain.reports import Annotation, Subject
from shardir.passes.propagation.finish import BoundaryKind
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.propagation.record import StatedSharding
from shardir.passes.propagation.replay import PropagationReplay
from shardir.passes.propagation.step import NO_SHARDING


def unused_annotations(session: PropagatedProgram) -> Iterator[Annotation]:
    """Yield the annotations without which all shardings would be the same."""
    # Whether an annotation closes dimensions is no effect by itself.
    propagate = replace(session.pipeline.propagate, leave_open=False)
    for history in session.histories.values():
        trial = trial_without_annotations(session, propagate, history)
        for stated in stated_annotations(history):
            annotation = history.annotation(stated)
            is_idle = trial.is_idle(stated) if trial else None
            if is_idle is None:
                is_idle = is_unused(session, propagate, annotation)
            if is_idle:
                yield annotation


def is_unused(session: PropagatedProgram, propagate: Propagate, annotation: Annotation) -> bool:
    """Return whether propagation without an annotation decides the same, by a second run."""
    name = annotation.name
    if annotation.subject is Subject.RESULT:
        name = RESULT_PREFIX + name
    changed = propagate(remove_annotation(session.module, name, annotation.function))
    return not changes(session.propagated, changed)


def trial_without_annotations(
    session: PropagatedProgram, propagate: Propagate, history: FunctionHistory
) -> "AnnotationTrial | None":
    """Return the trial of a function, or `None` if replay does not support it."""
    if len(session.module.meshes) > 1 or propagate.order != "lifo" or not propagate.prepare:
        return None
    trial = AnnotationTrial(session, propagate, history.name)
    prepared = trial.prepared
    everything = (*prepared.stated.values(), *trial.function.result_shardings)
    if prepared.groups or prepared.bridges or any(
        dim.priority is not None for each in everything if each for dim in each.dims
    ):  # fmt: skip
        return None
    trial.start()
    return trial


class AnnotationTrial:
    """A function that is propagated without each of its annotations in turn."""

    def __init__(self, session: PropagatedProgram, propagate: Propagate, name: str) -> None:
        program = session.prepared
        self.propagate = propagate
        self.function = program.source(name)
        self.steppers = program.steppers
        self.prepared = program.function(name)
        self.state = program.initial_state(name)
        self.close = propagate.sharding_writer(self.steppers.shardings, self.prepared)

    def start(self) -> None:
        """Propagate once, and prepare the lookups."""
        prepared, body = self.prepared, self.function.body
        network = prepared.network
        run = self.propagate.start_run(prepared, self.steppers)
        self.replay = PropagationReplay(network, run, self.state)
        self.values: dict[int, list[Value]] = {}
        for value, cell in network.cells.items():
            self.values.setdefault(cell, []).append(value)
        self.params = set(body.params)
        self.entangled = set(prepared.owners)
        """The values of whose annotations more depends than what their cells begin with."""
        draft_ops, originals = list(prepared.draft.walk()), set(body.walk())
        # A copy of a constant shares its attributes and its annotation.
        copied = {id(op.attrs) for op in draft_ops if op not in originals}
        for op in draft_ops:
            if op.spec is ops.sharding_constraint or id(op.attrs) in copied:
                self.entangled.update(op.operands, prepared.draft.inputs(op), op.results)
            elif len(op.results) > 1:
                self.entangled.update(op.results)

    def is_idle(self, stated: StatedSharding) -> bool | None:
        """Return whether all shardings are the same without an annotation; `None` if unknown."""
        size = len(self.state.cells)
        if stated.value is None:
            number = -1 - stated.cell
            return self.is_same_without(
                self.replay.differences_without(size + number, NO_SHARDING), None, number
            )
        value = stated.value
        if value in self.entangled:
            return None
        # Values that share a cell are those of an edge, which are entangled.
        cell = self.prepared.network.cells[value]
        now = self.replay.differences_without(cell, NO_SHARDING)
        return self.is_same_without(now, value, None)

    def is_same_without(
        self, other: dict[int, int], silent: Value | None, result: int | None
    ) -> bool:
        """Return whether all written shardings are unchanged if the final cells are `other`.

        The value `silent`, or a result of the function, has no annotation.
        """
        cells = {*other}
        if silent is not None:
            cells.add(self.prepared.network.cells[silent])
        size = len(self.state.cells)
        if result is not None:
            cells.add(size + result)
        for cell in sorted(cells):
            before, after = self.replay.now[cell], other.get(cell, self.replay.now[cell])
            if cell >= size:
                i = cell - size
                type, own = self.function.body.returns[i].type, self.function.result_shardings[i]
                mine = None if i == result else own
                if self.close(before, type, BoundaryKind.FUNCTION, own) != self.close(
                    after, type, BoundaryKind.FUNCTION, mine
                ):
                    return False
                continue
            for value in self.values[cell]:
                border = BoundaryKind.FUNCTION if value in self.params else BoundaryKind.NONE
                own = self.stated_sharding(value) if border is BoundaryKind.FUNCTION else None
                mine = None if value is silent else own
                if self.close(before, value.type, border, own) != self.close(
                    after, value.type, border, mine
                ):
                    return False
        return True

    def stated_sharding(self, value: Value) -> Sharding | None:
        return self.prepared.stated.get(value)
