"""The seconds of operations on a device that three rates describe."""

from dataclasses import dataclass

from shardir.cost.op_cost import Cost


@dataclass(frozen=True)
class DeviceRates:
    """Rates of a device: the operations and the bytes that it processes per second, the bytes that
    it sends per second, and the seconds until the first byte of a transfer arrives. Passes that
    have no machine compare operations with the defaults, whose ratios are typical of
    accelerators."""

    flops: float = 1e13
    memory: float = 1e12
    network: float = 5e10
    latency: float = 1e-5

    def seconds(self, cost: Cost) -> float:
        """Return the seconds of a computation, followed by its transfers."""
        compute = max(cost.flops / self.flops, cost.memory / self.memory)
        return compute + self.transfer_seconds(cost)

    def transfer_seconds(self, cost: Cost) -> float:
        """Return the seconds of the transfers only."""
        return cost.transfers * self.latency + cost.sent / self.network
