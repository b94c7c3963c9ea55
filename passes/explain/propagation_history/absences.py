"""Why an axis does not shard a value: where it stopped.

The search has three stages. The annotation of the value itself may exclude the axis. An operation
that uses or defines the value may refuse it. Otherwise the axis stopped earlier: the dimensions
that factors connect with the value are searched, the nearest first, for an operation that refuses
it. If there is none, no annotation requests the axis, or no factor connects the value with it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardir.ir.mesh import Mesh
from shardir.ir.module import Value
from shardir.ir.sharding import Axis, Sharding, count_positions
from shardir.op_rules.factors import FactorRule
from shardir.passes.explain.propagation_history.axis_origins import origins_of
from shardir.passes.explain.propagation_history.factor_precedence import delay_reason, lost_to
from shardir.passes.explain.propagation_history.history import (
    ExplainedValue,
    FunctionHistory,
    TensorVisit,
    dims_of,
    op_text,
    step_time,
    value_text,
)
from shardir.passes.explain.propagation_history.sub_axes import (
    difference_of_axes,
    intersections,
    overlaps_any,
)
from shardir.passes.explain.reports import Absence
from shardir.passes.propagation.record import PropagationStep, Refusal, RefusalReason

CellDim = tuple[int, int]
"""A cell and a dimension of it."""


@dataclass(frozen=True, slots=True)
class RefusalHit:
    """An operation that refuses an axis, at a dimension of the queried tensor."""

    step: PropagationStep
    refusal: Refusal
    dim: int | None
    own: bool


def absences(history: FunctionHistory, explained: ExplainedValue) -> Iterator[Absence]:
    """Yield why each part of an axis does not shard a value after propagation.

    Axes that shard the value may have been refused in another dimension, which is reported as well.
    """
    value, cell, sharding = explained.value, explained.cell, explained.propagated
    mesh = history.mesh(sharding or history.final_shardings.get(cell))
    if cell in history.refusing_visits:
        for dim, dim_sharding in enumerate(sharding.dims if sharding else ()):
            for axis in dim_sharding.axes:
                yield from _AbsenceSearch(history, value, cell, axis, mesh).elsewhere_refused(dim)
    for axis in place_graph(history).unused_axes(sharding, mesh):
        if axis.size == 1:
            yield _plain(history.axis(axis, mesh), RefusalReason.UNIT)
        else:
            yield from _AbsenceSearch(history, value, cell, axis, mesh).run()


def _plain(axis: str, reason: RefusalReason, detail: str = "", dim: int | None = None) -> Absence:
    return Absence(axis, dim, reason, "", "", None, detail, False)


class PlaceFindings(NamedTuple):
    """The reasons that a search for an axis finds at a place, by kind."""

    refusals: tuple[Absence, ...]
    impassable: tuple[Absence, ...]
    beside: tuple[Absence, ...]


Findings = Iterator[PlaceFindings]


class PlaceGraph:
    """The places of a function, connected where operations have them as dimensions of one factor.

    Searches for different values and axes share its adjacent dimensions and connected components.
    """

    def __init__(self, history: FunctionHistory) -> None:
        self.history = history
        self._adjacent: dict[CellDim, tuple[CellDim, ...]] = {}
        self._component: dict[CellDim, int] = {}
        self._places: list[list[CellDim]] = []
        self._has_finding: dict[tuple[int, Axis, Mesh], bool] = {}
        self._findings: dict[tuple[Axis, Mesh], dict[CellDim, PlaceFindings]] = {}
        self._is_stated: dict[Axis, bool] = {}
        self._unused: dict[tuple[int, int], tuple[Axis, ...]] = {}
        self._dims: dict[int, tuple[tuple[tuple[int, int], ...], ...]] = {}

    def unused_axes(self, sharding: Sharding | None, mesh: Mesh) -> tuple[Axis, ...]:
        """Return the parts of the axes of a mesh that a sharding does not use."""
        # By identity: programs are repetitive, and the history keeps both alive.
        key = id(sharding), id(mesh)
        found = self._unused.get(key)
        if found is None:
            used = list(sharding.used_axes()) if sharding else []
            found = self._unused[key] = tuple(
                part
                for name, size in mesh.axes
                for part in (
                    [Axis(name, 1, size)]
                    if size == 1
                    else difference_of_axes(Axis(name, 1, size), used)
                )
            )
        return found

    def is_stated(self, axis: Axis) -> bool:
        """Return whether an annotation states the axis."""
        found = self._is_stated.get(axis)
        if found is None:
            stated = self.history.stated.values()
            found = self._is_stated[axis] = any(
                overlaps_any(axis, list(each.sharding.used_axes())) for each in stated
            )
        return found

    def adjacent_dims(self, cell_dim: CellDim) -> tuple[CellDim, ...]:
        """Return the places that share a factor with a place."""
        result = self._adjacent.get(cell_dim)
        if result is None:
            cell, dim = cell_dim
            found: dict[CellDim, None] = {}
            for step, tensor in self.history.final_visits.get(cell, ()):
                cells, rule = step.cells, step.rule
                dims = self.dims_of_factors(rule)
                for factor in rule.tensors[tensor][dim]:
                    for other, d in dims[factor]:
                        found[cells[other], d] = None
            result = self._adjacent[cell_dim] = tuple(found)
        return result

    def dims_of_factors(self, rule: FactorRule) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Return for each factor of a rule the tensors that have it, with the dimensions."""
        # By identity: a comparison of rules is slow, and the history keeps the rules alive.
        found = self._dims.get(id(rule))
        if found is None:
            count = len(rule.tensors)
            found = self._dims[id(rule)] = tuple(
                tuple((t, d) for t in range(count) for d in dims_of(rule, t, factor))
                for factor in range(len(rule.factors))
            )
        return found

    def findings(self, cell_dims: Iterable[CellDim], search: "_AbsenceSearch") -> Findings:
        """Yield what a search for an axis finds at each place."""
        cached = self._findings.setdefault((search.axis, search.mesh), {})
        for cell_dim in cell_dims:
            found = cached.get(cell_dim)
            if found is None:
                found = cached[cell_dim] = search.findings_at(cell_dim)
            yield found

    def has_finding(self, cell_dim: CellDim, search: "_AbsenceSearch") -> bool:
        """Return whether a search from a place for an axis finds anything."""
        component = self._component_of(cell_dim)
        key = component, search.axis, search.mesh
        if key not in self._has_finding:
            self._has_finding[key] = any(
                any(found) for found in self.findings(self._places[component], search)
            )
        return self._has_finding[key]

    def _component_of(self, position_of: CellDim) -> int:
        if position_of not in self._component:
            number = len(self._places)
            reached = {position_of: None}
            waiting = [position_of]
            while waiting:
                further = (p for p in self.adjacent_dims(waiting.pop()) if p not in reached)
                new = dict.fromkeys(further)
                reached.update(new)
                waiting += new
            self._places.append(list(reached))
            self._component.update(dict.fromkeys(reached, number))
        return self._component[position_of]


