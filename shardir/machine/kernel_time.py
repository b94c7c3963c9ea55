"""The time of a kernel from the measured times of the operations in it.

A kernel makes one or more passes over its elements. Each takes the larger of the time of its loads
and stores, which hit a cache, and that of its arithmetic. The kernel takes the sum of its passes,
or the time in which memory transfers its operands and results if that is longer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from shardir.machine.description import DEFAULT_DTYPE, MachineDescription, OperationTime, Rate


@dataclass(frozen=True, slots=True)
class PassCounts:
    """One pass over the elements of a kernel.

    `transferred` are the bytes that it loads and stores, `elements` the results of elementwise
    operations and the operands of reductions, by operation and dtype.
    """

    transferred: float
    elements: Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """The work of a kernel: the bytes that it reads from memory and writes, its passes, and the
    flops of its matrix products by dtype.

    `group_bytes` are the bytes of the elements that the passes process before they begin again with
    others.
    """

    read: float
    written: float
    passes: tuple[PassCounts, ...] = ()
    group_bytes: float = 0.0
    products: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class SizedOperation:
    """An operation whose measured time includes its memory traffic: a sort, a cumulative sum or a
    transpose. `size` is the length of the sorted dimension, or the number of elements."""

    name: str
    dtype: str
    elements: float
    size: float


def find_operation(description: MachineDescription, name: str, dtype: str) -> OperationTime | None:
    """Return the measured time of an operation, `None` if the description has none."""
    times = description.operations.get(name, {})
    return times.get(dtype) or times.get(DEFAULT_DTYPE)


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of kernels on a machine. `rate` returns the rate of a section, `matmul` or
    `pointwise`, for a dtype."""

    description: MachineDescription
    memory: Rate
    rate: Callable[[str, str], Rate]

    def seconds(self, counts: KernelCounts) -> float:
        """Return the time of a kernel without its launch."""
        passes = sum(
            max(
                each.transferred / self._cache_bandwidth(counts.group_bytes),
                sum(self._arithmetic(*key, n) for key, n in each.elements.items()),
            )
            for each in counts.passes
        )
        products = sum(
            self.rate("matmul", dtype).seconds(flops) for dtype, flops in counts.products
        )
        return max(passes + products, self.traffic_seconds(counts.read, counts.written))

    def traffic_seconds(self, read: float, written: float) -> float:
        """Return the time in which memory transfers the operands and results of a kernel.

        Kernels that write as much as they read have the bandwidth `memory`. If one reads more, it
        has the bandwidth of reads for the difference.
        """
        total = read + written
        if not total:
            return 0.0
        copied = min(total, 2 * written)
        reads = self.description.read or self.memory
        return copied / self._bandwidth(self.memory, total) + (total - copied) / self._bandwidth(
            reads, total
        )

    def _arithmetic(self, name: str, dtype: str, elements: float) -> float:
        measured = find_operation(self.description, name, dtype)
        if measured is not None:
            return elements * measured.seconds_per_element(elements)
        return self.rate("pointwise", dtype).seconds(elements)

    def _cache_bandwidth(self, nbytes: float) -> float:
        """Return the bandwidth of loads and stores of elements that take some bytes: the highest
        one that kernels of this size or a larger size achieve."""
        larger = [fraction for size, fraction in self.memory.efficiency if size >= nbytes]
        return self.memory.peak * max(larger, default=self.memory.efficiency[-1][1])

    @staticmethod
    def _bandwidth(rate: Rate, nbytes: float) -> float:
        return rate.peak * rate.fraction(nbytes)
