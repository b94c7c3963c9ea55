"""A machine with round numbers, so that expected times can be computed by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

NANOSECONDS_PER_BYTE = {"x": 4, "y": 2}


@dataclass(frozen=True)
class RoundMachine:
    """A matrix product takes 1 ns per flop, another kernel 1 ns per byte that it reads or writes,
    and a collective 4 ns per byte along x and 2 ns along y.
    """

    name: str = "round"
    memory_bytes: int = 4096

    def peak_flops(self, dtype: str) -> float:
        return 2e9

    def matmul_seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        return flops * 1e-9

    def pointwise_seconds(
        self, flops: float, bytes_moved: float, dtype: str, operations: int = 1
    ) -> float:
        return bytes_moved * 1e-9

    def collective_seconds(self, kind: str, bytes_per_device: float, axes: Sequence[str]) -> float:
        return bytes_per_device * 1e-9 * sum(NANOSECONDS_PER_BYTE[axis[0]] for axis in axes)


MACHINE = RoundMachine()
