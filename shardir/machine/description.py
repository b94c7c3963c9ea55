"""Machine descriptions: TOML files with rates, memory and links, each number with its source.

The rates of computations depend on their size: `efficiency` is a list of pairs of a size (flops or
bytes of one call) and the achieved fraction of the peak. A number that a file lacks is an error
when a prediction needs it; nothing replaces it.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import pairwise
from math import inf, log
from pathlib import Path
from typing import Any, Literal, NoReturn, cast

from shardir.errors import MachineError
from shardir.machine.collective_table import CollectiveTable, read_table

DESCRIPTIONS = Path(__file__).with_name("descriptions")
"""The folder of the descriptions that this package includes."""

Topology = Literal["switch", "ring", "torus", "tree"]
TOPOLOGIES: tuple[Topology, ...] = ("switch", "ring", "torus", "tree")

LOCAL = "local"
"""The name of the machine that runs this process. `shardir calibrate --local` measures it."""

COLLECTIVE_KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)

MAX_BASES = 8
"""The largest number of files that change one another with `base`."""

ROUNDING = 1e-4
"""The relative error of numbers in files that are written with few digits."""

DEFAULT_DTYPE = "default"
"""The key of the rate of every dtype that has no rate of its own."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A peak rate per second, and the fraction of it that a call of a given size achieves."""

    peak: float
    efficiency: tuple[tuple[float, float], ...]
    """Pairs of a size and a fraction, sorted by size. Fractions between two sizes are interpolated
    on logarithmic axes; outside, the fraction of the nearest size holds."""
    source: str

    def seconds(self, amount: float) -> float:
        """Return the time of a call that processes an amount."""
        return amount / (self.peak * self.fraction(amount)) if amount > 0 else 0.0

    def fraction(self, amount: float) -> float:
        """Return the achieved fraction of the peak for a call that processes an amount."""
        table = self.efficiency
        if amount <= table[0][0]:
            return table[0][1]
        for (size, low), (next_size, high) in pairwise(table):
            if amount < next_size:
                position = log(amount / size) / log(next_size / size)
                return float(low * (high / low) ** position)
        return table[-1][1]


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """The time of one collective over groups of one size: `latency` + traffic / `bandwidth`, where
    the traffic is what each device sends with a ring algorithm.
    """

    latency: float
    bandwidth: float
    source: str


@dataclass(frozen=True, slots=True)
class Link:
    """A kind of connection between devices.

    `group_size` is the number of devices that one instance connects: 8 for the NVLink switch of a
    node with 8 GPUs, `inf` for a network without such a limit. `bandwidth` is what one device sends
    per second in one direction (on a torus: over one of its links), `latency` the time of the
    shortest collective, and `hop_latency` the time that each further step adds.
    """

    name: str
    topology: Topology
    group_size: float
    bandwidth: Rate
    latency: float
    hop_latency: float
    source: str
    fits: Mapping[tuple[str, int], AlphaBeta | CollectiveTable] = field(default_factory=dict)
    """Measured collectives, by kind and group size. They replace `bandwidth` and `latency`."""
    shape: tuple[int, ...] = ()
    """The largest number of devices along each dimension of a torus."""
    wrap_multiple: int = 1
    """A dimension of a torus is a ring if its size is a multiple of this number, else a line."""


