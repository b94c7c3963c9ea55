"""Tables of the communication of a per-device program."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.cost.communication import (
    Collective,
    CommunicationTotal,
    format_axes,
    list_collectives,
    name_counted_function,
    sum_by,
    sum_collectives,
)
from shardir.display.program_html import report_html
from shardir.display.representation import abbreviate
from shardir.errors import PartitionError
from shardir.ir.location import SourceLocations, find_location
from shardir.ir.module import Module
from shardir.passes.explain.explained_pipeline import ExplainedPipeline
from shardir.passes.explain.reports import Report, Traffic
from shardir.passes.pipeline import Pipeline
from shardir.text.literals import format_name


@dataclass(frozen=True, slots=True, repr=False)
class Communication(Report):
    """The collectives of a program.

    `rows` are in program order; the tables are sums over all executions, with those of a `while`
    counted once. `by_line` is by the line of the user's program that they serve. `counted` names
    the function that contains them if the program has several.
    """

    rows: tuple[Collective, ...]
    by_kind: tuple[tuple[str, CommunicationTotal], ...]
    by_axes: tuple[tuple[str, CommunicationTotal], ...]
    by_line: tuple[tuple[str, CommunicationTotal], ...]
    total: CommunicationTotal
    counted: str = ""


class CollectiveList(list[Collective]):
    """Collectives in program order. A REPL and a notebook show their tables."""

    __slots__ = ()

    def __repr__(self) -> str:
        return abbreviate(str(tabulate(self)))

    def _repr_html_(self) -> str:
        return report_html(str(tabulate(self)))


def communication(module: Module, *, places: SourceLocations | None = None) -> Communication:
    """Return the collectives of the first function of a partitioned program.

    `places` are lines of the text that the program was read from, for operations without a source
    line.
    """
    tables = tabulate_collectives(list_collectives(module), module.main.name, places)
    return replace(tables, counted=name_counted_function(module))


def tabulate_collectives(
    collectives: Sequence[Collective], function: str, places: SourceLocations | None = None
) -> Communication:
    """Return the tables of the collectives of a function; see `communication`."""
    return tabulate([with_source_line(row, function, places) for row in collectives])


def tabulate(rows: Sequence[Collective]) -> Communication:
    """Return the tables of collectives."""
    return Communication(
        tuple(rows),
        tuple(sum_by(rows, lambda each: each.kind).items()),
        tuple(sum_by(rows, format_axes).items()),
        tuple(sum_by(rows, lambda each: str(each.loc) if each.loc else "").items()),
        sum_collectives(rows),
    )


def with_source_line(row: Collective, function: str, places: SourceLocations | None) -> Collective:
    """Return a collective with the line of the value it serves: passes only add suffixes to
    names."""
    if row.loc is not None:
        return row
    return replace(row, loc=find_location(function, f"%{format_name(row.value)}", places))


def communication_totals(decided: Module, pipeline: ExplainedPipeline) -> Traffic:
    """Return the communication of a program whose shardings are decided, after partitioning."""
    try:
        program = Pipeline(pipeline.partitioning)(decided)
    except PartitionError as error:
        return Traffic((), str(error))
    return count_traffic(program)


def count_traffic(program: Module) -> Traffic:
    """Return the communication of a partitioned program by kind."""
    kinds: dict[str, tuple[int, int]] = {}
    for each in list_collectives(program):
        times = each.executions if each.executions is not None else 1
        count, nbytes = kinds.get(each.kind, (0, 0))
        kinds[each.kind] = (count + times, nbytes + times * each.nbytes)
    return Traffic(
        tuple((kind, *total) for kind, total in sorted(kinds.items())),
        counted=name_counted_function(program),
    )
