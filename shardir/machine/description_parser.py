"""The parser of machine descriptions: it checks the tables of a TOML file.

Its errors name the file, the key, and what the key must be.
"""

from collections.abc import Iterator
from dataclasses import replace
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, NoReturn, cast

from shardir.errors import MachineError
from shardir.machine.collective_table import CollectiveTable, read_table
from shardir.machine.description import (
    TOPOLOGIES,
    AlphaBeta,
    BackendTraits,
    CallTime,
    HostLink,
    Link,
    MachineDescription,
    OperationTime,
    Rate,
    Topology,
    collective_kind_fault,
)

MIN_POSITIVE_NUMBER = 1e-100
"""The least positive rate or fraction; products of smaller ones may be zero."""
ROUNDING = 1e-4
"""The relative error of numbers in files that are written with few digits."""


class DescriptionParser:
    """Checks the content of one file, and names the file and the key in errors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def description(self, content: dict[str, object]) -> MachineDescription:
        self.check_keys(
            content,
            "",
            {
                "description",
                "devices_share_processor",
                "memory",
                "launch",
                "matmul",
                "pointwise",
                "operations",
                "call",
                "backend",
                "host",
                "links",
            },
        )
        capacity, bandwidth, read = self.memory(self.table(content, "memory", ""))
        launch = self.table(content, "launch", "")
        seconds, interval, source = self.launch(launch)
        description = content.get("description", "")
        if not isinstance(description, str):
            self.fail("description", "must be a string")
        links = self.table(content, "links", "")
        return MachineDescription(
            name=self.path.stem,
            path=str(self.path),
            text=description,
            memory_capacity=capacity,
            memory=bandwidth,
            launch_seconds=seconds,
            launch_source=source,
            launch_interval=interval,
            launches_each_operation=self.flag(launch, "launch", "each_operation"),
            matmul=self.rates(content, "matmul"),
            pointwise=self.rates(content, "pointwise"),
            links={name: self.link(links, name) for name in links},
            is_shared=self.flag(content, "", "devices_share_processor"),
            read=read,
            operations=self.operations(content),
            call=self.call(self.table(content, "call", "")),
            backend=self.backend(self.table(content, "backend", "")),
            host=self.host(self.table(content, "host", "")),
        )

    def memory(self, memory: dict[str, Any]) -> tuple[int | None, Rate | None, Rate | None]:
        """Return the capacity, the bandwidth, and the bandwidth of kernels that write little, each
        if the file states it."""
        self.check_keys(memory, "memory", {"capacity", "bandwidth", "efficiency", "source", "read"})
        capacity, bandwidth, read = None, None, None
        if "capacity" in memory:
            self.source(memory, "memory")
            capacity = int(self.number(memory, "memory", "capacity"))
        if "bandwidth" in memory:
            bandwidth = self.rate(memory, "memory", "bandwidth")
        if "read" in memory:
            table, key = self.table(memory, "read", "memory"), "memory.read"
            self.check_keys(table, key, {"bandwidth", "efficiency", "source"})
            read = self.rate(table, key, "bandwidth")
        return capacity, bandwidth, read

    def operations(self, content: dict[str, object]) -> dict[str, dict[str, OperationTime]]:
        found: dict[str, dict[str, OperationTime]] = {}
        tables = self.table(content, "operations", "")
        for name in tables:
            by_dtype = self.table(tables, name, "operations")
            for dtype in by_dtype:
                key = f"operations.{name}.{dtype}"
                table = self.table(by_dtype, dtype, f"operations.{name}")
                self.check_keys(table, key, {"seconds_per_element", "source"})
                found.setdefault(name, {})[dtype] = self.operation(table, key)
        return found

    def operation(self, table: dict[str, Any], key: str) -> OperationTime:
        seconds = table.get("seconds_per_element")
        if not isinstance(seconds, list):
            number = self.number(table, key, "seconds_per_element")
            return OperationTime(((1.0, number),), self.source(table, key))
        fault = "must be a number, or pairs of a size and seconds in order of size"
        place = f"{key}.seconds_per_element"
        points: list[tuple[float, float]] = []
        for pair in self.pairs(seconds, 1, place, fault):
            size, time = map(to_float, pair)
            if not 0 < size < inf or not 0 < time < inf or (points and size <= points[-1][0]):
                self.fail(place, fault)
            points.append((size, time))
        return OperationTime(tuple(points), self.source(table, key))

    def call(self, call: dict[str, Any]) -> CallTime | None:
        """Return the time of the call of a program, if the file states it."""
        if not call:
            return None
        self.check_keys(call, "call", {"seconds", "array_seconds", "source"})
        return CallTime(
            self.number(call, "call", "seconds", least=0.0),
            self.number(call, "call", "array_seconds", least=0.0),
            self.source(call, "call"),
        )

    def backend(self, backend: dict[str, Any]) -> BackendTraits | None:
        """Return the traits of the backend, if the file names one."""
        if not backend:
            return None
        self.check_keys(backend, "backend", {"name", "views", "masked_edge", "source"})
        name, views = backend.get("name"), backend.get("views", [])
        if not isinstance(name, str) or not name:
            self.fail("backend.name", "must be the name of a backend")
        if not isinstance(views, list) or not all(isinstance(each, str) for each in views):
            self.fail("backend.views", "must be a list of names of operations")
        edge = None
        if "masked_edge" in backend:
            edge = self.number(backend, "backend", "masked_edge", least=0.0)
        return BackendTraits(name, tuple(views), edge, self.source(backend, "backend"))

    def host(self, host: dict[str, Any]) -> HostLink | None:
        """Return the connection with the memory of the host, if the file states it."""
        if not host:
            return None
        self.check_keys(host, "host", {"bandwidth", "efficiency", "latency", "source"})
        return HostLink(
            self.rate(host, "host", "bandwidth"),
            self.number(host, "host", "latency", least=0.0),
            self.source(host, "host"),
        )

    def launch(self, launch: dict[str, Any]) -> tuple[float | None, float, str]:
        """Return the time of a launch, the interval between two launches, and their source."""
        if not launch:
            return None, 0.0, ""
        self.check_keys(launch, "launch", {"seconds", "interval", "each_operation", "source"})
        source = self.source(launch, "launch")
        seconds = self.number(launch, "launch", "seconds", least=0.0)
        interval = 0.0
        if "interval" in launch:
            interval = self.number(launch, "launch", "interval", least=0.0)
        return seconds, interval, source

    def rates(self, content: dict[str, object], section: str) -> dict[str, Rate]:
        rates = {}
        tables = self.table(content, section, "")
        for dtype in tables:
            key = f"{section}.{dtype}"
            table = self.table(tables, dtype, section)
            self.check_keys(table, key, {"flops_per_second", "efficiency", "source"})
            rates[dtype] = self.rate(table, key, "flops_per_second")
        return rates

    def rate(self, table: dict[str, object], key: str, name: str) -> Rate:
        peak = self.number(table, key, name)
        efficiency = table.get("efficiency")
        if efficiency is None:
            self.fail(
                f"{key}.efficiency",
                "is missing; write the achieved fraction of the peak, such as 0.8, or pairs of a "
                "size and a fraction, such as [[1e6, 0.5], [1e9, 0.8]]",
            )
        if isinstance(efficiency, int | float):
            efficiency = [[1.0, efficiency]]
        return Rate(peak, self.efficiency(efficiency, f"{key}.efficiency"), self.source(table, key))

    def efficiency(self, pairs: Any, key: str) -> tuple[tuple[float, float], ...]:
        fault = "must be a fraction, or pairs of a size and a fraction in order of size"
        table: list[tuple[float, float]] = []
        for pair in self.pairs(pairs, 1, key, fault):
            size, fraction = floats = list(map(to_float, pair))
            if not 0 < size < inf or not MIN_POSITIVE_NUMBER <= fraction <= 1:
                self.fail(key, f"has the pair {floats}; sizes are positive, fractions in (0, 1]")
            if table and size <= table[-1][0]:
                self.fail(key, fault)
            if table and fraction / table[-1][1] > size / table[-1][0] * (1 + ROUNDING):
                self.fail(
                    key,
                    f"rises so fast before {floats} that a larger call would take less time; the "
                    "fraction may grow at most as fast as the size",
                )
            table.append((size, fraction))
        return tuple(table)

    def link(self, links: dict[str, Any], name: str) -> Link:
        key = f"links.{name}"
        table = self.table(links, name, "links")
        self.check_keys(
            table,
            key,
            {
                "topology", "group_size", "bandwidth", "efficiency", "latency", "hop_latency",
                "shape", "wrap_multiple", "rings_across", "source", "collectives",
            },
        )  # fmt: skip
        topology = table.get("topology")
        if topology not in TOPOLOGIES:
            self.fail(f"{key}.topology", f"is {topology!r}; it must be one of {TOPOLOGIES}")
        shape = table.get("shape", [])
        if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape):
            self.fail(f"{key}.shape", "must be a list of positive integers")
        if (topology == "torus") != bool(shape):
            self.fail(f"{key}.shape", "must be stated for a torus, and only for a torus")
        wrap = table.get("wrap_multiple", 1)
        if type(wrap) is not int or wrap < 1:
            self.fail(f"{key}.wrap_multiple", "must be a positive integer")
        entries = table.get("collectives", [])
        if not isinstance(entries, list):
            self.fail(f"{key}.collectives", f"must be tables; write [[{key}.collectives]]")
        fits = {}
        for number, entry in enumerate(entries):
            place = f"{key}.collectives[{number}]"
            kind, group, fit = self.fit(entry, place)
            fits[kind, group] = fit
        return Link(
            name=name,
            topology=cast(Topology, topology),
            group_size=self.number(table, key, "group_size", most=inf),
            bandwidth=self.rate(table, key, "bandwidth"),
            latency=self.number(table, key, "latency", least=0.0),
            hop_latency=self.number(table, key, "hop_latency", least=0.0),
            source=self.source(table, key),
            fits=fits,
            shape=tuple(shape),
            wrap_multiple=wrap,
            has_rings_across=self.flag(table, key, "rings_across"),
        )

    def fit(self, entry: Any, key: str) -> tuple[str, int, AlphaBeta | CollectiveTable]:
        if not isinstance(entry, dict):
            self.fail(key, "must be a table")
        self.check_keys(
            entry, key, {"kind", "group", "latency", "bandwidth", "file", "table", "source"}
        )
        kind, group = entry.get("kind"), entry.get("group")
        if fault := collective_kind_fault(kind):
            self.fail(f"{key}.kind:", fault)
        if type(group) is not int or group < 2:
            self.fail(f"{key}.group", f"is {group!r}; it must be a number of devices, at least 2")
        source = self.source(entry, key)
        if "file" in entry:
            if not isinstance(entry["file"], str):
                self.fail(f"{key}.file", "must be the name of a table file")
            table = read_table(Path(entry["file"]))
            return cast(str, kind), group, replace(table, source=source)
        if "table" in entry:
            return cast(str, kind), group, self.inline_table(entry["table"], key, source)
        latency = self.number(entry, key, "latency", least=0.0)
        return cast(str, kind), group, AlphaBeta(
            latency, self.number(entry, key, "bandwidth"), source
        )  # fmt: skip

    def inline_table(self, pairs: Any, key: str, source: str) -> CollectiveTable:
        fault = "must be at least two pairs of bytes and seconds, in order of bytes"
        sizes: list[float] = []
        times: list[float] = []
        for pair in self.pairs(pairs, 2, f"{key}.table", fault):
            nbytes, seconds = map(to_float, pair)
            if not 0 < nbytes < inf or not 0 < seconds < inf or (sizes and nbytes <= sizes[-1]):
                self.fail(f"{key}.table", fault)
            sizes.append(nbytes)
            times.append(seconds)
        return CollectiveTable(tuple(sizes), tuple(times), source=source)

    def pairs(self, pairs: Any, least: int, key: str, fault: str) -> Iterator[list[int | float]]:
        """Yield the pairs of numbers in a list that has at least `least` pairs."""
        if not isinstance(pairs, list) or len(pairs) < least:
            self.fail(key, fault)
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
                self.fail(key, fault)
            yield pair

    def table(self, content: dict[str, object], name: str, parent: str) -> dict[str, Any]:
        table = content.get(name, {})
        if not isinstance(table, dict):
            self.fail(f"{parent}.{name}".lstrip("."), "must be a table")
        return cast(dict[str, Any], table)

    def number(
        self,
        table: dict[str, Any],
        key: str,
        name: str,
        *,
        least: float | None = None,
        most: float | None = None,
    ) -> float:
        """Return a number above 0, or at least `least`; `most=inf` accepts infinity."""
        value = table.get(name)
        place = f"{key}.{name}"
        if value is None:
            self.fail(place, "is missing; add the number, and its source to the table")
        if not is_number(value):
            self.fail(place, f"is {value!r}; it must be a number")
        number = to_float(value)
        is_small = number < least if least is not None else number < MIN_POSITIVE_NUMBER
        if is_small or number != number or (number == inf and most != inf):
            shown = "too large" if number == inf and isinstance(value, int) else repr(value)
            self.fail(place, f"is {shown}; it must be a positive number")
        return number

    def flag(self, table: dict[str, Any], key: str, name: str) -> bool:
        """Return a boolean, false by default."""
        value = table.get(name, False)
        if not isinstance(value, bool):
            self.fail(f"{key}.{name}".lstrip("."), "must be true or false")
        return value

    def source(self, table: dict[str, Any], key: str) -> str:
        source = table.get("source")
        if not isinstance(source, str) or not source.strip():
            self.fail(
                f"{key}.source",
                "is missing; state where the numbers of this table come from: a data sheet, a "
                'publication, or "fitted to ..."',
            )
        return source

    def check_keys(self, table: dict[str, object], key: str, known: set[str]) -> None:
        for name in table:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"did you mean {close[0]!r}? " if close else ""
                self.fail(f"{key}.{name}".lstrip("."), f"is unknown; {hint}keys are "
                          + ", ".join(sorted(known)))  # fmt: skip

    def fail(self, key: str, problem: str) -> NoReturn:
        raise MachineError(f"{self.path}: {key} {problem}")


def to_float(value: float) -> float:
    """Return a number as a float; infinity for an integer that is larger than every float."""
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def is_number(value: object) -> bool:
    """Return true for integers and floats, but not for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)