def place_graph(history: FunctionHistory) -> PlaceGraph:
    """Return the cached place graph of a function."""
    return history.compute_once(PlaceGraph)


class _AbsenceSearch:
    """Search for the reasons why one part of an axis does not shard one value."""

    def __init__(
        self, history: FunctionHistory, value: Value, cell: int, axis: Axis, mesh: Mesh
    ) -> None:
        self.history, self.value, self.cell = history, value, cell
        self.axis, self.mesh = axis, mesh
        self.text = history.axis(axis, mesh)

    def run(self) -> list[Absence]:
        if not self.value.type.rank:
            return [_plain(self.text, RefusalReason.SCALAR)]
        if result := self.manual() or self.trimmed_dims() or self.excluded_by_annotation():
            return result
        start = [(self.cell, dim) for dim in range(self.value.type.rank)]
        if hits := [hit for cell_dim in start for hit in self.hits(cell_dim)]:
            own = [hit for hit in hits if hit.own]
            mine = {hit.dim for hit in own}
            chosen = own + [hit for hit in hits if hit.dim not in mine]
            return list(dict.fromkeys(self.absence_of(hit, far=False) for hit in chosen))
        return (
            self.closed_dims()
            or self.explain_missing_request()
            or self.nearest_refusals(start)
            or [self.explain_missing_connection()]
        )

    def elsewhere_refused(self, own_dim: int) -> list[Absence]:
        """Return where an axis that shards a dimension of the value was refused in another one."""
        places = [(self.cell, dim) for dim in range(self.value.type.rank) if dim != own_dim]
        hits = (hit for cell_dim in places for hit in self.hits(cell_dim))
        used = [hit for hit in hits if hit.own and hit.refusal.reason is RefusalReason.USED]
        return list(dict.fromkeys(self.absence_of(hit, far=False) for hit in used))

    # Annotation of the value itself

    def manual(self) -> list[Absence]:
        """Return the manual computations whose axes include the axis."""
        history = self.history
        return [
            Absence(
                self.text,
                None,
                RefusalReason.MANUAL,
                "",
                op_text(op),
                history.loc_of_op(op),
                "",
                False,
            )
            for op in history.computations.get(self.value.name, ())
            if overlaps_any(self.axis, op.attrs["axes"])
        ]

    def trimmed_dims(self) -> list[Absence]:
        """Return the dimensions from which the axis was trimmed, since boundary values are sharded
        evenly."""
        state = self.history.final_shardings.get(self.cell)
        if state is None:
            return []
        result = []
        for dim, (sharding, size) in enumerate(zip(state.dims, self.value.type.shape, strict=True)):
            if overlaps_any(self.axis, sharding.axes):
                shards = count_positions(sharding.axes)
                uneven = size % shards
                reason = RefusalReason.INDIVISIBLE if uneven else RefusalReason.PART
                detail = f"{size} is not divisible by {shards}" if uneven else ""
                result.append(_plain(self.text, reason, detail, dim))
        return result

    def excluded_by_annotation(self) -> list[Absence]:
        stated = self.history.stated.get(self.cell)
        if stated is None:
            return []
        detail = str(self.history.annotation(stated))
        if overlaps_any(self.axis, stated.sharding.replicated):
            return [_plain(self.text, RefusalReason.REPLICATED, detail)]
        if overlaps_any(self.axis, stated.sharding.unreduced):
            return [_plain(self.text, RefusalReason.UNREDUCED, detail)]
        return []

    def closed_dims(self) -> list[Absence]:
        stated = self.history.stated.get(self.cell)
        if stated is None or not stated.sharding.is_closed:
            return []
        return [_plain(self.text, RefusalReason.CLOSED, str(self.history.annotation(stated)))]

    def explain_missing_request(self) -> list[Absence]:
        is_stated = place_graph(self.history).is_stated(self.axis)
        return [] if is_stated else [_plain(self.text, RefusalReason.UNSTATED)]

    # Refusals by operations

    def hits(self, cell_dim: CellDim) -> Iterator[RefusalHit]:
        """Yield the operations that refuse the axis along a factor of a place.

        Refusals by other tensors count as well: some keep the axis from all tensors.
        """
        cell, dim = cell_dim
        for step, tensor in self.history.refusing_visits.get(cell, ()):
            for refusal in step.refusals:
                if not refusal.axis.overlaps(self.axis):
                    continue
                own = step.cells[refusal.tensor] == cell
                if refusal.factor < 0:
                    yield RefusalHit(step, refusal, None, own)
                elif refusal.factor in step.rule.tensors[tensor][dim]:
                    yield RefusalHit(step, refusal, dim, own)

    def absence_of(self, hit: RefusalHit, far: bool) -> Absence:
        step, refusal = hit.step, hit.refusal
        history = self.history
        reason, detail = refusal.reason, ""
        if reason is RefusalReason.USED:
            reason, detail = self.explain_use(step, refusal)
        elif reason is RefusalReason.DISAGREE:
            detail = self.shardings_along_factor(step, refusal)
        elif reason in (
            RefusalReason.CLOSED,
            RefusalReason.REPLICATED,
            RefusalReason.UNREDUCED,
            RefusalReason.OVERFLOW,
        ):
            stated = history.stated.get(step.cells[refusal.tensor])
            detail = str(history.annotation(stated)) if stated else ""
        elif reason is RefusalReason.BEHIND:
            detail = self.first_refusal(step, refusal)
        return Absence(
            self.text,
            hit.dim,
            reason,
            history.tensor(step, refusal.tensor),
            history.op(step),
            history.loc(step),
            detail,
            far,
        )

    def explain_use(self, step: PropagationStep, refusal: Refusal) -> tuple[RefusalReason, str]:
        """Return why another factor has the axis, and details."""
        lost = lost_to(self.history, step, refusal)
        if lost is not None:
            return RefusalReason.LOST, str(lost)
        reason = delay_reason(self.history, step, refusal) or RefusalReason.USED
        return reason, self.current_use(step, refusal)

    def current_use(self, step: PropagationStep, refusal: Refusal) -> str:
        """Describe the dimension that the axis shards instead, its origin, and since when."""
        cell = step.cells[refusal.tensor]
        state = step.before[refusal.tensor]
        for dim, sharding in enumerate(state.dims if state else ()):
            for part in intersections(self.axis, sharding.axes):
                arrivals = origins_of(self.history).arrivals(cell, dim, part)
                annotations = dict.fromkeys(
                    str(self.history.annotation(each.origin)) for each in arrivals
                )
                since = [each.hop for each in arrivals if each.hop]
                when = f", since {step_time(since[-1].step)}" if since else ""
                return f"the axis shards dimension {dim} for {' and '.join(annotations)}{when}"
        return ""

    def shardings_along_factor(self, step: PropagationStep, refusal: Refusal) -> str:
        """Describe how the tensors of an operation are sharded along a factor."""
        shardings = []
        for tensor, view in enumerate(self.history.views(step)):
            sharding = view.factor_shardings.get(refusal.factor)
            if sharding and sharding.axes:
                axes = ", ".join(self.history.axis(axis, self.mesh) for axis in sharding.axes)
                shardings.append(f"{self.history.tensor(step, tensor)} along {axes}")
        return "; ".join(dict.fromkeys(shardings))

    def first_refusal(self, step: PropagationStep, refusal: Refusal) -> str:
        """Describe the first refusal."""
        for other in step.refusals:
            same = (other.factor, other.tensor) == (refusal.factor, refusal.tensor)
            if same and other.reason is not RefusalReason.BEHIND:
                return f"{self.history.axis(other.axis, self.mesh)}: {other.reason.value}"
        return ""

    # Refusals before the axis reached the value

    def nearest_refusals(self, start: list[CellDim]) -> list[Absence]:
        """Return the nearest operations that refuse the axis."""
        graph = place_graph(self.history)
        if not any(graph.has_finding(cell_dim, self) for cell_dim in start):
            return []
        seen = dict.fromkeys(start)
        ring = start
        while ring:
            findings = list(graph.findings(ring, self))
            refusals = [rest for each in findings for rest in each.refusals]
            if any(each.impassable for each in findings):
                cells = dict.fromkeys(cell for cell, _ in ring)
                refusals += [rest for cell in cells for rest in self.impassable_operations(cell)]
            refusals = refusals or [rest for each in findings for rest in each.beside]
            if refusals:
                return list(dict.fromkeys(without_dim(absence) for absence in refusals))
            further = (cell_dim for here in ring for cell_dim in graph.adjacent_dims(here))
            ring = [cell_dim for cell_dim in dict.fromkeys(further) if cell_dim not in seen]
            seen.update(dict.fromkeys(ring))
        return []

    def findings_at(self, cell_dim: CellDim) -> "PlaceFindings":
        """Return what a search finds when it reaches a place."""
        return PlaceFindings(
            tuple(self.absence_of(hit, far=True) for hit in self.hits(cell_dim)),
            tuple(self.impassable_operations(cell_dim[0])),
            tuple(self.beside(cell_dim)),
        )

    def impassable_operations(self, cell: int) -> Iterator[Absence]:
        """Yield operations without a rule that have the axis on their other side."""
        history = self.history
        for op in history.impassable.get(cell, ()):
            for value in op.tensors:
                other = history.story.cells[value]
                if other != cell and self.has(history.final_shardings[other]):
                    yield Absence(
                        self.text, None, RefusalReason.NO_RULE, value_text(value), op_text(op),
                        history.loc_of_op(op), "", True,
                    )  # fmt: skip

    def has(self, sharding: Sharding | None) -> bool:
        return sharding is not None and overlaps_any(self.axis, list(sharding.used_axes()))

    # Axes without any connection

    def explain_missing_connection(self) -> Absence:
        """Return that no factor connects the value with the axis."""
        for at in self.history.final_visits.get(self.cell, ()):
            for absence in self.elsewhere(at):
                return absence
        return _plain(self.text, RefusalReason.UNCONNECTED)

    def beside(self, cell_dim: CellDim) -> Iterator[Absence]:
        """Yield operations where the axis shards, along another factor, a dimension that shares a
        factor with a place."""
        cell, dim = cell_dim
        graph, axis = place_graph(self.history), self.axis
        for step, tensor in self.history.final_visits.get(cell, ()):
            rule, before = step.rule, step.before
            dims = graph.dims_of_factors(rule)
            for factor in rule.tensors[tensor][dim]:
                for other, d in dims[factor]:
                    sharding = before[other]
                    if sharding is not None and overlaps_any(axis, sharding.dims[d].axes):
                        yield self.unconnected_at(
                            step, other, f"the axis shards the rest of dimension {d}"
                        )

    def elsewhere(self, at: TensorVisit) -> Iterator[Absence]:
        """Yield an operation next to the value that has the axis along a factor that the value does
        not have: along others, `beside` would have found the axis."""
        step, _ = at
        for other, view in enumerate(self.history.views(step)):
            for factor, sharding in view.factor_shardings.items():
                if overlaps_any(self.axis, sharding.axes):
                    yield self.unconnected_at(
                        step, other, f"the axis shards {self.history.factor_name(step, factor)}"
                    )

    def unconnected_at(self, step: PropagationStep, tensor: int, detail: str) -> Absence:
        history = self.history
        name, op, loc = history.tensor(step, tensor), history.op(step), history.loc(step)
        return Absence(self.text, None, RefusalReason.UNCONNECTED, name, op, loc, detail, False)


def without_dim(absence: Absence) -> Absence:
    """Return an absence that does not refer to a dimension of the queried value."""
    return Absence(
        absence.axis, None, absence.reason, absence.tensor, absence.op, absence.loc,
        absence.detail, absence.reason is not RefusalReason.UNCONNECTED,
    )  # fmt: skip
