"""The text table of a profile."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardir.frontend.profiling.profile_data import Profile


def format_table(profile: "Profile") -> str:
    """Return the operations as a table, the slowest first, below a summary."""
    minimum = min(run.seconds for run in profile.runs)
    runs = len(profile.runs)
    lines = [
        f"profile of {profile.name}: {_format_time(profile.seconds)} a call (median of {runs}, "
        f"minimum {_format_time(minimum)}); first call {_format_time(profile.first)}"
    ]
    if profile.workers and profile.bandwidth and profile.flops:
        lines.append(
            f"this machine: {profile.workers} workers, copies {profile.bandwidth / 1e9:.1f} GB/s, "
            f"float32 arithmetic {profile.flops / 1e9:.1f} Gflop/s"
        )
    if lost := max(run.lost for run in profile.runs):
        lines.append(f"a call has too many tasks to record: its first {lost:,} are missing below")
    total = profile.seconds
    table = [("time", "share", "GB/s", "Gflop/s", "of limit", "busy", "operation", "where")]
    for row in profile.rows:
        table.append(
            (
                _format_time(row.seconds),
                f"{row.seconds / total:.1%}",
                _format_rate(row.memory / row.seconds) if row.memory else "",
                _format_rate(row.flops / row.seconds) if row.flops else "",
                "" if row.roofline_fraction is None else f"{row.roofline_fraction:.0%}",
                f"{row.busy:.0%}",
                row.name + (f" x {row.executions}" if row.executions > 1 else ""),
                row.where,
            )
        )
    between = "between operations: Python, dispatch" + (", and missing tasks" if lost else "")
    rest = (
        _format_time(profile.outside),
        f"{profile.outside / total:.1%}",
        "",
        "",
        "",
        "",
        between,
        "",
    )
    return "\n".join([*lines, "", *_align_columns([*table, rest])]) + "\n"


def _align_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: numbers aligned right, the last two columns left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for cells in table:
        right = [cell.rjust(width) for cell, width in zip(cells[:-2], widths, strict=False)]
        lines.append("  ".join([*right, cells[-2].ljust(widths[-2]), cells[-1]]).rstrip())
    return lines


def _format_rate(per_second: float) -> str:
    return f"{per_second / 1e9:.3g}"


def _format_time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds < 1000 * scale else f"{seconds:.0f} s"
    return f"{seconds / 1e-9:.3g} ns"
