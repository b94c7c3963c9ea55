"""Tables as text."""

from collections.abc import Iterator, Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table


def align_columns(rows: Sequence[tuple[str, ...]], head: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the rows in aligned columns."""
    if not rows:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=bool(head), pad_edge=False)
    for i in range(len(rows[0])):
        table.add_column(head[i] if head else "", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    out = StringIO()
    console = Console(file=out, width=10_000, color_system=None, markup=False, highlight=False)
    console.print(table)
    yield from (line.rstrip() for line in out.getvalue().splitlines())
