"""The content of machine descriptions: rates, memory and links, each number with its source.

The rates of computations depend on their size: `efficiency` is a list of pairs of a size (flops or
bytes of one call) and the achieved fraction of the peak. A number that a description lacks is an
error when a prediction needs it; nothing replaces it.
"""

from collections.abc import Mapping, Sequence
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


def interpolate(points: Sequence[tuple[float, float]], size: float) -> float:
    """Return the value at a size between those of points, on logarithmic axes; outside of their
    sizes, the value of the nearest one."""
    if size <= points[0][0]:
        return points[0][1]
    for (before, low), (after, high) in pairwise(points):
        if size < after:
            position = log(size / before) / log(after / before)
            return float(low * (high / low) ** position)
    return points[-1][1]


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
        return interpolate(self.efficiency, amount)


@dataclass(frozen=True, slots=True)
class OperationTime:
    """The measured time of an operation for each element that it processes, as a function of a
    size: the length of a sorted dimension, or else the number of elements."""

    points: tuple[tuple[float, float], ...]
    """Pairs of a size and the seconds for each element, sorted by size. Seconds between two sizes
    are interpolated on logarithmic axes; outside, those of the nearest size hold."""
    source: str

    def seconds_per_element(self, size: float) -> float:
        """Return the seconds for each element of an operation of a given size."""
        return interpolate(self.points, size)


@dataclass(frozen=True, slots=True)
class CallTime:
    """The time of the call of a compiled program without its kernels: `seconds`, and
    `array_seconds` for each array among its arguments and results."""

    seconds: float
    array_seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class BackendTraits:
    """The properties of the backend of this package that runs programs on the machine."""

    name: str
    """The backend, whose passes form the kernels of a program."""
    views: tuple[str, ...]
    """The operations whose results are their operands with other strides. They run a kernel only
    where the program returns them."""
    masked_edge: float | None
    """The columns that attention kernels compute in each row in addition to the visible ones,
    because they skip masked scores in tiles; `None` if they compute all masked scores."""
    source: str


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
    has_rings_across: bool = False
    """True if the rings of a collective over this link and the links inside pass through all
    devices, as those of NCCL do; otherwise, such a collective is hierarchical."""


@dataclass(frozen=True, slots=True)
class HostLink:
    """The connection of one device with the memory of its host, in each direction."""

    bandwidth: Rate
    """The bytes per second in one direction; transfers in both directions overlap."""
    latency: float
    """The seconds that a transfer takes in addition."""
    source: str


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
    launches_each_operation: bool = False
    """True if the host launches a kernel for each operation, as eager frameworks do, so that a
    fused kernel takes as many launches as it has operations."""
    is_shared: bool = False
    """True if all devices of a mesh share one processor and its memory, as virtual devices do."""
    read: Rate | None = None
    """The memory bandwidth of kernels that write little."""
    operations: Mapping[str, Mapping[str, OperationTime]] = field(default_factory=dict)
    """Measured operations, by name and dtype. With them, the time of a kernel is composed of the
    operations in it."""
    call: CallTime | None = None
    """The time of the call of a program."""
    backend: BackendTraits | None = None
    """The backend that runs programs, if the description is about one."""
    host: HostLink | None = None
    """The connection with the memory of the host."""

    def sources(self) -> dict[str, str]:
        """Return the source of each table of numbers, by key."""
        found = {} if self.memory is None else {"memory": self.memory.source}
        if self.launch_source:
            found["launch"] = self.launch_source
        for section, rates in (("matmul", self.matmul), ("pointwise", self.pointwise)):
            found |= {f"{section}.{dtype}": rate.source for dtype, rate in rates.items()}
        if self.read is not None:
            found["memory.read"] = self.read.source
        for name, times in self.operations.items():
            found |= {f"operations.{name}.{dtype}": time.source for dtype, time in times.items()}
        for key, part in (("call", self.call), ("backend", self.backend), ("host", self.host)):
            if part is not None:
                found[key] = part.source
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
