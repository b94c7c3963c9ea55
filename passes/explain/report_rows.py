"""Rows and cells that the texts of reports share.

Repeated rows are folded: those of the layers of a model differ only in the names of values.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from shardir.cost.communication import CommunicationTotal
from shardir.display.byte_sizes import show_bytes
from shardir.ir.module import Loc
from shardir.text.literals import VALUE_NAME

MAX_ROWS = 20
"""Maximum number of table rows that are shown."""
MIN_ROWS = 3
"""The minimum number of equal rows that are shown as one."""

Item = TypeVar("Item")
_NAME = re.compile(VALUE_NAME)
_NUMBER = re.compile(r"\d+")


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


def without_numbers(text: str) -> str:
    """Return a text without the numbers in the names of its values."""
    return _NAME.sub(lambda name: _NUMBER.sub("#", name[0]), text)


def without_names(text: str) -> str:
    """Return a text without the names of its values."""
    return _NAME.sub("%", text)


def fold_rows(
    rows: Iterable[Item], key: Callable[[Item], Hashable]
) -> list[tuple[Item, Sequence[Item]]]:
    """Return the first row of each group with an equal key, and its group.

    Groups of fewer than `MIN_ROWS` rows stay separate rows. The order is that of the first rows.
    """
    groups: dict[Hashable, list[Item]] = {}
    order: list[tuple[Item, Hashable]] = []
    for row in rows:
        row_key = key(row)
        groups.setdefault(row_key, []).append(row)
        order.append((row, row_key))
    folded: list[tuple[Item, Sequence[Item]]] = []
    seen: set[Hashable] = set()
    for row, row_key in order:
        group = groups[row_key]
        if len(group) < MIN_ROWS:
            folded.append((row, (row,)))
        elif row_key not in seen:
            seen.add(row_key)
            folded.append((row, group))
    return folded


def format_times(group: Sequence[object]) -> str:
    """Return ` x 96` for a group of 96 rows, nothing for one."""
    return f" x {len(group)}" if len(group) > 1 else ""
