"""Simulations on a machine whose backend runs all devices as one program."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as jnp
from shardir.errors import MachineError
from shardir.frontend.dispatch.stages.step_simulation import simulate_step
from shardir.machine.toml_text import format_toml
from shardir.passes.simulation import Simulation
from shardir.sharding import NamedSharding, PartitionSpec as P
from shardir.text.parser import parse

MESH = shardir.sharding.AbstractMesh((8,), ("d",))
N = 1024
BYTES = 4 * N * N
BANDWIDTH, READ_BANDWIDTH, CALL, ARRAY = 1e9, 0.5e9, 1e-3, 1e-4


def description(backend: str = "cpu") -> dict[str, Any]:
    def rate(name: str, value: float) -> dict[str, Any]:
        return {name: value, "efficiency": 1.0, "source": "test"}

    return {
        "devices_share_processor": True,
        "memory": {
            "capacity": 2**30,
            **rate("bandwidth", BANDWIDTH),
            "read": rate("bandwidth", READ_BANDWIDTH),
        },
        "launch": {"seconds": 0.0, "source": "test"},
        "matmul": {"f32": rate("flops_per_second", 1e12)},
        "pointwise": {"default": rate("flops_per_second", 1e12)},
        "operations": {
            "transpose": {"default": {"seconds_per_element": 1e-8, "source": "test"}},
            "exp": {"default": {"seconds_per_element": 1e-7, "source": "test"}},
        },
        "call": {"seconds": CALL, "array_seconds": ARRAY, "source": "test"},
        "backend": {
            "name": backend,
            "views": ["broadcast", "reverse", "slice", "transpose"],
            "source": "test",
        },
        "links": {
            "bus": {
                "topology": "switch", "group_size": 8, "latency": 1.0, "hop_latency": 0.0,
                **rate("bandwidth", 1.0),
            }
        },
    }  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    path = tmp_path / "merging.toml"
    path.write_text(format_toml(description()), encoding="utf-8")
    return path


def simulate(
    function: Callable[..., Any], machine: Path, *axes: str | None, out: Any = None
) -> Simulation:
    sharding = NamedSharding(MESH, P(*axes))
    argument = shardir.ShapeDtypeStruct((N, N), np.float32, sharding=sharding)
    result = None if out is None else NamedSharding(MESH, out)
    lowered = shardir.jit(function, out_shardings=result).lower(argument)
    found: Simulation = lowered.simulate(machine)
    return found


def kernels(simulation: Simulation) -> float:
    """Return the time without that of the call with one argument and one result."""
    assert simulation.breakdown.compute["call of the program"] == round((CALL + 2 * ARRAY) * 1e12)
    assert simulation.breakdown.exposed == {}
    return simulation.step_seconds - CALL - 2 * ARRAY


def test_an_all_gather_is_no_copy(machine: Path) -> None:
    simulation = simulate(lambda x: x, machine, "d", out=P())
    assert kernels(simulation) == pytest.approx(0, abs=1e-9)


def test_a_sum_over_devices_is_one_reduction(machine: Path) -> None:
    seconds = kernels(simulate(lambda x: jnp.sum(x, axis=0), machine, "d"))
    assert seconds == pytest.approx((BYTES - 4 * N) / READ_BANDWIDTH + 8 * N / BANDWIDTH)


def test_the_memory_is_that_of_a_device(machine: Path) -> None:
    simulation = simulate(jnp.exp, machine, "d")
    assert kernels(simulation) == pytest.approx(N * N * 1e-7)
    assert simulation.memory.peak == 2 * BYTES // 8


def test_views_run_a_kernel_only_where_they_are_returned(machine: Path) -> None:
    half = BYTES / 2
    assert kernels(simulate(lambda x: x[:512], machine)) == pytest.approx(2 * half / BANDWIDTH)
    # The sum reads the elements of the slice in place.
    summed = kernels(simulate(lambda x: jnp.sum(x[:512]), machine))
    assert summed == pytest.approx(half / READ_BANDWIDTH, rel=1e-3)


def test_products_read_transposed_operands_in_place(machine: Path) -> None:
    transposed = N * N * 1e-8
    assert kernels(simulate(lambda x: x.T, machine)) == pytest.approx(transposed)
    product = 2 * N**3 / 1e12
    assert kernels(simulate(lambda x: x.T @ x, machine)) == pytest.approx(
        max(product, (BYTES + BYTES) / BANDWIDTH)
    )


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "unknown.toml"
    path.write_text(format_toml(description("gpus")), encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        simulate(jnp.exp, path, "d")
    assert str(caught.value) == (
        f"{path}: backend.name: no backend is called 'gpus'; the backends are cpu, gpu, isolated, "
        "numpy, pjrt"
    )


def test_a_program_that_cannot_be_merged_has_the_time_of_each_device(machine: Path) -> None:
    """The CPU backend runs such a program with NumPy, on each device."""
    module = parse(
        "mesh @m = [d=6]\n\n"
        "spmd func @main(%x: f32[2] of f32[12@d]) -> (f32[2] of f32[12@d]) {\n"
        "  %0 = all-reduce(%x, axes=[d:(1)2], op=add) : f32[2]\n"
        "  %y = all-reduce(%0, axes=[d:(1)3], op=add) : f32[2]\n  return %y\n}\n"
    )
    simulation = simulate_step(module, machine)
    assert simulation.breakdown.collectives["all-reduce"] > 0
    (note,) = simulation.notes
    assert note == (
        "the time is that of the program of each device, because the backend cannot run all "
        "devices as one program: the program uses parts of axis 'd' without a common refinement"
    )
