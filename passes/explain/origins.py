"""Where an axis came from: the way back from a place to the annotation that asked for it.

An axis is at a place because it is stated there, or because a step brought it along a factor of
an operation from a tensor that had it before. So every way back ends at an annotation. An axis
may have come in parts, each on its own way.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardir.passes.explain.data import Annotation, Chain, Link
from shardir.passes.explain.history import History, dims_of
from shardir.passes.explain.parts import left_over, shared
from shardir.passes.propagation.record import Said, Step
from shardir.placement import Axis


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of a way: along `factor` from tensor `source` to tensor `target`."""

    step: Step
    factor: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Way:
    """`axis` was stated in `said`, and came along `hops` (the last is the one that arrived)."""

    axis: Axis
    said: Said
    hops: tuple[Hop, ...]


Trail = tuple[Hop, "Trail"] | None
"""Hops from a place to the value that is asked about."""


def ways(history: History, cell: int, dim: int, axis: Axis) -> list[Way]:
    """The ways on which the parts of an axis came to a place, the major part first."""
    found: list[Way] = []
    waiting: list[tuple[int, int, Axis, int, Trail]] = [
        (cell, dim, axis, len(history.story.steps), None)
    ]
    while waiting:
        cell, dim, axis, before, trail = waiting.pop()
        said = history.said.get(cell)
        stated = shared(axis, said.sharding.dims[dim].axes) if said else []
        found += (Way(part, said, tuple(_unrolled(trail))) for part in stated if said)
        for part in left_over(axis, stated):
            for hop, piece, position in _arrivals(history, cell, dim, part, before):
                (source,) = dims_of(hop.step.rule, hop.source, hop.factor)
                cells = hop.step.cells
                waiting.append((cells[hop.source], source, piece, position, (hop, trail)))
    return sorted(found, key=lambda way: way.axis)


def _unrolled(trail: Trail) -> Iterator[Hop]:
    while trail is not None:
        hop, trail = trail
        yield hop


def _arrivals(
    history: History, cell: int, dim: int, axis: Axis, before: int
) -> Iterator[tuple[Hop, Axis, int]]:
    """The steps in front of position `before` that brought parts of an axis to a place."""
    missing = [axis]
    for position, tensor in history.changes.get(cell, ()):
        if position >= before or not missing:
            return
        step = history.story.steps[position]
        old, new = step.before[tensor], step.after[tensor]
        assert new is not None
        gained = [
            piece
            for part in missing
            for there in shared(part, new.dims[dim].axes)
            for piece in (left_over(there, old.dims[dim].axes) if old else [there])
        ]
        for hop, piece in _sources(history, step, tensor, dim, gained):
            yield hop, piece, position
        missing = [rest for part in missing for rest in left_over(part, gained)]


def _sources(
    history: History, step: Step, tensor: int, dim: int, gained: list[Axis]
) -> Iterator[tuple[Hop, Axis]]:
    """The tensors of a step that had the parts of axes that another tensor gained."""
    if not gained:
        return
    views = history.views(step)
    likely = {gain.factor: gain.source for gain in step.gains if gain.tensor == tensor}
    for factor in step.rule.tensors[tensor][dim]:
        order = sorted(range(len(views)), key=lambda number: number != likely.get(factor, -1))
        for source in order:
            cut = views[source].cuts.get(factor)
            if cut is None or source == tensor:
                continue
            pieces = [piece for part in gained for piece in shared(part, cut.axes)]
            yield from ((Hop(step, factor, source, tensor), piece) for piece in pieces)
            gained = [rest for part in gained for rest in left_over(part, pieces)]


def chains(history: History, cell: int, dim: int, axis: Axis) -> list[Chain]:
    """The ways of an axis to a place, in words."""
    mesh = history.mesh(history.states.get(cell))
    return [
        Chain(
            history.axis(way.axis, mesh),
            dim,
            history.annotation(way.said),
            tuple(_link(history, hop) for hop in way.hops),
        )
        for way in ways(history, cell, dim, axis)
    ]


def roots(history: History, cell: int, dim: int, axis: Axis) -> tuple[Annotation, ...]:
    """The annotations that an axis at a place comes from."""
    return tuple(
        dict.fromkeys(history.annotation(way.said) for way in ways(history, cell, dim, axis))
    )


def _link(history: History, hop: Hop) -> Link:
    step = hop.step
    operands = len(step.rule.operands)
    way = "across"
    if (hop.source < operands) != (hop.target < operands):
        way = "forwards" if hop.source < operands else "backwards"
    return Link(
        history.tensor(step, hop.source),
        history.tensor(step, hop.target),
        history.op(step),
        history.loop(step, hop.factor),
        way,
        step.priority,
        step.round,
        history.loc(step),
    )
