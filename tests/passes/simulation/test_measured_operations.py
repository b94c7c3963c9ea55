"""Every operation has a time on a machine whose operations were measured."""

from dataclasses import dataclass, field, replace
from math import inf

import pytest

from shardir.machine.kernel_time import KernelCounts, SizedOperation
from shardir.passes.simulation import simulate
from shardir.text.parser import parse
from tests.op_sample import Sample
from tests.passes.simulation.round_machine import RoundMachine
from tests.samples import SAMPLES, some_of_each


@dataclass(frozen=True)
class MeasuredMachine(RoundMachine):
    """A machine with measured times of all operations, which lists the work of its kernels."""

    has_operation_times: bool = True
    views: tuple[str, ...] = ("slice", "transpose")
    masked_edge: float | None = 0.0
    call_nanoseconds: int = 1_000_000
    kernel_microseconds: int = 1
    kernels: list[KernelCounts | SizedOperation] = field(default_factory=list)

    def has_operation(self, name: str, dtype: str) -> bool:
        return True

    def kernel_seconds(self, counts: KernelCounts) -> float:
        self.kernels.append(counts)
        return 1e-6 * self.kernel_microseconds

    def operation_seconds(self, operation: SizedOperation) -> float:
        self.kernels.append(operation)
        return 1e-6 * self.kernel_microseconds

    def call_seconds(self, array_count: int) -> float:
        return 1e-9 * self.call_nanoseconds * array_count

    def merge_devices(self, count: int) -> "MeasuredMachine":
        return replace(self, kernel_microseconds=self.kernel_microseconds * count)


@some_of_each
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


PRODUCT = 'dot(%t, %x, dims="ij,jk->ik")'
SLICE = "slice(%t, starts=[0, 0], strides=[1, 1])"


@pytest.mark.parametrize(
    ("body", "kernels", "operations"),
    [
        (f"%r = {PRODUCT} : f32[8, 8]", 1, 2),
        ("%r = add(%t, %x) : f32[8, 8]", 2, 2),
        (f"%p = {PRODUCT} : f32[8, 8]\n  %r = add(%p, %t) : f32[8, 8]", 3, 3),
        (f"%s = {SLICE} : f32[8, 8]\n  %r = exp(%s) : f32[8, 8]", 2, 3),
        (f"%r = {SLICE} : f32[8, 8]", 2, 2),
    ],
)
def test_views_of_a_measured_machine_take_no_time(body: str, kernels: int, operations: int) -> None:
    """A transpose is a view if only products read it, and a slice if it is not a result."""
    module = parse(
        "func @f(%x: f32[8, 8]) -> (f32[8, 8]) {\n"
        f"  %t = transpose(%x, perm=[1, 0]) : f32[8, 8]\n  {body}\n  return %r\n}}"
    )
    machine = MeasuredMachine(call_nanoseconds=0)
    for each, count in ((machine, kernels), (replace(machine, views=()), operations)):
        assert simulate(module, each, fusion="").breakdown.duration == count * 1_000_000


def test_a_machine_without_measured_operations_has_rates() -> None:
    module = parse(
        "func @f(%x: f32[8, 8]) -> (f32[8, 8]) {\n"
        f"  %t = exp(%x) : f32[8, 8]\n  %r = {PRODUCT} : f32[8, 8]\n  return %r\n}}"
    )
    machine = MeasuredMachine(has_operation_times=False, call_nanoseconds=10)
    compute = simulate(module, machine, fusion="").breakdown.compute
    assert compute == {
        "call of the program": 20_000,
        "elementwise": 512_000,
        "matrix products": 1_024_000,
    }


def test_one_program_for_all_devices_runs_on_a_machine_for_all_devices() -> None:
    module = parse(
        "mesh @m = [x=4]\n\n"
        "spmd func @f(%x: f32[2, 8] of f32[8@x, 8@-]) -> (f32[2, 8] of f32[8@x, 8@-]) {\n"
        "  %y = exp(%x) : f32[2, 8]\n  return %y\n}"
    )
    machine = MeasuredMachine(call_nanoseconds=0)
    alone = simulate(module, machine, fusion="")
    together = simulate(module, machine, fusion="", merging="merge-devices")
    assert (alone.breakdown.duration, together.breakdown.duration) == (1_000_000, 4_000_000)
    # A machine without measured operations has one time for each kernel.
    plain = simulate(module, RoundMachine(), fusion="", merging="merge-devices")
    assert plain.breakdown.duration == 4 * simulate(module, RoundMachine()).breakdown.duration


def test_only_operations_with_a_measured_time_of_their_own_are_sized() -> None:
    module = parse(
        "func @f(%x: f32[4, 8]) -> (f32[4, 8]) {\n"
        "  %s = sort(%x, dim=1, keys=1, stable=true) : f32[4, 8]\n"
        "  %y = exp(%s) : f32[4, 8]\n  return %y\n}"
    )
    machine = MeasuredMachine()
    simulate(module, machine, fusion="")
    sort, exp = machine.kernels
    assert sort == SizedOperation("sort", "f32", 32, 8)
    assert isinstance(exp, KernelCounts)
    assert (exp.read, exp.written) == (128, 128)
