"""The times of kernels that are composed of measured operations, with round numbers."""

from pathlib import Path
from typing import Any

import pytest

from shardir.errors import MachineError
from shardir.machine import Machine, load_machine
from shardir.machine.kernel_time import KernelCounts, PassCounts, SizedOperation
from shardir.machine.toml_text import format_toml

LAUNCH = 1e-6
OPERATIONS: dict[str, Any] = {
    "devices_share_processor": True,
    "memory": {
        "capacity": 1000,
        "bandwidth": 8e9,
        "efficiency": [[1e3, 0.25], [1e4, 1.0], [1e6, 0.5]],
        "source": "test",
        "read": {"bandwidth": 2e9, "efficiency": 1.0, "source": "test of reads"},
    },
    "launch": {"seconds": LAUNCH, "source": "test"},
    "matmul": {"f32": {"flops_per_second": 1e12, "efficiency": 1.0, "source": "test"}},
    "pointwise": {"default": {"flops_per_second": 1e9, "efficiency": 1.0, "source": "test"}},
    "operations": {
        "exp": {"default": {"seconds_per_element": 4e-9, "source": "test of exp"},
                "f64": {"seconds_per_element": 9e-9, "source": "test"}},
        "sort": {"f32": {"seconds_per_element": [[4, 1e-9], [64, 4e-9]], "source": "test"}},
    },
    "links": {
        "bus": {"topology": "switch", "group_size": 8, "bandwidth": 1e9, "efficiency": 1.0,
                "latency": 0.0, "hop_latency": 0.0, "source": "test"},
    },
    "call": {"seconds": 1e-5, "array_seconds": 1e-6, "source": "test of calls"},
    "backend": {"name": "cpu", "views": ["slice"], "masked_edge": 2.0, "source": "test of masks"},
}  # fmt: skip


def load(folder: Path, content: dict[str, Any] = OPERATIONS, **axes: int) -> Machine:
    path = folder / "measured.toml"
    path.write_text(format_toml(content), encoding="utf-8")
    return load_machine(path, axes=axes)


def without_launch(seconds: float) -> float:
    return seconds - LAUNCH


def test_arithmetic_and_loads_of_a_pass_overlap(tmp_path: Path) -> None:
    machine = load(tmp_path)

    def seconds(transferred: float, **elements: float) -> float:
        passes = PassCounts(transferred, {(name, "f32"): n for name, n in elements.items()})
        return without_launch(machine.kernel_seconds(KernelCounts(0, 0, (passes, passes))))

    # 4 ns for each exponential, 1 ns for operations without a measured time, 8 bytes per ns.
    assert seconds(80, exp=10, add=5) == pytest.approx(2 * 45e-9)
    assert seconds(800, exp=10, add=5) == pytest.approx(2 * 100e-9)


def test_each_dtype_has_its_time(tmp_path: Path) -> None:
    machine = load(tmp_path)
    for dtype, each in (("f32", 4e-9), ("bf16", 4e-9), ("f64", 9e-9)):
        counts = KernelCounts(0, 0, (PassCounts(0, {("exp", dtype): 100}),))
        assert without_launch(machine.kernel_seconds(counts)) == pytest.approx(100 * each)


def test_memory_limits_large_kernels(tmp_path: Path) -> None:
    machine = load(tmp_path)
    passes = (PassCounts(0, {("exp", "f32"): 1}),)
    for read, written, seconds in (
        (5e5, 5e5, 1e6 / 4e9),  # It writes as much as it reads.
        (0, 1e6, 1e6 / 4e9),
        (1e6, 0, 1e6 / 2e9),  # It only reads.
        (7.5e5, 2.5e5, 5e5 / 4e9 + 5e5 / 2e9),
    ):
        counts = KernelCounts(read, written, passes)
        assert without_launch(machine.kernel_seconds(counts)) == pytest.approx(seconds)
    assert without_launch(machine.kernel_seconds(KernelCounts(0, 0))) == 0


def test_passes_over_many_elements_are_slower(tmp_path: Path) -> None:
    machine = load(tmp_path)
    passes = (PassCounts(8000, {}), PassCounts(8000, {}))
    for group_bytes, bandwidth in ((10, 8e9), (1e4, 8e9), (2e4, 4e9), (1e9, 4e9)):
        counts = KernelCounts(8, 8, passes, group_bytes)
        seconds = without_launch(machine.kernel_seconds(counts))
        assert seconds == pytest.approx(16000 / bandwidth), group_bytes


