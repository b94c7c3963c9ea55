"""Tables as text."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len

COLUMN_GAP = "  "
"""The text between two columns."""


def align_columns(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> Iterator[str]:
    """Yield the rows in aligned columns; nothing for no rows.

    The width of a text is its number of terminal columns: that of `漢` is two.
    """
    if not rows:
        return
    whole = [head, *rows] if head else rows
    widths = [max(map(cell_len, column)) for column in zip(*whole, strict=True)]
    for row in whole:
        cells = (
            text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=True)
        )
        yield COLUMN_GAP.join(cells).rstrip()