@dataclass(frozen=True)
class MachineDescription:
    """The content of a description file."""

    name: str
    """The name of the file without `.toml`."""
    path: str
    """The file."""
    text: str
    """The description in words."""
    memory_capacity: int | None
    """The bytes of memory of one device."""
    memory: Rate | None
    """The memory bandwidth of one device, in bytes per second."""
    launch_seconds: float | None
    """The time that each kernel takes in addition to its work."""
    launch_source: str
    """The source of the times of launches."""
    matmul: Mapping[str, Rate]
    """The rates of matrix products by dtype, in flops per second."""
    pointwise: Mapping[str, Rate]
    """The rates of other operations by dtype, in flops per second."""
    links: Mapping[str, Link]
    """Links by name, from the innermost (inside a node) to the outermost."""
    launch_interval: float = 0.0
    """The least time between two kernels: the time in which the host launches one."""
    is_shared: bool = False
    """True if all devices of a mesh share one processor and its memory, as virtual devices do."""

    def sources(self) -> dict[str, str]:
        """Return the source of each table of numbers, by key."""
        found = {} if self.memory is None else {"memory": self.memory.source}
        if self.launch_source:
            found["launch"] = self.launch_source
        for section, rates in (("matmul", self.matmul), ("pointwise", self.pointwise)):
            found |= {f"{section}.{dtype}": rate.source for dtype, rate in rates.items()}
        for link in self.links.values():
            found[f"links.{link.name}"] = link.source
            for (kind, group), fit in link.fits.items():
                found[f"links.{link.name}, {kind} over {group}"] = fit.source
        return found

    def assumptions(self) -> dict[str, str]:
        """Return the sources that say which numbers are assumed, by key."""
        return {key: text for key, text in self.sources().items() if "assumed" in text}

    def refuse(self, key: str, example: str) -> NoReturn:
        """Raise the error of a number that the file lacks."""
        raise MachineError(
            f"machine {self.name!r} has no {key}; add it to {self.path} with its source:\n{example}"
        )


def list_descriptions() -> tuple[str, ...]:
    """Return the names of the descriptions that this package includes."""
    return tuple(sorted(path.stem for path in DESCRIPTIONS.glob("*.toml")))


def local_description_path() -> Path:
    """Return the file that describes this machine, in the folder `SHARDIR_CACHE_DIR` or the user's
    cache folder.
    """
    folder = os.environ.get("SHARDIR_CACHE_DIR")
    if not folder:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = str(Path(base) / "shardir")
    return Path(folder).absolute() / f"{LOCAL}.toml"


def read_description(name_or_path: str | Path) -> MachineDescription:
    """Read the description with a name, or the one in a TOML file."""
    path = _find_description(name_or_path)
    return _Reader(path).description(_read_content(path))


