"""Why an axis does not shard a value: where it stopped.

The search has three stages. The annotation of the value itself may exclude the axis. An operation
that uses or defines the value may refuse it. Otherwise the axis stopped earlier: the dimensions
that factors connect with the value are searched, the nearest first, for an operation that refuses
it. If there is none, no annotation requests the axis, or no factor connects the value with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from shardir.ir import Value
from shardir.mesh import Mesh
from shardir.passes.explain.data import Absence
from shardir.passes.explain.history import At, History, dims_of, moment, op_text, spelled
from shardir.passes.explain.origins import origins_of
from shardir.passes.explain.parts import left_over, shared, touches
from shardir.passes.explain.strength import lost_to, waited
from shardir.passes.propagation.record import Reason, Refusal, Step
from shardir.placement import Axis, Sharding, size_of

SHARED = (Reason.DISAGREE, Reason.SPILL, Reason.MESHES, Reason.SINGLE_DEVICE)
"""Reasons that keep an axis from all tensors of an operation, whichever tensor causes them."""

Place = tuple[int, int]
"""A cell and a dimension of it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An operation that refuses an axis, at a dimension of the queried tensor."""

    step: Step
    refusal: Refusal
    dim: int | None
    own: bool


def absences(history: History, value: Value) -> Iterator[Absence]:
    """Yield why each part of an axis that does not shard a value is absent; `value` is of the
    prepared function.

    Axes that shard the value may have been refused in another dimension, which is reported as well.
    """
    written = history.story.written[value]
    cell = history.story.cells[value]
    mesh = history.mesh(written.sharding or history.states.get(cell))
    used = list(written.sharding.used()) if written.sharding else []
    for axis in used:
        yield from _Search(history, value, cell, axis, mesh).elsewhere_refused()
    for name, size in mesh.axes:
        whole = Axis(name, 1, size)
        if size == 1:
            yield _plain(history.axis(whole, mesh), Reason.UNIT)
        else:
            for part in left_over(whole, used):
                yield from _Search(history, value, cell, part, mesh).run()


def _plain(axis: str, reason: Reason, detail: str = "", dim: int | None = None) -> Absence:
    return Absence(axis, dim, reason, "", "", None, detail, False)


class _Search:
    """Search for the reasons why one part of an axis does not shard one value."""

    def __init__(self, history: History, value: Value, cell: int, axis: Axis, mesh: Mesh) -> None:
        self.history, self.value, self.cell = history, value, cell
        self.axis, self.mesh = axis, mesh
        self.text = history.axis(axis, mesh)

    def run(self) -> list[Absence]:
        if not self.value.type.rank:
            return [_plain(self.text, Reason.SCALAR)]
        if found := self.manual() or self.trimmed() or self.ruled_out():
            return found
        start = [(self.cell, dim) for dim in range(self.value.type.rank)]
        if hits := [hit for place in start for hit in self.hits(place)]:
            own = [hit for hit in hits if hit.own]
            mine = {hit.dim for hit in own}
            chosen = own + [hit for hit in hits if hit.dim not in mine]
            return list(dict.fromkeys(self.told(hit, far=False) for hit in chosen))
        return self.closed() or self.unasked() or self.on_the_way(start) or [self.nowhere()]

    def elsewhere_refused(self) -> list[Absence]:
        """Return where an axis that shards the value was refused in another dimension."""
        places = [(self.cell, dim) for dim in range(self.value.type.rank)]
        hits = (hit for place in places for hit in self.hits(place))
        used = [hit for hit in hits if hit.own and hit.refusal.reason is Reason.USED]
        return list(dict.fromkeys(self.told(hit, far=False) for hit in used))

    # Annotation of the value itself

    def manual(self) -> list[Absence]:
        """Return the manual computations whose axes include the axis."""
        history = self.history
        return [
            Absence(
                self.text, None, Reason.MANUAL, "", op_text(op), history.loc_of_op(op), "", False
            )
            for op in history.computations.get(self.value.name, ())
            if touches(self.axis, op.attrs["axes"])
        ]

    def trimmed(self) -> list[Absence]:
        """Return the dimensions from which the axis was trimmed, since boundary values are sharded
        evenly."""
        state = self.history.states.get(self.cell)
        if state is None:
            return []
        found = []
        for dim, (cut, size) in enumerate(zip(state.dims, self.value.type.shape, strict=True)):
            if touches(self.axis, cut.axes):
                uneven = size % size_of(cut.axes)
                reason = Reason.INDIVISIBLE if uneven else Reason.PART
                detail = f"{size} positions" if uneven else ""
                found.append(_plain(self.text, reason, detail, dim))
        return found

    def ruled_out(self) -> list[Absence]:
        said = self.history.said.get(self.cell)
        if said is None:
            return []
        detail = str(self.history.annotation(said))
        if touches(self.axis, said.sharding.replicated):
            return [_plain(self.text, Reason.REPLICATED, detail)]
        if touches(self.axis, said.sharding.unreduced):
            return [_plain(self.text, Reason.UNREDUCED, detail)]
        return []

    def closed(self) -> list[Absence]:
        said = self.history.said.get(self.cell)
        if said is None or not said.sharding.closed:
            return []
        return [_plain(self.text, Reason.CLOSED, str(self.history.annotation(said)))]

    def unasked(self) -> list[Absence]:
        said = self.history.said.values()
        asked = any(touches(self.axis, list(each.sharding.used())) for each in said)
        return [] if asked else [_plain(self.text, Reason.UNASKED)]

    # Refusals by operations

    def hits(self, place: Place) -> Iterator[Hit]:
        """Yield the operations that refuse the axis along a factor of a place."""
        cell, dim = place
        for step, tensor in self.history.looks.get(cell, ()):
            for refusal in step.refusals:
                if not refusal.axis.overlaps(self.axis):
                    continue
                own = step.cells[refusal.tensor] == cell
                if refusal.factor < 0:
                    yield Hit(step, refusal, None, own)
                elif refusal.factor in step.rule.tensors[tensor][dim] and (
                    own or refusal.reason in SHARED or self.is_basic(step, refusal, tensor)
                ):
                    yield Hit(step, refusal, dim, own)

    def is_basic(self, step: Step, refusal: Refusal, tensor: int) -> bool:
        """Return whether the conflict of one tensor applies to all, as in basic propagation.

        Otherwise every tensor takes the axes it can, and this one would have the axis.
        """
        views = self.history.views(step)
        return any(
            number != tensor
            and (cut := view.cuts.get(refusal.factor)) is not None
            and touches(self.axis, cut.axes)
            for number, view in enumerate(views)
        )

    def told(self, hit: Hit, far: bool) -> Absence:
        step, refusal = hit.step, hit.refusal
        history = self.history
        reason, detail = refusal.reason, ""
        if reason is Reason.USED and (lost := lost_to(history, step, refusal)):
            reason, detail = Reason.LOST, str(lost)
        elif reason is Reason.USED:
            reason = waited(history, step, refusal) or reason
            detail = self.user(step, refusal)
        elif reason is Reason.DISAGREE:
            detail = self.sides(step, refusal)
        elif reason in (Reason.CLOSED, Reason.REPLICATED, Reason.UNREDUCED, Reason.OVERFLOW):
            said = history.said.get(step.cells[refusal.tensor])
            detail = str(history.annotation(said)) if said else ""
        elif reason is Reason.BEHIND:
            detail = self.front(step, refusal)
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

    def user(self, step: Step, refusal: Refusal) -> str:
        """Describe the dimension that the axis shards instead, its origin, and since when."""
        cell = step.cells[refusal.tensor]
        state = step.before[refusal.tensor]
        for dim, cut in enumerate(state.dims if state else ()):
            for part in shared(self.axis, cut.axes):
                found = origins_of(self.history).arrivals(cell, dim, part)
                said = dict.fromkeys(str(self.history.annotation(each.said)) for each in found)
                since = [each.hop for each in found if each.hop]
                when = f", since {moment(since[-1].step)}" if since else ""
                return f"it shards dimension {dim} for {' and '.join(said)}{when}"
        return ""

    def sides(self, step: Step, refusal: Refusal) -> str:
        """Describe how the tensors of an operation are sharded along a factor."""
        told = []
        for tensor, view in enumerate(self.history.views(step)):
            cut = view.cuts.get(refusal.factor)
            if cut and cut.axes:
                axes = ", ".join(self.history.axis(axis, self.mesh) for axis in cut.axes)
                told.append(f"{self.history.tensor(step, tensor)} along {axes}")
        return "; ".join(dict.fromkeys(told))

    def front(self, step: Step, refusal: Refusal) -> str:
        """Describe the first refusal."""
        for other in step.refusals:
            same = (other.factor, other.tensor) == (refusal.factor, refusal.tensor)
            if same and other.reason is not Reason.BEHIND:
                return f"{self.history.axis(other.axis, self.mesh)}: {other.reason.value}"
        return ""

    # Refusals before the axis reached the value

    def on_the_way(self, start: list[Place]) -> list[Absence]:
        """Return the nearest operations that refuse the axis."""
        seen = dict.fromkeys(start)
        ring = start
        while ring:
            found = [self.told(hit, far=True) for place in ring for hit in self.hits(place)]
            found += [
                rest for cell in dict.fromkeys(c for c, _ in ring) for rest in self.dumb(cell)
            ]
            found = found or [rest for place in ring for rest in self.beside(place)]
            if found:
                return list(dict.fromkeys(replaced(absence) for absence in found))
            further = (place for here in ring for place in self.neighbours(here))
            ring = [place for place in dict.fromkeys(further) if place not in seen]
            seen.update(dict.fromkeys(ring))
        return []

    def neighbours(self, place: Place) -> Iterator[Place]:
        """Yield the places that share a factor with a place."""
        cell, dim = place
        for step, tensor in self.history.looks.get(cell, ()):
            for factor in step.rule.tensors[tensor][dim]:
                for other, there in enumerate(step.cells):
                    yield from ((there, d) for d in dims_of(step.rule, other, factor))

    def dumb(self, cell: int) -> Iterator[Absence]:
        """Yield operations without a rule that have the axis on their other side."""
        history = self.history
        for op in history.mute.get(cell, ()):
            for value in op.tensors:
                other = history.story.cells.get(value)
                if other != cell and other is not None and self.has(history.states.get(other)):
                    yield Absence(
                        self.text, None, Reason.NO_RULE, spelled(value), op_text(op),
                        history.loc_of_op(op), "", True,
                    )  # fmt: skip

    def has(self, sharding: Sharding | None) -> bool:
        return sharding is not None and touches(self.axis, list(sharding.used()))

    # Axes without any connection

    def nowhere(self) -> Absence:
        """Return that no factor connects the value with the axis."""
        for at in self.history.looks.get(self.cell, ()):
            for absence in self.elsewhere(at):
                return absence
        return _plain(self.text, Reason.APART)

    def beside(self, place: Place) -> Iterator[Absence]:
        """Yield operations where the axis shards, along another factor, a dimension that shares a
        factor with a place."""
        cell, dim = place
        for step, tensor in self.history.looks.get(cell, ()):
            for factor in step.rule.tensors[tensor][dim]:
                for other, sharding in enumerate(step.before):
                    for d in dims_of(step.rule, other, factor):
                        if sharding and touches(self.axis, sharding.dims[d].axes):
                            yield self.apart(step, other, f"it shards the rest of dimension {d}")

    def elsewhere(self, at: At) -> Iterator[Absence]:
        """Yield an operation next to the value that has the axis along a factor that the value does
        not have."""
        step, tensor = at
        for other, view in enumerate(self.history.views(step)):
            for factor, cut in view.cuts.items():
                if touches(self.axis, cut.axes) and not dims_of(step.rule, tensor, factor):
                    yield self.apart(step, other, f"it shards {self.history.loop(step, factor)}")

    def apart(self, step: Step, tensor: int, detail: str) -> Absence:
        history = self.history
        name, op, loc = history.tensor(step, tensor), history.op(step), history.loc(step)
        return Absence(self.text, None, Reason.APART, name, op, loc, detail, False)


def replaced(absence: Absence) -> Absence:
    """Return an absence that does not refer to a dimension of the queried value."""
    return Absence(
        absence.axis, None, absence.reason, absence.tensor, absence.op, absence.loc,
        absence.detail, absence.reason is not Reason.APART,
    )  # fmt: skip
