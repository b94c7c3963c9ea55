"""Tables of the communication of a per-device program."""

from dataclasses import dataclass, replace

from shardir.communication import Collective, Total, axes_word, collectives, total, totals
from shardir.ir import Module
from shardir.passes.explain.data import Report
from shardir.passes.explain.history import Places
from shardir.text.literals import show_name


@dataclass(frozen=True, slots=True)
class Communication(Report):
    """The collectives of a program.

    `rows` are in program order; the tables are sums over all executions, with those of a `while`
    counted once. `by_line` is by the line of the user's program that they serve.
    """

    rows: tuple[Collective, ...]
    by_kind: tuple[tuple[str, Total], ...]
    by_axes: tuple[tuple[str, Total], ...]
    by_line: tuple[tuple[str, Total], ...]
    total: Total


def communication(module: Module, *, places: Places | None = None) -> Communication:
    """Return the collectives of the first function of a partitioned program.

    `places` are lines of the text that the program was read from, for operations without a source
    line.
    """
    rows = [located(row, module.main.name, places or {}) for row in collectives(module)]
    return Communication(
        tuple(rows),
        tuple(totals(rows, lambda each: each.kind).items()),
        tuple(totals(rows, axes_word).items()),
        tuple(totals(rows, lambda each: str(each.loc) if each.loc else "").items()),
        total(rows),
    )


def located(row: Collective, function: str, places: Places) -> Collective:
    """Return a collective with the line of the value it serves: passes only add suffixes to
    names."""
    name = row.value
    while row.loc is None and name:
        found = places.get((function, f"%{show_name(name)}"))
        if found is not None:
            return replace(row, loc=found)
        name = name.rpartition(".")[0]
    return row