def test_products_add_to_passes(tmp_path: Path) -> None:
    counts = KernelCounts(
        0, 0, (PassCounts(0, {("exp", "f32"): 10}),), products=(("f32", 1e6), ("f32", 1e6))
    )
    seconds = without_launch(load(tmp_path).kernel_seconds(counts))
    assert seconds == pytest.approx(40e-9 + 2e-6)


def test_sizes_of_an_operation_are_interpolated(tmp_path: Path) -> None:
    machine = load(tmp_path)
    for size, each in ((1, 1e-9), (4, 1e-9), (16, 2e-9), (64, 4e-9), (1000, 4e-9)):
        sort = SizedOperation("sort", "f32", 1000, size)
        assert without_launch(machine.operation_seconds(sort)) == pytest.approx(1000 * each)
    assert machine.has_operation("sort", "f32")
    assert not machine.has_operation("sort", "f64")
    with pytest.raises(MachineError) as caught:
        machine.operation_seconds(SizedOperation("sort", "f64", 1000, 4))
    assert str(caught.value) == (
        "machine 'measured' has no operations.sort.f64; add it to "
        f"{tmp_path / 'measured.toml'} with its source:\n"
        '[operations.sort.f64]\nseconds_per_element = 1e-9\nsource = "..."'
    )


def test_merged_devices_use_the_whole_processor(tmp_path: Path) -> None:
    machine = load(tmp_path, x=4, y=2)
    counts = KernelCounts(0, 0, (PassCounts(0, {("exp", "f32"): 100}),))
    for merged, sharers in ((1, 8), (4, 2), (8, 1)):
        seconds = machine.merge_devices(merged).kernel_seconds(counts)
        assert without_launch(seconds) == pytest.approx(400e-9 * sharers)


def test_calls_and_the_backend(tmp_path: Path) -> None:
    machine = load(tmp_path)
    assert machine.has_operation_times
    assert machine.call_seconds(3) == pytest.approx(1.3e-5)
    assert (machine.views, machine.masked_edge) == (("slice",), 2.0)
    sources = machine.description.sources()
    assert sources["memory.read"] == "test of reads"
    assert sources["operations.exp.default"] == "test of exp"
    assert sources["call"] == "test of calls"
    assert sources["backend"] == "test of masks"


def test_descriptions_without_operations(tmp_path: Path) -> None:
    added = ("operations", "call", "backend")
    plain = load(tmp_path, {key: OPERATIONS[key] for key in OPERATIONS if key not in added})
    assert not plain.has_operation_times
    assert plain.call_seconds(3) == 0
    assert (plain.views, plain.masked_edge) == ((), None)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("memory.read.source", 0, "memory.read.source is missing; state where the numbers of this "
         'table come from: a data sheet, a publication, or "fitted to ..."'),
        ("memory.read.seconds", 1, "memory.read.seconds is unknown; keys are bandwidth, "
         "efficiency, source"),
        ("operations.exp.f64.seconds_per_element", 0.0,
         "operations.exp.f64.seconds_per_element is 0; it must be a positive number"),
        ("operations.exp.f64.seconds_per_element", [[4.0, 1.0], [2.0, 1.0]],
         "operations.exp.f64.seconds_per_element must be a number, or pairs of a size and seconds "
         "in order of size"),
        ("operations.exp.f64.rate", 1.0, "operations.exp.f64.rate is unknown; keys are "
         "seconds_per_element, source"),
        ("operations.exp.f64", 1.0, "operations.exp.f64 must be a table"),
        ("call.array_seconds", -1.0, "call.array_seconds is -1; it must be a positive number"),
        ("call.array", 1.0, "call.array is unknown; keys are array_seconds, seconds, source"),
        ("backend.name", 1, "backend.name must be the name of a backend"),
        ("backend.views", "slice", "backend.views must be a list of names of operations"),
        ("backend.masked_edge", -1.0, "backend.masked_edge is -1; it must be a positive number"),
        ("backend.view", [], "backend.view is unknown; did you mean 'views'? keys are "
         "masked_edge, name, source, views"),
    ],
)  # fmt: skip
def test_faults_name_the_key(tmp_path: Path, path: str, value: object, message: str) -> None:
    def change(table: dict[str, Any], keys: list[str]) -> dict[str, Any]:
        first, *rest = keys
        inner = change(dict(table.get(first, {})), rest) if rest else value
        return table | {first: inner}

    with pytest.raises(MachineError) as caught:
        load(tmp_path, change(OPERATIONS, path.split(".")))
    assert str(caught.value) == f"{tmp_path / 'measured.toml'}: {message}"
