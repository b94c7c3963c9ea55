"""`Machine`: the time of computations and collectives on a described machine with a mesh."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

from shardir.errors import MachineError
from shardir.machine.collective_time import time_over_levels
from shardir.machine.description import (
    DEFAULT_DTYPE,
    MachineDescription,
    Rate,
    collective_kind_fault,
)
from shardir.machine.description_files import read_description
from shardir.machine.kernel_time import (
    KernelCounts,
    KernelTime,
    SizedOperation,
    find_operation,
)
from shardir.machine.placement import Level, place_axes

_SUB_AXIS = re.compile(r"(?P<name>.+):\((?P<pre>\d+)\)(?P<size>\d+)")


@dataclass(frozen=True)
class Machine:
    """A machine whose links carry the axes of a mesh."""

    description: MachineDescription
    """The content of its file."""
    axes: Mapping[str, int]
    """The sizes of the mesh axes, major to minor."""
    placement: Mapping[str, tuple[Level, ...]]
    """The parts of each axis on links, innermost first."""
    merged: int = 1
    """The number of devices that run as one program, with the rates of all of them."""

    @property
    def name(self) -> str:
        """The name of the machine: the name of its file."""
        return self.description.name

    @property
    def memory_bytes(self) -> int:
        """The memory capacity of one device, in bytes. Devices that share a processor share it."""
        capacity = self.description.memory_capacity
        if capacity is None:
            self.description.refuse(
                "memory.capacity", '[memory]\ncapacity = 80e9  # bytes\nsource = "..."'
            )
        return capacity // self._sharers

    @property
    def launch_seconds(self) -> float:
        """The time between the starts of two kernels that do no work."""
        seconds = self.description.launch_seconds
        if seconds is None:
            self.description.refuse("launch.seconds", '[launch]\nseconds = 5e-6\nsource = "..."')
        return seconds

    def peak_flops(self, dtype: str) -> float:
        """Return the peak rate of a device in matrix products of a dtype, in flops per second."""
        return self._rate("matmul", dtype).peak / self._sharers

    def matmul_seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        """Return the time of one matrix product: the larger of the times of its arithmetic and of
        its memory traffic, and the time of a launch; at least the interval between launches.
        """
        return self._seconds("matmul", flops, bytes_moved, dtype)

    def pointwise_seconds(
        self, flops: float, bytes_moved: float, dtype: str, operations: int = 1
    ) -> float:
        """Return the time of one kernel that is not a matrix product.

        `operations` is the number of operations that it contains, for which an eager framework
        launches as many kernels.
        """
        return self._seconds("pointwise", flops, bytes_moved, dtype, operations)

    @property
    def has_operation_times(self) -> bool:
        """True if the machine has measured times of operations, of which `kernel_seconds` is
        composed."""
        return bool(self.description.operations)

    def has_operation(self, name: str, dtype: str) -> bool:
        """Return whether the time of an operation on a dtype was measured."""
        return find_operation(self.description, name, dtype) is not None

    def kernel_seconds(self, counts: KernelCounts) -> float:
        """Return the time of a kernel with some work, composed of the times of its operations."""
        return self._with_launch(
            KernelTime(self.description, self._memory, self._rate).seconds(counts)
        )

    def operation_seconds(self, operation: SizedOperation) -> float:
        """Return the time of a kernel of one operation whose measured time includes its memory
        traffic."""
        name, dtype = operation.name, operation.dtype
        measured = find_operation(self.description, name, dtype)
        if measured is None:
            self.description.refuse(
                f"operations.{name}.{dtype}",
                f'[operations.{name}.{dtype}]\nseconds_per_element = 1e-9\nsource = "..."',
            )
        return self._with_launch(operation.elements * measured.seconds_per_element(operation.size))

    @property
    def views(self) -> tuple[str, ...]:
        """The operations whose results are their operands with other strides, unless the program
        returns them."""
        backend = self.description.backend
        return () if backend is None else backend.views

    @property
    def masked_edge(self) -> float | None:
        """The columns that attention kernels compute in each row in addition to the visible ones;
        `None` if they compute all masked scores."""
        backend = self.description.backend
        return None if backend is None else backend.masked_edge

    def call_seconds(self, array_count: int) -> float:
        """Return the time of the call of a program with some arguments and results, without its
        kernels; 0 if the description does not state it."""
        call = self.description.call
        return 0.0 if call is None else call.seconds + array_count * call.array_seconds

    def merge_devices(self, count: int) -> "Machine":
        """Return the machine on which `count` devices run as one program."""
        return replace(self, merged=count)

    def collective_seconds(self, kind: str, bytes_per_device: float, axes: Sequence[str]) -> float:
        """Return the time of one collective along mesh axes.

        `kind` is the name of the operation, such as `all-reduce` or `all_reduce`. The bytes are the
        larger of the operand and the result on one device. An axis is a name, or a sub-axis as the
        text of programs writes it: `data:(2)4`.
        """
        kind = str(kind).replace("_", "-")
        if fault := collective_kind_fault(kind):
            raise MachineError(fault)
        _check_amount("bytes_per_device", bytes_per_device)
        levels = [level for axis in reversed(axes) for level in self.levels(axis)]
        order = list(self.description.links)
        levels.sort(key=lambda level: order.index(level.link.name))
        seconds = time_over_levels(kind, bytes_per_device, levels)
        # Other groups run the same collective at the same time on the shared processor.
        group = prod(level.size for level in levels)
        return seconds * self._sharers / group if self.description.is_shared else seconds

    def host_seconds(self, nbytes: float) -> float:
        """Return the time of the transfer of some bytes between a device and the memory of its
        host, in one direction."""
        _check_amount("nbytes", nbytes)
        host = self.description.host
        if host is None:
            self.description.refuse(
                "host.bandwidth",
                "[host]\nbandwidth = 32e9  # bytes per second in one direction\nefficiency = 0.8\n"
                'latency = 1e-5\nsource = "..."',
            )
        return host.latency + host.bandwidth.seconds(nbytes)

    @property
    def _sharers(self) -> int:
        """The number of programs that share one processor."""
        return prod(self.axes.values()) // self.merged if self.description.is_shared else 1

    def levels(self, axis: str) -> tuple[Level, ...]:
        """Return the parts of an axis or a sub-axis on each link, innermost first."""
        match = _SUB_AXIS.fullmatch(axis)
        name = match["name"] if match else axis
        if name not in self.placement:
            known = ", ".join(self.placement) or "(none)"
            raise MachineError(
                f"machine {self.name!r} has no link for the axis {name!r}: it was loaded with the "
                f"axes {known}; pass all axes of the mesh to load_machine"
            )
        if match is None:
            return self.placement[name]
        size, pre = int(match["size"]), int(match["pre"])
        if not size or not pre or self.axes[name] % (size * pre):
            raise MachineError(f"{axis!r} is not a sub-axis of {name!r} of size {self.axes[name]}")
        start = self.axes[name] // (pre * size)
        end = start * size
        found = []
        for level in self.placement[name]:
            low, high = max(start, level.stride), min(end, level.stride * level.size)
            if high > low:
                offset = low // level.stride
                found.append(
                    Level(
                        level.link,
                        high // low,
                        low,
                        level.dimension,
                        level.ring_stride * offset,
                        level.is_ring and high // low == level.size,
                    )
                )
        return tuple(found)

    def _seconds(
        self, section: str, flops: float, bytes_moved: float, dtype: str, operations: int = 1
    ) -> float:
        _check_amount("flops", flops)
        _check_amount("bytes_moved", bytes_moved)
        memory = self._memory
        arithmetic = self._rate(section, dtype).seconds(flops) if flops else 0.0
        return self._with_launch(max(arithmetic, memory.seconds(bytes_moved)), operations)

    @property
    def _memory(self) -> Rate:
        memory = self.description.memory
        if memory is None:
            self.description.refuse(
                "memory.bandwidth",
                '[memory]\nbandwidth = 2e12  # bytes per second\nefficiency = 0.8\nsource = "..."',
            )
        return memory

    def _with_launch(self, work: float, operations: int = 1) -> float:
        """Return the time of a kernel whose work takes some time if the processor is not shared.

        An eager framework launches as many kernels as there are `operations` in it.
        """
        launches = operations if self.description.launches_each_operation else 1
        seconds = work * self._sharers + launches * self.launch_seconds
        return max(seconds, launches * self.description.launch_interval)

    def _rate(self, section: str, dtype: str) -> Rate:
        rates = self.description.matmul if section == "matmul" else self.description.pointwise
        rate = rates.get(dtype) or rates.get(DEFAULT_DTYPE)
        if rate is None:
            self.description.refuse(
                f"{section}.{dtype}.flops_per_second",
                f'[{section}.{dtype}]\nflops_per_second = 1e12\nefficiency = 0.8\nsource = "..."',
            )
        return rate


def _check_amount(what: str, amount: float) -> None:
    """Raise `MachineError` unless an amount is a finite number that is not negative."""
    try:
        if 0 <= amount <= sys.float_info.max:
            return
    except (TypeError, ValueError):
        pass
    # The decimal digits of a huge integer may not be printable.
    shown = "too large" if isinstance(amount, int) and amount > 0 else repr(amount)
    raise MachineError(f"{what} is {shown}; use a finite number that is not negative")


def load_machine(
    name_or_path: str | Path,
    *,
    axes: Mapping[str, int] | None = None,
    links: Mapping[str, str] | None = None,
) -> Machine:
    """Return the machine of a description, with mesh axes placed on its links.

    `name_or_path` is the name of a description of this package or a TOML file. `axes` has the size
    of each mesh axis, major to minor. The last axes are placed in the node first; `links` names the
    link of an axis instead: `load_machine("a100x8", axes={"data": 8, "model": 8},
    links={"model": "nvlink"})`.
    """
    description = read_description(name_or_path)
    sizes = dict(axes or {})
    for axis, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise MachineError(f"the axis {axis!r} has size {size!r}; sizes are positive integers")
    return Machine(description, sizes, place_axes(description, sizes, links))
