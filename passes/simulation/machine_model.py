"""The interface of machines that the simulation uses; `shardir.machine.Machine` implements it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

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

    def pointwise_seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        """Return the time of one kernel that is not a matrix product."""
        ...

    def collective_seconds(self, kind: str, bytes_per_device: float, axes: Sequence[str]) -> float:
        """Return the time of one collective along mesh axes (`data`, or `data:(1)2`).

        The bytes are the larger of the operand and the result on one device.
        """
        ...
