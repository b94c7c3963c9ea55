"""Values of a report: their shardings, the origins of their axes, and why other axes are absent."""

from math import ceil, prod

from shardir.frontend.report.records import (
    AbsenceRecord,
    LinkRecord,
    OriginRecord,
    StatedPart,
    ValueRecord,
)
from shardir.frontend.report.tables import ReportTables, Table
from shardir.ir.module import Value
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.passes.explain.absences import absences
from shardir.passes.explain.axis_origins import (
    AxisHop,
    OriginQuery,
    link_of_hop,
    origins_of,
    query_at_source,
)
from shardir.passes.explain.history import FunctionHistory, value_text
from shardir.passes.explain.reports import Absence


class ValueTables:
    """Records of the values of functions; values share the origins of their axes.

    The path of an axis through a deep model is long, and most of it is that of other values, so
    each origin is stored once and refers to the ones before it.
    """

    def __init__(self, tables: ReportTables) -> None:
        self._tables = tables
        self._links: Table[LinkRecord] = Table()
        self._absences: Table[AbsenceRecord] = Table()
        self._link_of_hop: dict[tuple[str, int, int, int, int], int] = {}
        self._absence_numbers: dict[Absence, int] = {}
        self._origin_numbers: dict[tuple[str, OriginQuery], int] = {}
        self.origins: list[OriginRecord] = []

    @property
    def links(self) -> tuple[LinkRecord, ...]:
        return self._links.items

    @property
    def absences(self) -> tuple[AbsenceRecord, ...]:
        return self._absences.items

    def record(self, history: FunctionHistory, value: Value) -> ValueRecord:
        """Return the record of a value of the prepared function."""
        written = history.story.written[value]
        sharding = written.sharding
        cell = history.story.cells[value]
        origins = [
            (dim, self._origin(history, (cell, dim, axis, origins_of(history).end)))
            for dim, cut in enumerate(sharding.dims if sharding else ())
            for axis in cut.axes
        ]
        mesh = history.mesh(sharding)
        shards = shard_counts(written.type, sharding)
        return ValueRecord(
            history.name,
            value_text(value),
            history.printer.sharded_type(written.type, sharding),
            self._tables.location(history.loc_of_value(value.name)),
            shard_bytes(written.type, shards),
            written.type.nbytes,
            shards,
            mesh.size // prod(shards),
            tuple(origins),
            tuple(map(self._absence, absences(history, value))),
        )

    def _absence(self, absence: Absence) -> int:
        result = self._absence_numbers.get(absence)
        if result is None:
            record = AbsenceRecord(
                absence.axis,
                -1 if absence.dim is None else absence.dim,
                absence.reason.value,
                absence.tensor,
                absence.op,
                self._tables.location(absence.loc),
                absence.detail,
                absence.far,
            )
            result = self._absence_numbers[absence] = self._absences.number(record)
        return result

    def _origin(self, history: FunctionHistory, query: OriginQuery) -> int:
        """Return the index of the origin of an axis; those on its path precede it."""
        origins = origins_of(history)
        waiting = [query]
        while True:
            key, local = origins.local(waiting[-1])
            number = self._origin_numbers.get((history.name, key))
            if number is None:
                sources = [origins.local(query_at_source(hop, piece))[0]
                           for hop, piece in local.hops]  # fmt: skip
                missing = [
                    source for source in sources
                    if (history.name, source) not in self._origin_numbers
                ]  # fmt: skip
                if missing:
                    waiting += missing
                    continue
                number = self._origin_numbers[history.name, key] = len(self.origins)
                stated = tuple(
                    StatedPart(
                        _axis_text(history, key, part),
                        part.pre,
                        part.size,
                        self._tables.annotation(history.annotation(said)),
                    )
                    for part, said in local.stated
                )
                hops = tuple(
                    (self._link(history, hop), self._origin_numbers[history.name, source])
                    for (hop, _), source in zip(local.hops, sources, strict=True)
                )
                self.origins.append(OriginRecord(stated, hops))
            waiting.pop()
            if not waiting:
                return number

    def _link(self, history: FunctionHistory, hop: AxisHop) -> int:
        key = history.name, hop.position, hop.factor, hop.source, hop.target
        result = self._link_of_hop.get(key)
        if result is None:
            link = link_of_hop(history, hop)
            record = LinkRecord(
                link.source,
                link.target,
                link.op,
                link.loop,
                link.way,
                link.priority,
                link.round,
                self._tables.location(link.loc),
            )
            result = self._link_of_hop[key] = self._links.number(record)
        return result


def _axis_text(history: FunctionHistory, query: OriginQuery, axis: Axis) -> str:
    return history.axis(axis, history.mesh(history.final_shardings.get(query[0])))


def shard_counts(type: TensorType, sharding: Sharding | None) -> tuple[int, ...]:
    """Return the number of shards in each dimension."""
    if sharding is None:
        return (1,) * type.rank
    return tuple(dim.num_shards for dim in sharding.dims)


def shard_bytes(type: TensorType, shards: tuple[int, ...]) -> int:
    """Return the bytes of the largest shard."""
    local = (ceil(size / count) for size, count in zip(type.shape, shards, strict=True))
    return prod(local) * (type.nbytes // type.size if type.size else 0)
