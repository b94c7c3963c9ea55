"""Machines for tests of plans."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SimpleMachine:
    """A machine whose times follow from few numbers: seconds for each byte along each axis, and for
    each flop."""

    seconds_per_byte: dict[str, float] = field(default_factory=dict)
    seconds_per_flop: float = 1e-9
    latency: float = 1e-6
    memory_bytes: int = 10**12
    name: str = "simple"

    def peak_flops(self, dtype: str) -> float:
        return 1 / self.seconds_per_flop

    def matmul_seconds(self, flops: float, bytes_moved: float, dtype: str) -> float:
        return flops * self.seconds_per_flop

    def pointwise_seconds(
        self, flops: float, bytes_moved: float, dtype: str, operations: int = 1
    ) -> float:
        return bytes_moved * 1e-12

    def collective_seconds(self, kind: str, bytes_per_device: float, axes: Sequence[str]) -> float:
        rate = max(self.seconds_per_byte.get(axis, 1e-9) for axis in axes)
        twice = 2 if kind.replace("_", "-") == "all-reduce" else 1
        return self.latency + twice * bytes_per_device * rate
