"""The values that are alive at the peak of the memory of a per-device program."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from shardir.cost.communication import name_counted_function
from shardir.cost.memory import MemoryEstimate, MemoryTimeline, estimate_memory, memory_timeline
from shardir.ir.location import SourceLocations, find_location
from shardir.ir.module import Loc, Module, Op, Value
from shardir.passes.explain.propagation_history.history import value_text
from shardir.passes.explain.reports import Report
from shardir.text.printer import Printer


class LiveValue(NamedTuple):
    """A value that is alive at the peak; `role` is argument, value, or block for nested values."""

    name: str
    type: str
    nbytes: int
    role: str
    loc: Loc | None


@dataclass(frozen=True, slots=True, repr=False)
class PeakMemory(Report):
    """The memory of one run on each device, and the values that are alive at its peak.

    `at` is the operation at the peak, empty for a program without operations; `rows` are sorted by
    bytes. `counted` names the function if the program has several.
    """

    estimate: MemoryEstimate
    at: str
    rows: tuple[LiveValue, ...]
    counted: str = ""

    @property
    def by_line(self) -> list[tuple[str, int]]:
        """The bytes at the peak by source line, the largest number first."""
        lines: dict[str, int] = {}
        for row in self.rows:
            line = str(row.loc) if row.loc else ""
            lines[line] = lines.get(line, 0) + row.nbytes
        return sorted(lines.items(), key=lambda each: -each[1])


def peak_memory(module: Module, *, places: SourceLocations | None = None) -> PeakMemory:
    """Return the values at the peak of the first function of a partitioned program.

    `places` are those of `communication`.
    """
    memory = memory_timeline(module)
    ops = module.main.body.ops
    return PeakMemory(
        estimate_memory(module),
        name_of_op(ops[memory.position]) if ops else "",
        tuple(live_values(module, memory, places)),
        name_counted_function(module),
    )


def live_values(
    module: Module, memory: MemoryTimeline, places: SourceLocations | None
) -> Iterator[LiveValue]:
    """Yield the values that are alive at the peak, the largest first."""
    printer, body = Printer(module.meshes), module.main.body
    makers = {value: op for op in body.ops for value in op.results}

    def location(value: Value) -> Loc | None:
        maker = makers.get(value)
        if maker is not None:
            return location_of_op(maker, module.main.name, places)
        return find_location(module.main.name, value_text(value), places)

    values = [(value, "argument") for value in body.params]
    values += [(value, "value") for value in memory.values]
    rows = [
        LiveValue(
            value_text(value),
            printer.sharded_type(value.type, value.sharding),
            value.type.nbytes,
            role,
            location(value),
        )
        for value, role in values
    ]
    if memory.inside:
        op = body.ops[memory.position]
        place = location_of_op(op, module.main.name, places)
        rows.append(LiveValue(name_of_op(op), op.name, memory.inside, "block", place))
    yield from sorted(rows, key=lambda row: -row.nbytes)


def location_of_op(op: Op, function: str, places: SourceLocations | None) -> Loc | None:
    """Return the source line of an operation, or of the value that it was made for."""
    if op.loc is not None or not op.results:
        return op.loc
    return find_location(function, value_text(op.results[0]), places)


def name_of_op(op: Op) -> str:
    """Return the results of an operation, or its name if it has none."""
    return ", ".join(map(value_text, op.results)) or op.name
