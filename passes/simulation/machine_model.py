"""The interface of machines that the simulation uses; `shardir.machine.Machine` implements it."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from shardir.machine.kernel_time import KernelCounts, SizedOperation

Flops = Mapping[str, int]
"""Flops by the dtype of the first operand."""


class MachineModel(Protocol):
    """The times of computations and collectives on one machine."""

    @property
    def name(self) -> str:
        """The name of the machine."""
        ...

    @property
    def memory_bytes(self) -> int:
        """The memory capacity of one device."""
        ...

    def peak_flops(self, dtype: str) -> float:
        """Return the peak rate of matrix products of a dtype, in flops per second."""
        ...

    def matmul_seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        """Return the time of one matrix product or convolution."""
        ...

    def pointwise_seconds(
        self, flops: float, bytes_moved: float, dtype: str, operations: int = 1
    ) -> float:
        """Return the time of one kernel that is not a matrix product, with a number of fused
        operations."""
        ...

    def collective_seconds(self, kind: str, bytes_per_device: float, axes: Sequence[str]) -> float:
        """Return the time of one collective along mesh axes (`data`, or `data:(1)2`).

        The bytes are the larger of the operand and the result on one device.
        """
        ...


@runtime_checkable
class HostTransfers(Protocol):
    """The times of transfers between a device and the memory of its host."""

    def host_seconds(self, nbytes: float) -> float:
        """Return the time of a transfer of some bytes in one direction; raise `MachineError` if
        the description of the machine does not state it."""
        ...


@runtime_checkable
class OperationTimes(Protocol):
    """The times of measured operations on a machine that may have some."""

    @property
    def has_operation_times(self) -> bool:
        """True if operations were measured, so that `kernel_seconds` is the time of a kernel."""
        ...

    @property
    def views(self) -> tuple[str, ...]:
        """The operations whose results are their operands with other strides."""
        ...

    @property
    def masked_edge(self) -> float | None:
        """The columns that attention kernels compute in each row in addition to the visible ones;
        `None` if they compute all masked scores."""
        ...

    def has_operation(self, name: str, dtype: str) -> bool:
        """Return whether the time of an operation on a dtype was measured."""
        ...

    def kernel_seconds(self, counts: KernelCounts) -> float:
        """Return the time of a kernel with some work."""
        ...

    def operation_seconds(self, operation: SizedOperation) -> float:
        """Return the time of a kernel of one operation whose measured time includes its
        traffic."""
        ...

    def call_seconds(self, array_count: int) -> float:
        """Return the time of the call of a program without its kernels."""
        ...

    def merge_devices(self, count: int) -> MachineModel:
        """Return the machine on which `count` devices run as one program."""
        ...