def _find_description(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    if isinstance(name_or_path, Path) or text.endswith(".toml") or "/" in text:
        return Path(text)
    if text in list_descriptions():
        return DESCRIPTIONS / f"{text}.toml"
    if text == LOCAL:
        path = local_description_path()
        if not path.exists():
            raise MachineError(
                "this machine has not been measured; run: shardir calibrate --local (it writes "
                f"{path})"
            )
        return path
    names = (*list_descriptions(), LOCAL)
    close = get_close_matches(text, names, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise MachineError(
        f"there is no machine {text!r}; {hint}machines are {', '.join(names)}, or a path that ends "
        "in .toml"
    )


def _read_content(path: Path, depth: int = 0) -> dict[str, object]:
    """Return the content of a file, merged into the description that its key `base` names."""
    content = _read_toml(path)
    links = content.get("links")
    for link in links.values() if isinstance(links, dict) else ():
        entries = link.get("collectives", ()) if isinstance(link, dict) else ()
        for entry in entries:
            # Table files lie beside the description that names them, not beside one based on it.
            if isinstance(entry, dict) and isinstance(entry.get("file"), str):
                entry["file"] = str(path.parent / entry["file"])
    base = content.pop("base", None)
    if base is None:
        return content
    names = list_descriptions()
    if not isinstance(base, str) or not (base in names or base.endswith(".toml")):
        raise MachineError(
            f"{path}: base is {base!r}; it must be one of {', '.join(names)}, or a file that ends "
            "in .toml"
        )
    place = DESCRIPTIONS / f"{base}.toml" if base in names else path.parent / base
    if place == path or depth > MAX_BASES:
        raise MachineError(f"{path}: base is {base!r}; more than {MAX_BASES} files change others")
    return _merge(_read_content(place, depth + 1), content)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineError(
            f"cannot read the machine description {str(path)!r}: {error.strerror or error}"
        ) from None
    except ValueError as error:
        raise MachineError(f"{path} is not valid TOML: {error}") from None


def _merge(base: Mapping[str, object], changes: Mapping[str, Any]) -> dict[str, object]:
    """Return `base` with the tables of `changes` merged into its tables; other values replace."""
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        is_table = isinstance(old, dict) and isinstance(value, dict)
        merged[key] = _merge(cast(dict[str, Any], old), value) if is_table else value
    return merged


class _Reader:
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
                "links",
            },
        )
        memory = self.table(content, "memory", "")
        capacity, rate = None, None
        if memory:
            self.check_keys(memory, "memory", {"capacity", "bandwidth", "efficiency", "source"})
            if "capacity" in memory:
                self.source(memory, "memory")
                capacity = int(self.number(memory, "memory", "capacity"))
            if "bandwidth" in memory:
                rate = self.rate(memory, "memory", "bandwidth")
        launch = self.table(content, "launch", "")
        launch_seconds, launch_source, interval = None, "", 0.0
        if launch:
            self.check_keys(launch, "launch", {"seconds", "interval", "source"})
            launch_source = self.source(launch, "launch")
            launch_seconds = self.number(launch, "launch", "seconds", least=0.0)
            if "interval" in launch:
                interval = self.number(launch, "launch", "interval", least=0.0)
        description = content.get("description", "")
        if not isinstance(description, str):
            self.fail("description", "must be a string")
        is_shared = content.get("devices_share_processor", False)
        if not isinstance(is_shared, bool):
            self.fail("devices_share_processor", "must be true or false")
        links = self.table(content, "links", "")
        return MachineDescription(
            name=self.path.stem,
            path=str(self.path),
            text=description,
            memory_capacity=capacity,
            memory=rate,
            launch_seconds=launch_seconds,
            launch_source=launch_source,
            launch_interval=interval,
            matmul=self.rates(content, "matmul"),
            pointwise=self.rates(content, "pointwise"),
            links={name: self.link(links, name) for name in links},
            is_shared=is_shared,
        )

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
        if not isinstance(pairs, list) or not pairs:
            self.fail(key, fault)
        table: list[tuple[float, float]] = []
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
                self.fail(key, fault)
            size, fraction = map(float, pair)
            if not 0 < size < inf or not 0 < fraction <= 1:
                self.fail(key, f"has the pair {pair}; sizes are positive, fractions in (0, 1]")
            if table and size <= table[-1][0]:
                self.fail(key, fault)
            if table and fraction / table[-1][1] > size / table[-1][0] * (1 + ROUNDING):
                self.fail(
                    key,
                    f"rises so fast before {pair} that a larger call would take less time; the "
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
                "shape", "wrap_multiple", "source", "collectives",
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
        fits = {}
        for number, entry in enumerate(table.get("collectives", ())):
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
        )

    def fit(self, entry: Any, key: str) -> tuple[str, int, AlphaBeta | CollectiveTable]:
        if not isinstance(entry, dict):
            self.fail(key, "must be a table")
        self.check_keys(
            entry, key, {"kind", "group", "latency", "bandwidth", "file", "table", "source"}
        )
        kind, group = entry.get("kind"), entry.get("group")
        if kind not in COLLECTIVE_KINDS:
            self.fail(f"{key}.kind", f"is {kind!r}; it must be one of {COLLECTIVE_KINDS}")
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
        if not isinstance(pairs, list) or len(pairs) < 2:
            self.fail(f"{key}.table", fault)
        sizes: list[float] = []
        times: list[float] = []
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or not all(map(is_number, pair)):
                self.fail(f"{key}.table", fault)
            nbytes, seconds = map(float, pair)
            if not 0 < nbytes < inf or not 0 < seconds < inf or (sizes and nbytes <= sizes[-1]):
                self.fail(f"{key}.table", fault)
            sizes.append(nbytes)
            times.append(seconds)
        return CollectiveTable(tuple(sizes), tuple(times), source=source)

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
        is_small = value < least if least is not None else value <= 0
        if is_small or value != value or (value == inf and most != inf):
            self.fail(place, f"is {value!r}; it must be a positive number")
        return float(value)

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


def is_number(value: object) -> bool:
    """Return true for integers and floats, but not for booleans."""
    return isinstance(value, int | float) and not isinstance(value, bool)
