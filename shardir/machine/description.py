"""The content of machine descriptions: rates, memory and links, each number with its source.

The rates of computations depend on their size: `efficiency` is a list of pairs of a size (flops or
bytes of one call) and the achieved fraction of the peak. A number that a description lacks is an
error when a prediction needs it; nothing replaces it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import log
from typing import Literal, NoReturn

from shardir.errors import MachineError
from shardir.machine.collective_table import CollectiveTable

Topology = Literal["switch", "ring", "torus", "tree"]
TOPOLOGIES: tuple[Topology, ...] = ("switch", "ring", "torus", "tree")

COLLECTIVE_KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)

DEFAULT_DTYPE = "default"
"""The key of the rate of every dtype that has no rate of its own."""


def collective_kind_fault(kind: object) -> str | None:
    """Return why the name of a collective is not valid; `None` if it is."""
    if kind in COLLECTIVE_KINDS:
        return None
    return f"{kind!r} is not a collective; the collectives are {', '.join(COLLECTIVE_KINDS)}"


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
