"""What a per-device program communicates, in tables."""

from dataclasses import dataclass

from shardir.communication import Collective, Total, axes_word, collectives, total, totals
from shardir.ir import Module
from shardir.passes.explain.data import Report


@dataclass(frozen=True, slots=True)
class Communication(Report):
    """The collectives of a program.

    `rows` are in program order; the tables add them up, each over all executions, those of a
    `while` counted once. `by_line` has the line of the user's program that they serve.
    """

    rows: tuple[Collective, ...]
    by_kind: tuple[tuple[str, Total], ...]
    by_axes: tuple[tuple[str, Total], ...]
    by_line: tuple[tuple[str, Total], ...]
    total: Total


def communication(module: Module) -> Communication:
    """The collectives of the first function of a program that has been partitioned."""
    rows = collectives(module)
    return Communication(
        tuple(rows),
        tuple(totals(rows, lambda each: each.kind).items()),
        tuple(totals(rows, axes_word).items()),
        tuple(totals(rows, lambda each: str(each.loc) if each.loc else "").items()),
        total(rows),
    )
