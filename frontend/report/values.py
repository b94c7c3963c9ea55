"""Values of a report: their shardings, the origins of their axes, and why other axes are absent."""

from math import ceil, prod
from typing import NamedTuple

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
from shardir.passes.explain.propagation_history.absences import absences
from shardir.passes.explain.propagation_history.axis_origins import (
    AxisHop,
    OriginQuery,
    link_of_hop,
    origins_of,
    query_at_source,
)
from shardir.passes.explain.propagation_history.history import FunctionHistory, value_text
from shardir.passes.explain.reports import Absence


class ValueMeasures(NamedTuple):
    """The bytes of the largest shard and of the whole tensor, the number of shards in each
    dimension, and the number of copies of each shard."""

    nbytes: int
    total_nbytes: int
    shards: tuple[int, ...]
    copies: int


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
        self._origin_numbers: dict[str, dict[OriginQuery, int]] = {}
        self._measures: dict[tuple[int, int], ValueMeasures] = {}
        self.origins: list[OriginRecord] = []

    @property
    def links(self) -> tuple[LinkRecord, ...]:
        return self._links.items

    @property
    def absences(self) -> tuple[AbsenceRecord, ...]:
        return self._absences.items

    def record(self, history: FunctionHistory, value: Value) -> ValueRecord:
        """Return the record of a value of the prepared function."""
        explained = history.explained_value(value)
        cell, sharding = explained.cell, explained.sharding
        origins = [
            (dim, self._origin(history, (cell, dim, axis)))
            for dim, dim_sharding in enumerate(sharding.dims if sharding else ())
            for axis in dim_sharding.axes
        ]
        measures = self._measure(history, value.type, sharding)
        return ValueRecord(
            history.name,
            value_text(value),
            history.printer.sharded_type(value.type, sharding),
            self._tables.location(history.loc_of_value(value.name)),
            measures.nbytes,
            measures.total_nbytes,
            measures.shards,
            measures.copies,
            tuple(origins),
            tuple(map(self._absence, absences(history, explained))),
        )

    def _measure(
        self, history: FunctionHistory, type: TensorType, sharding: Sharding | None
    ) -> "ValueMeasures":
        """Return the measures of a tensor; programs are repetitive, so they are cached."""
        # By identity, which is faster than by equality; the history keeps both alive.
        key = id(type), id(sharding)
        result = self._measures.get(key)
        if result is None:
            shards = shard_counts(type, sharding)
            copies = history.mesh(sharding).size // prod(shards)
            result = ValueMeasures(shard_bytes(type, shards), type.nbytes, shards, copies)
            self._measures[key] = result
        return result

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
        numbers = self._origin_numbers.setdefault(history.name, {})
        waiting = [query]
        while query not in numbers:
            at = waiting[-1]
            local = origins.local(at)
            sources = [query_at_source(hop, piece) for hop, piece in local.hops]
            if at in numbers:
                waiting.pop()
            elif missing := [source for source in sources if source not in numbers]:
                waiting += missing
            else:
                waiting.pop()
                numbers[at] = len(self.origins)
                stated = tuple(
                    StatedPart(
                        _axis_text(history, at, part),
                        part.pre,
                        part.size,
                        self._tables.annotation(history.annotation(origin)),
                    )
                    for part, origin in local.stated
                )
                hops = tuple(
                    (self._link(history, hop), numbers[source])
                    for (hop, _), source in zip(local.hops, sources, strict=True)
                )
                self.origins.append(OriginRecord(stated, hops))
        return numbers[query]

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
