"""The origin of an axis: the path back from a dimension to the annotation that requested it.

An axis shards a dimension because it is stated there, or because a step moved it along a factor of
an operation from a tensor that had it before. Every path back therefore ends at an annotation. An
axis may consist of parts with different paths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardir.ir.module import Value
from shardir.ir.sharding import Axis
from shardir.passes.explain.propagation_history.history import FunctionHistory, dims_of
from shardir.passes.explain.propagation_history.sub_axes import difference_of_axes, intersections
from shardir.passes.explain.reports import Annotation, Chain, Link
from shardir.passes.propagation.record import PropagationStep, StatedSharding


@dataclass(frozen=True, slots=True)
class AxisHop:
    """Step number `position`: along `factor` from tensor `source` to tensor `target`."""

    step: PropagationStep
    position: int
    factor: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class AxisPath:
    """`axis` was stated in `origin`, and moved along `hops` (the last is the one that arrived)."""

    axis: Axis
    origin: StatedSharding
    hops: tuple[AxisHop, ...]


@dataclass(frozen=True, slots=True)
class AxisArrival:
    """`axis` was stated in `origin`; `hop` moved it to the queried dimension, if any."""

    axis: Axis
    origin: StatedSharding
    hop: AxisHop | None


HopTrail = tuple[AxisHop, "HopTrail"] | None
"""Hops from a dimension to the queried value."""
OriginQuery = tuple[int, int, Axis]
"""A cell, a dimension of it, and an axis."""
AxisSource = tuple[int, int, Axis]
"""A factor, a tensor that had a part of an axis along it, and the part."""
Arrivals = tuple[tuple[AxisSource, ...], list[Axis]]
"""The sources of the parts of axes that a step brought, and the parts that it did not bring."""
ArrivalKey = tuple[int | Axis, ...]
"""The identity of all that the arrivals of a step depend on."""


class AxisOrigin(NamedTuple):
    """An axis that shards a value, and the annotations that its parts come from."""

    axis: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class LocalOrigin:
    """The parts of an axis that were stated at a dimension, and the hops that brought other parts.

    The source of a hop had its part before this step, so that hops to the source are earlier steps.
    """

    stated: tuple[tuple[Axis, StatedSharding], ...]
    hops: tuple[tuple[AxisHop, Axis], ...]


class AxisOrigins:
    """Cached origins of one function. Paths share most of their length, so results are cached."""

    def __init__(self, history: FunctionHistory) -> None:
        self.history = history
        self._local: dict[OriginQuery, LocalOrigin] = {}
        self._stated: dict[OriginQuery, tuple[tuple[Axis, StatedSharding], ...]] = {}
        self._arrivals: dict[ArrivalKey, Arrivals] = {}

    def paths(self, cell: int, dim: int, axis: Axis) -> list[AxisPath]:
        """Return the paths on which the parts of an axis came to a dimension, the major part
        first."""
        result: list[AxisPath] = []
        waiting: list[tuple[OriginQuery, HopTrail]] = [((cell, dim, axis), None)]
        while waiting:
            question, trail = waiting.pop()
            local = self.local(question)
            result += (
                AxisPath(part, origin, tuple(_unroll_trail(trail))) for part, origin in local.stated
            )
            waiting += ((query_at_source(hop, piece), (hop, trail)) for hop, piece in local.hops)
        return sorted(result, key=lambda way: way.axis)

    def arrivals(self, cell: int, dim: int, axis: Axis) -> list[AxisArrival]:
        """Return the statements of the parts of an axis at a dimension, and their last hops."""
        local = self.local((cell, dim, axis))
        result = [AxisArrival(part, origin, None) for part, origin in local.stated]
        result += (
            AxisArrival(part, origin, hop)
            for hop, piece in local.hops
            for part, origin in self.statements(query_at_source(hop, piece))
        )
        return sorted(result, key=lambda arrival: arrival.axis)

    def statements(self, question: OriginQuery) -> tuple[tuple[Axis, StatedSharding], ...]:
        """Return the statements of the parts of an axis at a dimension."""
        waiting = [question]
        while question not in self._stated:
            local = self.local(waiting[-1])
            sources = [query_at_source(hop, piece) for hop, piece in local.hops]
            unknown = [source for source in sources if source not in self._stated]
            if unknown:
                waiting += unknown
            else:
                rest = (each for source in sources for each in self._stated[source])
                self._stated[waiting.pop()] = (*local.stated, *rest)
        return self._stated[question]

    def local(self, question: OriginQuery) -> LocalOrigin:
        """Return the cached local origin of an axis."""
        found = self._local.get(question)
        if found is None:
            found = self._local[question] = self._find(*question)
        return found

    def _find(self, cell: int, dim: int, axis: Axis) -> LocalOrigin:
        history = self.history
        stated = history.stated.get(cell)
        parts = intersections(axis, stated.sharding.dims[dim].axes) if stated else []
        here = tuple((part, stated) for part in parts if stated)
        missing = difference_of_axes(axis, parts)
        hops: list[tuple[AxisHop, Axis]] = []
        for position, tensor in history.changes.get(cell, ()):
            if not missing:
                break
            step = history.story.steps[position]
            sources, missing = self._arrive(step, tensor, dim, missing)
            hops += (
                (AxisHop(step, position, factor, source, tensor), piece)
                for factor, source, piece in sources
            )
        return LocalOrigin(here, tuple(hops))

    def _arrive(
        self, step: PropagationStep, tensor: int, dim: int, missing: list[Axis]
    ) -> "Arrivals":
        """Return the parts of axes that a step brought to a dimension, by factor and source, and
        the parts that are missing before the step.

        Layers repeat the same steps, so the result is cached. The record keeps rules, gains and
        shardings alive, so their identity serves as the key.
        """
        key: ArrivalKey = (
            id(step.rule), id(step.gains), tensor, dim, *missing,
            *map(id, step.before), id(step.after[tensor]),
        )  # fmt: skip
        result = self._arrivals.get(key)
        if result is None:
            old, new = step.before[tensor], step.after[tensor]
            assert new is not None
            gained = [
                piece
                for part in missing
                for there in intersections(part, new.dims[dim].axes)
                for piece in (difference_of_axes(there, old.dims[dim].axes) if old else [there])
            ]
            sources = tuple(_sources(step, tensor, gained))
            rest = [rest for part in missing for rest in difference_of_axes(part, gained)]
            result = self._arrivals[key] = sources, rest
        return result


def query_at_source(hop: AxisHop, piece: Axis) -> OriginQuery:
    """Return the query for the same axis at the source of a hop."""
    (dim,) = dims_of(hop.step.rule, hop.source, hop.factor)
    return hop.step.cells[hop.source], dim, piece


def _unroll_trail(trail: HopTrail) -> Iterator[AxisHop]:
    while trail is not None:
        hop, trail = trail
        yield hop


def _sources(step: PropagationStep, tensor: int, gained: list[Axis]) -> Iterator[AxisSource]:
    """Yield the tensors of a step that had the parts of axes that another tensor gained."""
    for gain in step.gains:
        if gain.tensor == tensor:
            for part in gained:
                for piece in intersections(part, gain.axes):
                    yield gain.factor, gain.source, piece


def origins_of(history: FunctionHistory) -> AxisOrigins:
    """Return the cached origins of a function."""
    return history.compute_once(AxisOrigins)


def axis_chains(history: FunctionHistory, cell: int, dim: int, axis: Axis) -> list[Chain]:
    """Return the paths of an axis to a dimension as report data."""
    mesh = history.mesh(history.final_shardings.get(cell))
    return [
        Chain(
            history.axis(way.axis, mesh),
            dim,
            history.annotation(way.origin),
            tuple(link_of_hop(history, hop) for hop in way.hops),
        )
        for way in origins_of(history).paths(cell, dim, axis)
    ]


def origin_annotations(
    history: FunctionHistory, cell: int, dim: int, axis: Axis
) -> tuple[Annotation, ...]:
    """Return the annotations that an axis at a dimension comes from."""
    arrivals = origins_of(history).arrivals(cell, dim, axis)
    return tuple(dict.fromkeys(history.annotation(arrival.origin) for arrival in arrivals))


def origins_of_value(history: FunctionHistory, value: Value) -> Iterator[AxisOrigin]:
    """Yield the axes of a value with the annotations that they come from, without the paths."""
    sharding = history.decided_shardings[value]
    cell = history.story.cells[value]
    for dim, dim_sharding in enumerate(sharding.dims if sharding else ()):
        for axis in dim_sharding.axes:
            yield AxisOrigin(
                history.axis(axis, history.mesh(sharding)),
                origin_annotations(history, cell, dim, axis),
            )


def link_of_hop(history: FunctionHistory, hop: AxisHop) -> Link:
    """Return a hop as report data."""
    step = hop.step
    operands = len(step.rule.operands)
    way = "across"
    if (hop.source < operands) != (hop.target < operands):
        way = "forwards" if hop.source < operands else "backwards"
    return Link(
        history.tensor(step, hop.source),
        history.tensor(step, hop.target),
        history.op(step),
        history.factor_name(step, hop.factor),
        way,
        step.priority,
        step.round,
        history.loc(step),
    )
