"""Every operation has a time on a machine whose operations were measured."""

from dataclasses import dataclass, field
from math import inf

import pytest

from shardir.machine.kernel_time import KernelCounts, SizedOperation
from shardir.passes.simulation import simulate
from tests.op_sample import Sample
from tests.passes.simulation.round_machine import RoundMachine
from tests.samples import SAMPLES


@dataclass(frozen=True)
class MeasuredMachine(RoundMachine):
    """A machine with measured times of all operations, which lists the work of its kernels."""

    has_operation_times: bool = True
    views: tuple[str, ...] = ("slice", "transpose")
    masked_edge: float | None = 0.0
    kernels: list[KernelCounts | SizedOperation] = field(default_factory=list)

    def has_operation(self, name: str, dtype: str) -> bool:
        return True

    def kernel_seconds(self, counts: KernelCounts) -> float:
        self.kernels.append(counts)
        return 1e-6

    def operation_seconds(self, operation: SizedOperation) -> float:
        self.kernels.append(operation)
        return 1e-6

    def call_seconds(self, array_count: int) -> float:
        return 1e-3 * array_count

    def merge_devices(self, count: int) -> "MeasuredMachine":
        return self


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_every_operation_has_a_time(sample: Sample) -> None:
    module, machine = sample.module(), MeasuredMachine()
    simulation = simulate(module, machine, fusion="")
    arrays = len(module.main.body.params) + len(module.main.body.returns)
    assert simulation.breakdown.compute["call of the program"] == arrays * 10**9
    kernels = simulation.breakdown.duration - arrays * 10**9
    assert kernels % 10**6 == 0  # A loop runs the kernels of its body several times.
    if kernels:
        assert machine.kernels
    for kernel in machine.kernels:
        if isinstance(kernel, SizedOperation):
            assert 0 <= kernel.size <= max(kernel.elements, kernel.size) < inf
        else:
            assert all(0 <= n < inf for n in (kernel.read, kernel.written, kernel.group_bytes))
            for each in kernel.passes:
                assert 0 <= each.transferred < inf
                assert all(n > 0 for n in each.elements.values())
            assert all(flops >= 0 for _, flops in kernel.products)
