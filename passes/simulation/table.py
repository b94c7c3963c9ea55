"""Simulations as text."""

from collections.abc import Iterator, Sequence

from shardir.display.byte_sizes import show_bytes
from shardir.errors import count_noun
from shardir.passes.explain.report_text import align_columns
from shardir.passes.explain.reports import report_text
from shardir.passes.simulation.memory_use import LineMemory
from shardir.passes.simulation.simulation import Simulation

MAX_LINES = 10
"""The maximum number of source lines that the table of memory shows."""
MAX_NAMES = 2
"""The maximum number of values that are named for a source line."""


@report_text.register
def _(simulation: Simulation) -> str:
    parts = simulation.breakdown
    devices = count_noun(simulation.devices, "device")
    lines = [
        f"one step of @{simulation.name} on {simulation.machine}, {devices}: "
        f"{format_time(parts.duration)}",
        "",
    ]
    rows = [("computation", *_share(simulation, sum(parts.compute.values())))]
    rows += [
        (f"  {kind}", *_share(simulation, time))
        for kind, time in sorted(parts.compute.items(), key=lambda each: (-each[1], each[0]))
    ]
    rows.append(("exposed communication", *_share(simulation, parts.exposed_total)))
    rows.append(("bubbles", *_share(simulation, parts.bubbles)))
    lines += align_columns(rows, ("part", "time", "share"))
    if parts.exposed:
        lines.append("")
        lines += align_columns(
            [
                (f"  {axes}", format_time(parts.exposed[axes]), format_time(parts.hidden[axes]))
                for axes in sorted(parts.exposed)
            ],
            ("communication along", "exposed", "hidden"),
        )
        lines.append("")
        lines += align_columns(
            [
                (f"  {kind}", format_time(time))
                for kind, time in sorted(parts.collectives.items(), key=lambda each: -each[1])
            ],
            ("collectives", "time"),
        )
    if simulation.mfu is not None and simulation.hfu is not None:
        lines += ["", f"MFU {simulation.mfu:.1%}, HFU {simulation.hfu:.1%}"]
    lines += ["", *_memory(simulation)]
    lines += [f"note: {note}" for note in simulation.notes]
    return "\n".join(lines)


def _share(simulation: Simulation, time: int) -> tuple[str, str]:
    whole = simulation.breakdown.duration
    return format_time(time), f"{time / whole:.1%}" if whole else ""


def _memory(simulation: Simulation) -> Iterator[str]:
    memory = simulation.memory
    at = f", at {memory.position}" if memory.position else ""
    yield f"peak memory of each device: {show_bytes(memory.peak)}{at}"
    yield from align_columns(
        [(f"  {kind}", show_bytes(nbytes)) for kind, nbytes in memory.by_kind.items()]
    )
    yield ""
    yield from align_columns(
        [
            (f"  {row.place or 'no line'}", row.kind, show_bytes(row.nbytes), _names(row))
            for row in memory.by_line[:MAX_LINES]
        ],
        ("memory by line", "kind", "bytes", "values"),
    )
    if len(memory.by_line) > MAX_LINES:
        yield f"  and {count_noun(len(memory.by_line) - MAX_LINES, 'more line')}"
    if simulation.memory_capacity is not None:
        yield ""
        yield _fit(simulation, simulation.memory_capacity)


def _names(row: LineMemory) -> str:
    more = len(row.values) - MAX_NAMES
    return ", ".join(row.values[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _fit(simulation: Simulation, capacity: int) -> str:
    """Return a sentence that states whether the program fits, and the largest contributors to the
    peak if it does not."""
    peak = simulation.memory.peak
    if peak <= capacity:
        return f"the program fits into {show_bytes(capacity)}: {show_bytes(capacity - peak)} free"
    largest: Sequence[LineMemory] = simulation.memory.by_line[:3]
    named = ", ".join(
        f"{show_bytes(row.nbytes)} of {row.kind}"
        + (f" ({row.place})" if row.place and row.place != row.kind else "")
        for row in largest
    )
    return (
        f"the program does not fit into {show_bytes(capacity)}: {show_bytes(peak - capacity)} too "
        f"much; the peak has {named}"
    )


def format_time(picoseconds: int) -> str:
    """Return a time with a unit: `12.3 us`, `4.56 ms`."""
    seconds = picoseconds / 1e12
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns" if seconds else "0"
