"""Constants of descriptions fitted to measured steps."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shardir.errors import MachineError
from shardir.machine import Machine, MachineDescription, load_machine
from shardir.machine.description_files import read_description
from shardir.machine.kernel_time import KernelCounts, PassCounts, SizedOperation
from shardir.machine.placement import place_axes
from shardir.machine.step_fit import (
    describe_fit,
    fit_steps,
    list_constants,
    scale_constants,
)
from shardir.machine.toml_text import format_toml

AXES = {"data": 8, "model": 8}


def predict(description: MachineDescription, step: int) -> float:
    """Return the time of a step: products, elementwise operations, launches and collectives."""
    machine = Machine(description, AXES, place_axes(description, AXES, None))
    random = np.random.default_rng(step)
    flops, moved, reduced = 10.0 ** random.uniform((9, 6, 6), (12, 10, 10))
    return (
        machine.matmul_seconds(flops, 1e3, "bf16")
        + int(random.integers(1, 1000)) * machine.pointwise_seconds(0, moved / 100, "bf16")
        + machine.collective_seconds("all-reduce", reduced, ("model",))
        + machine.collective_seconds("all-reduce", reduced, ("data",))
    )


def test_known_factors_are_found(tmp_path: Path) -> None:
    base = read_description("a100x8")
    factors = {"matmul": 0.8, "memory": 0.6, "launch": 5.0, "links.infiniband": 0.5}
    real = scale_constants(base, factors)
    measured = [predict(real, step) for step in range(20)]
    fit = fit_steps(base, tuple(factors), measured, predict)
    for name, factor in factors.items():
        assert fit.factors[name] == pytest.approx(factor, rel=0.05), name
    assert fit.mean_error < 0.01
    assert fit.validated_error < 0.02
    path = tmp_path / "fitted.toml"
    path.write_text(format_toml(describe_fit(fit, "a100x8", len(measured))), encoding="utf-8")
    read = load_machine(path, axes=AXES).description
    for step in range(5):
        assert predict(read, step) == pytest.approx(predict(fit.description, step), rel=1e-3)
    assert "fitted to 20 measured steps" in read.sources()["matmul.bf16"]
    # A fitted file may be changed again.
    (tmp_path / "again.toml").write_text('base = "fitted.toml"\n', encoding="utf-8")
    again = load_machine(tmp_path / "again.toml").description
    assert replace(again, name=read.name, path=read.path) == read


def test_constants_without_effect_stay() -> None:
    base = read_description("a100x8")
    measured = [predict(base, step) for step in range(6)]
    fit = fit_steps(base, ("matmul", "pointwise"), measured, predict)
    assert fit.factors["pointwise"] == pytest.approx(1.0)
    assert fit.factors["matmul"] == pytest.approx(1.0, abs=1e-3)


def test_the_interval_between_launches_is_found(tmp_path: Path) -> None:
    base = replace(read_description("a100x8"), launch_interval=1e-5)
    real = scale_constants(base, {"launch.interval": 7.0})
    measured = [predict(real, step) for step in range(10)]
    fit = fit_steps(base, ("launch.interval",), measured, predict)
    assert fit.factors["launch.interval"] == pytest.approx(7.0, rel=0.02)
    path = tmp_path / "fitted.toml"
    path.write_text(format_toml(describe_fit(fit, "a100x8", len(measured))), encoding="utf-8")
    assert load_machine(path).description.launch_interval == pytest.approx(7e-5, rel=0.02)
    assert load_machine(path).pointwise_seconds(1, 1, "f32") == pytest.approx(7e-5, rel=0.02)


MEASURED = """\
[memory]
capacity = 1e9
bandwidth = 1e10
efficiency = 0.5
source = "measured"
read = { bandwidth = 2e10, efficiency = 0.4, source = "measured" }
[launch]
seconds = 1e-7
source = "measured"
[matmul.default]
flops_per_second = 1e11
efficiency = 0.5
source = "measured"
[pointwise.default]
flops_per_second = 1e11
efficiency = 0.5
source = "measured"
[operations.exp.default]
seconds_per_element = [[1e3, 2e-9], [1e6, 1e-9]]
source = "measured"
[operations.sort.f64]
seconds_per_element = 1e-8
source = "measured"
[call]
seconds = 1e-5
array_seconds = 1e-6
source = "measured"
"""


def predict_measured(description: MachineDescription, step: int) -> float:
    """Return the time of a step with measured operations on a CPU."""
    machine = Machine(description, {}, {})
    random = np.random.default_rng(step)
    elements, read, arrays = 10.0 ** random.uniform((3, 4, 0), (7, 9, 3))
    exp = PassCounts(0.0, {("exp", "f32"): elements})
    return (
        machine.kernel_seconds(KernelCounts(0.0, 0.0, (exp,)))
        + machine.kernel_seconds(KernelCounts(read, 0.0))
        + machine.operation_seconds(SizedOperation("sort", "f64", elements, 100.0))
        + machine.call_seconds(int(arrays))
    )


def test_measured_operations_and_calls_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "measured.toml"
    path.write_text(MEASURED, encoding="utf-8")
    base = read_description(path)
    assert list_constants(base) == ("matmul", "pointwise", "memory", "launch", "operations", "call")
    factors = {"operations": 1.7, "call": 3.0, "memory": 0.8}
    real = scale_constants(base, factors)
    measured = [predict_measured(real, step) for step in range(20)]
    fit = fit_steps(base, tuple(factors), measured, predict_measured)
    for name, factor in factors.items():
        assert fit.factors[name] == pytest.approx(factor, rel=0.02), name
    fitted = tmp_path / "fitted.toml"
    fitted.write_text(format_toml(describe_fit(fit, str(path), 20)), encoding="utf-8")
    read = read_description(fitted)
    for step in range(5):
        assert predict_measured(read, step) == pytest.approx(measured[step], rel=1e-2)
    assert read.sources()["operations.exp.default"].endswith("fitted to 20 measured steps")


def test_fractions_stay_below_one() -> None:
    base = read_description("a100x8")
    measured = [predict(base, step) / 10 for step in range(4)]
    fit = fit_steps(base, ("matmul",), measured, predict)
    assert fit.factors["matmul"] == pytest.approx(1 / 0.95)
    assert np.isnan(fit.validated_error)


def test_latencies_and_tables_are_scaled() -> None:
    base = read_description("a100x8")
    scaled = scale_constants(base, {"links.nvlink": 0.5, "links.nvlink.latency": 3.0})
    one = Machine(base, AXES, place_axes(base, AXES, None))
    two = Machine(scaled, AXES, place_axes(scaled, AXES, None))
    least = one.collective_seconds("all-reduce", 1e6, ("model",))
    assert two.collective_seconds("all-reduce", 1e6, ("model",)) == pytest.approx(3 * least)
    large = [m.collective_seconds("all-reduce", 1e9, ("model",)) for m in (one, two)]
    assert large[1] == pytest.approx(2 * large[0], rel=0.05)
    assert scaled.links["infiniband"] is base.links["infiniband"]


@pytest.mark.parametrize(
    ("constants", "measured", "message"),
    [
        (
            ("matmull",),
            [1.0],
            "machine 'a100x8' has no constant 'matmull'; constants are matmul, pointwise, memory, "
            "launch, links.nvlink, links.nvlink.latency, links.infiniband, "
            "links.infiniband.latency",
        ),
        (
            ("matmul", "memory"),
            [1.0],
            "1 step cannot determine 2 constants; measure at least one step for each constant, "
            "and fit at least one constant",
        ),
        ((), [1.0], "1 step cannot determine 0 constants; measure at least one step for each "
                    "constant, and fit at least one constant"),
        (("matmul",), [0.0], "the measured times of steps must be positive numbers of seconds"),
    ],
)  # fmt: skip
def test_wrong_fits(constants: tuple[str, ...], measured: list[float], message: str) -> None:
    description = read_description("a100x8")
    assert "links.nvlink" in list_constants(description)
    with pytest.raises(MachineError) as caught:
        fit_steps(description, constants, measured, predict)
    assert str(caught.value) == message
