"""Descriptions of machines from measurements."""

from dataclasses import replace
from pathlib import Path

import pytest

from shardir.machine import load_machine
from shardir.machine.measurements import (
    Measurements,
    describe_errors,
    describe_measurements,
    increasing,
    leave_one_out_errors,
    list_validated_errors,
    peak_and_efficiency,
)
from shardir.machine.toml_text import format_toml

MEASURED = Measurements(
    memory_capacity=2**30,
    launch_seconds=1e-7,
    matmul={"f32": [(1e6, 1e-5 + 1e-7), (1e9, 5e-3 + 1e-7)]},
    pointwise={"default": [(1e6, 1e-4), (1e7, 1e-3)]},
    copies=[(1e4, 1e-6), (1e6, 1e-4), (1e8, 2e-2)],
    collectives={
        (kind, 2): [(1e4, 1e-6), (1e6, 1e-4), (1e8, 1e-2)]
        for kind in ("all-reduce", "collective-permute")
    },
    processor="a processor, 2 threads",
)


def test_a_description_from_measurements(tmp_path: Path) -> None:
    path = tmp_path / "local.toml"
    path.write_text(format_toml(describe_measurements(MEASURED)), encoding="utf-8")
    machine = load_machine(path, axes={"x": 2})
    assert machine.description.is_shared
    assert machine.memory_bytes == 2**29
    alone = load_machine(path)
    assert alone.memory_bytes == 2**30
    assert machine.peak_flops("f32") == alone.peak_flops("f32") / 2
    assert alone.peak_flops("f32") == pytest.approx(2e11)
    for flops, seconds in MEASURED.matmul["f32"]:
        assert alone.matmul_seconds(flops, 0, "f32") == pytest.approx(seconds, rel=1e-3)
    for nbytes, seconds in MEASURED.copies:
        assert alone.pointwise_seconds(0, nbytes, "f32") == pytest.approx(seconds, rel=1e-3)
    assert machine.collective_seconds("all-reduce", 1e6, ("x",)) == pytest.approx(1e-4)
    source = machine.description.sources()["memory"]
    assert source.startswith(
        "measured by shardir calibrate --local on a processor, 2 threads; cross-validated error "
    )


def test_increasing_times() -> None:
    points = increasing([(1, 4.0), (2, 1.0), (4, 8.0)])
    assert [size for size, _ in points] == [1, 2, 4]
    assert [seconds for _, seconds in points] == pytest.approx([2.0, 2.0, 8.0])
    peak, efficiency = peak_and_efficiency([(1, 1.0), (4, 1.0), (16, 8.0)])
    assert peak == pytest.approx(4.0)
    assert [size for size, _ in efficiency] == [1, 4, 16]
    assert [fraction for _, fraction in efficiency] == pytest.approx([0.25, 1.0, 0.5])


def test_cross_validated_errors() -> None:
    assert leave_one_out_errors([(1, 1.0), (10, 5.0), (100, 100.0)]) == [pytest.approx(1.0)]
    errors = list_validated_errors(MEASURED)
    assert errors["products"] == []
    assert errors["all-reduce"] == [pytest.approx(0.0, abs=1e-3)]
    assert describe_errors([]) == "too few sizes for a cross-validation"
    assert describe_errors([0.1, 0.2, 0.6]) == (
        "cross-validated error (each inner size from the others): median 20.0%, mean 30.0%"
    )


def test_a_description_with_measured_operations(tmp_path: Path) -> None:
    measured = replace(
        MEASURED,
        reads=[(1e4, 1e-6 + 1e-7), (1e6, 1e-4 + 1e-7)],
        operations={
            "exp": {"default": [(1000.0, 2e-10)], "f64": [(1000.0, 5e-10)]},
            "sort": {"default": [(16.0, 1e-9), (64.0, 2e-9), (256.0, 4e-9)]},
        },
        call=(1e-6, 5e-8),
        masked_edge=60.0,
    )
    path = tmp_path / "local.toml"
    path.write_text(format_toml(describe_measurements(measured)), encoding="utf-8")
    machine = load_machine(path)
    found = machine.description
    assert found.read is not None
    assert found.read.peak == pytest.approx(1e10)
    assert found.operations["exp"]["f64"].points == ((1.0, 5e-10),)
    assert found.operations["sort"]["default"].points == ((16, 1e-9), (64, 2e-9), (256, 4e-9))
    assert found.operations["sort"]["default"].source.endswith("median 0.0%, mean 0.0%")
    assert machine.call_seconds(4) == pytest.approx(1.2e-6)
    assert machine.masked_edge == 60
    assert found.backend is not None
    assert (found.backend.name, machine.views) == (
        "cpu",
        ("broadcast", "reverse", "slice", "transpose"),
    )
    errors = list_validated_errors(measured)
    assert errors["sort"] == [pytest.approx(0)]
    assert "exp" not in errors


def test_machines_without_measured_operations_name_no_backend() -> None:
    assert not {"backend", "call"} & set(describe_measurements(MEASURED))
