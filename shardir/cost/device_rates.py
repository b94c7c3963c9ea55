"""The seconds of operations on a device that three rates describe."""

from dataclasses import dataclass

from shardir.cost.op_cost import Cost


@dataclass(frozen=True)
class DeviceRates:
    """Rates of a device: the operations and the bytes that it processes per second, and the bytes
    that it sends per second. Passes that have no machine compare operations with the defaults,
    whose ratios are typical of accelerators."""

    flops: float = 1e13
    memory: float = 1e12
    network: float = 5e10

    def seconds(self, cost: Cost) -> float:
        """Return the seconds of a computation, followed by its transfer."""
        return max(cost.flops / self.flops, cost.memory / self.memory) + cost.sent / self.network
