"""Simulations as text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardir.display.byte_sizes import show_bytes
from shardir.display.text_tables import align_columns
from shardir.errors import count_noun
from shardir.passes.explain.reports import report_text
from shardir.passes.simulation.memory_use import LineMemory
from shardir.passes.simulation.simulation import Simulation

MAX_LINES = 10
"""The maximum number of source lines that the table of memory shows."""
MAX_REMEDIES = 10
"""The maximum number of remedies that the table shows."""
MAX_NAMES = 2
"""The maximum number of values that are named for a source line, and of shardings for a remedy."""


@dataclass(frozen=True, slots=True)
class SimulationTable:
    """A table of a simulation, with the words of each cell."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@report_text.register
def _(simulation: Simulation) -> str:
    lines = [title_of(simulation)]
    for table in time_tables(simulation):
        lines += ["", *align_columns(table.rows, table.head)]
    lines += ["", *utilization_lines(simulation), memory_title(simulation)]
    kinds, by_line = memory_tables(simulation)
    lines += [*align_columns(kinds.rows), "", *align_columns(by_line.rows, by_line.head)]
    lines += fit_lines(simulation)
    for table in remedy_tables(simulation):
        lines += ["", *align_columns(table.rows, table.head)]
    lines += [f"note: {note}" for note in simulation.notes]
    for lanes in simulation.lanes:
        lines += ["", *lanes.splitlines()]
    return "\n".join(lines)


def title_of(simulation: Simulation) -> str:
    """Return the sentence that states the time of the step."""
    devices = count_noun(simulation.devices, "device")
    return (
        f"one step of @{simulation.name} on {simulation.machine}, {devices}: "
        f"{format_time(simulation.breakdown.duration)}"
    )


def time_tables(simulation: Simulation) -> Iterator[SimulationTable]:
    """Yield the parts of the time, the communication by axes, and the collectives by kind."""
    parts = simulation.breakdown
    rows = [("computation", *_share(simulation, sum(parts.compute.values())))]
    rows += [
        (f"  {kind}", *_share(simulation, time))
        for kind, time in sorted(parts.compute.items(), key=lambda each: (-each[1], each[0]))
    ]
    rows.append(("exposed communication", *_share(simulation, parts.exposed_total)))
    rows.append(("bubbles", *_share(simulation, parts.bubbles)))
    yield SimulationTable(("part", "time", "share"), tuple(rows))
    if parts.exposed:
        axes = tuple(
            (f"  {axes}", format_time(parts.exposed[axes]), format_time(parts.hidden[axes]))
            for axes in sorted(parts.exposed)
        )
        yield SimulationTable(("communication along", "exposed", "hidden"), axes)
        kinds = tuple(
            (f"  {kind}", format_time(time))
            for kind, time in sorted(parts.collectives.items(), key=lambda each: -each[1])
        )
        yield SimulationTable(("collectives", "time"), kinds)


def utilization_lines(simulation: Simulation) -> list[str]:
    """Return a line with MFU and HFU, and an empty line, for a program that has them."""
    if simulation.mfu is None or simulation.hfu is None:
        return []
    return [f"MFU {simulation.mfu:.1%}, HFU {simulation.hfu:.1%}", ""]


def _share(simulation: Simulation, time: int) -> tuple[str, str]:
    whole = simulation.breakdown.duration
    return format_time(time), f"{time / whole:.1%}" if whole else ""


def memory_title(simulation: Simulation) -> str:
    """Return the sentence that states the peak memory."""
    memory = simulation.memory
    at = f", at {memory.position}" if memory.position else ""
    return f"peak memory of each device: {show_bytes(memory.peak)}{at}"


def memory_tables(simulation: Simulation) -> tuple[SimulationTable, SimulationTable]:
    """Return the memory by kind, and by line."""
    memory = simulation.memory
    kinds = tuple((f"  {kind}", show_bytes(nbytes)) for kind, nbytes in memory.by_kind.items())
    rows = [
        (f"  {row.place or 'no line'}", str(row.kind), show_bytes(row.nbytes), _names(row))
        for row in memory.by_line[:MAX_LINES]
    ]
    left = memory.by_line[MAX_LINES:]
    if left:
        nbytes = show_bytes(sum(row.nbytes for row in left))
        rows.append((f"  {count_noun(len(left), 'more line')}", "", nbytes, ""))
    return (
        SimulationTable(("memory by kind", "bytes"), kinds),
        SimulationTable(("memory by line", "kind", "bytes", "values"), tuple(rows)),
    )


def fit_lines(simulation: Simulation) -> list[str]:
    """Return an empty line and whether the program fits, if the simulation has a capacity."""
    if simulation.memory_capacity is None:
        return []
    return ["", _fit(simulation, simulation.memory_capacity)]


def remedy_tables(simulation: Simulation) -> Iterator[SimulationTable]:
    """Yield the best remedies of a program that does not fit, if changes were simulated."""
    if not simulation.evaluated_changes:
        return
    rows = [
        (
            f"  {_changes(remedy.changes)}",
            format_time(remedy.duration),
            show_bytes(remedy.peak),
            "yes" if remedy.fits else "no",
        )
        for remedy in simulation.remedies[:MAX_REMEDIES]
    ]
    head = f"remedies, of {count_noun(simulation.evaluated_changes, 'simulated change')}"
    none = ("  none of them reduces the peak", "", "", "")
    yield SimulationTable((head, "time", "peak", "fits"), tuple(rows or [none]))


def _changes(changes: Sequence[str]) -> str:
    """Return the changes of a remedy, of which at most the first few are named."""
    shown = MAX_NAMES + changes[0].startswith("donate_argnums")
    more = len(changes) - shown
    return ", ".join(changes[:shown]) + (f" and {more} more" if more > 0 else "")


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
