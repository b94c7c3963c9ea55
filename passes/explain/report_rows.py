"""Rows and cells that the texts of reports share."""

from collections.abc import Sequence

from shardir.cost.communication import CommunicationTotal
from shardir.display.byte_sizes import show_bytes
from shardir.ir.module import Loc

MAX_ROWS = 20
"""Maximum number of table rows that are shown."""


def amount_cells(group: CommunicationTotal) -> tuple[str, str, str]:
    """Return the number of collectives of a group, the bytes of their results, and those sent."""
    times = f"{group.count}" if group.count == group.executions else (
        f"{group.count}, executed {group.executions} times"
    )  # fmt: skip
    return times, show_bytes(group.nbytes), show_bytes(group.sent)


def first_rows(rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return the rows that are shown."""
    return rows[:MAX_ROWS]


def omitted_rows(rows: Sequence[object]) -> list[str]:
    """Return the line that counts the rows that are not shown, if there are any."""
    return [f"  and {len(rows) - MAX_ROWS} more"] if len(rows) > MAX_ROWS else []


def location_text(loc: Loc | None) -> str:
    """Return the file and line, or an empty text."""
    return str(loc) if loc else ""


def with_location(text: str, loc: Loc | None) -> str:
    """Return a text with the file and line, if these are known."""
    return f"{text}  {loc}" if loc else text
