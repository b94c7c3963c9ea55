"""Times of computations and collectives."""

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardir.errors import MachineError
from shardir.machine import Machine, load_machine
from shardir.machine.description import COLLECTIVE_KINDS
from shardir.machine.description_files import list_descriptions

SIZES = [2.0**k for k in range(8, 36)]

MEAN_ERROR = 0.03

BUS = """
[links.bus]
topology = "{topology}"
group_size = {group}
bandwidth = 1e9
efficiency = 1
latency = 1e-5
hop_latency = 1e-6
source = "data sheet"
{more}
"""


def machine_text(topology: str = "switch", group: str = "8", more: str = "") -> str:
    return BUS.format(topology=topology, group=group, more=more)


def write(folder: Path, text: str) -> Path:
    path = folder / "bus.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list_descriptions())
def test_times_grow_with_sizes(name: str) -> None:
    machine = load_machine(name, axes={"pipe": 2, "data": 16, "model": 4})
    for section in (machine.matmul_seconds, machine.pointwise_seconds):
        times = [section(size, size / 8, "f32") for size in SIZES]
        assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times))
        times = [section(0, size, "f32") for size in SIZES]
        assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times))
    for kind in COLLECTIVE_KINDS:
        for axes in (("model",), ("data",), ("data", "model"), ("pipe", "data", "model")):
            times = [machine.collective_seconds(kind, size, axes) for size in SIZES]
            assert all(b >= a * (1 - 1e-9) for a, b in pairwise(times)), (kind, axes)
            assert times[0] > 0


def test_a_product_takes_the_longer_of_arithmetic_and_memory() -> None:
    machine = load_machine("a100x8")
    # 128 GFLOP at 95 % of 312 TFLOP/s.
    seconds = machine.matmul_seconds(128e9, 1e6, "bf16")
    assert seconds == pytest.approx(128e9 / (312e12 * 0.95) + 0.9e-6)
    # 1 GB at 90 % of 2,039 GB/s.
    seconds = machine.matmul_seconds(1e9, 1e9, "bf16")
    assert seconds == pytest.approx(1e9 / (2039e9 * 0.9) + 0.9e-6)
    assert machine.matmul_seconds(0, 0, "bf16") == 0.9e-6


def test_ring_times(tmp_path: Path) -> None:
    machine = load_machine(write(tmp_path, machine_text("ring")), axes={"d": 4})
    expected = {
        "all-reduce": 1e-5 + 5e-6 + 1.5e-3,
        "all-gather": 1e-5 + 2e-6 + 0.75e-3,
        "reduce-scatter": 1e-5 + 2e-6 + 0.75e-3,
        "all-to-all": 1e-5 + 2e-6 + 0.75e-3,
        "collective-permute": 1e-5 + 1e-3,
    }
    for kind, seconds in expected.items():
        assert machine.collective_seconds(kind, 1e6, ("d",)) == pytest.approx(seconds)
    assert machine.collective_seconds("all_reduce", 1e6, ("d",)) == pytest.approx(1.515e-3)
    assert machine.collective_seconds("all-reduce", 1e6, ()) == 0.0
    with pytest.raises(MachineError) as caught:
        machine.collective_seconds("gather", 1e6, ("d",))
    assert str(caught.value) == (
        "'gather' is not a collective; the collectives are all-reduce, all-gather, reduce-scatter, "
        "all-to-all, collective-permute"
    )


def test_switches_reduce_along_trees(tmp_path: Path) -> None:
    machine = load_machine(write(tmp_path, machine_text()), axes={"d": 8})
    assert machine.collective_seconds("all-reduce", 0, ("d",)) == pytest.approx(1e-5 + 5e-6)


def two_links(folder: Path, rings_across: str) -> Machine:
    """Return a machine with 4 nodes of 8 devices, and an axis over all of them."""
    network = machine_text("switch", "inf", f"rings_across = {rings_across}")
    network = network.replace("links.bus", "links.network").replace("1e-6", "3e-6")
    network = network.replace("bandwidth = 1e9", "bandwidth = 2e8")
    path = write(folder, machine_text() + network)
    return load_machine(path, axes={"data": 32})


def test_hierarchical_collectives(tmp_path: Path) -> None:
    machine = two_links(tmp_path, "false")
    inner, outer = ("data:(4)8",), ("data:(1)4",)
    expected = (
        machine.collective_seconds("reduce-scatter", 2**28, inner)
        + machine.collective_seconds("all-reduce", 2**25, outer)
        + machine.collective_seconds("all-gather", 2**28, inner)
    )
    assert machine.collective_seconds("all-reduce", 2**28, ("data",)) == pytest.approx(expected)
    expected = machine.collective_seconds("all-gather", 2**25, outer)
    expected += machine.collective_seconds("all-gather", 2**28, inner)
    assert machine.collective_seconds("all-gather", 2**28, ("data",)) == pytest.approx(expected)
    permute = machine.collective_seconds("collective-permute", 2**28, ("data",))
    assert permute == machine.collective_seconds("collective-permute", 2**28, outer)


def test_rings_through_all_devices_take_all_steps_and_the_slowest_link(tmp_path: Path) -> None:
    machine = two_links(tmp_path, "true")
    # 28 steps in nodes, 3 between nodes; each of 8 devices sends an eighth to the next node.
    latency = 1e-5 + 28 * 1e-6 + 3 * 3e-6
    for nbytes in (0, 2**20, 2**28):
        sent = 31 / 32 * nbytes
        seconds = latency + max(sent / 1e9, sent / 8 / 2e8)
        for kind in ("all-gather", "reduce-scatter"):
            assert machine.collective_seconds(kind, nbytes, ("data",)) == pytest.approx(seconds)
    hierarchical = two_links(tmp_path, "false")
    by_level = {
        (kind, nbytes): hierarchical.collective_seconds(kind, nbytes, ("data",))
        for kind, nbytes in (("all-reduce", 8), ("all-reduce", 2**28), ("all-to-all", 2**20))
    }
    machine = two_links(tmp_path, "true")
    # An all-reduce takes twice the steps, or as long as a hierarchical one, as for few bytes.
    ring = 1e-5 + 2 * (28e-6 + 9e-6) + 2 * 31 / 32 * 2**28 / 1e9
    assert machine.collective_seconds("all-reduce", 2**28, ("data",)) == pytest.approx(ring)
    assert ring < by_level["all-reduce", 2**28]
    by_level.pop(("all-reduce", 2**28))
    for (kind, nbytes), seconds in by_level.items():
        assert machine.collective_seconds(kind, nbytes, ("data",)) == seconds
    assert by_level["all-reduce", 8] < 1e-5 + 2 * (28e-6 + 9e-6)


def test_a_host_that_launches_each_operation(tmp_path: Path) -> None:
    text = (
        'base = "a100x8"\n[launch]\nseconds = 1e-3\ninterval = {interval}\n'
        'each_operation = {each}\nsource = "a test"\n'
    )
    for interval, each, one, seven in (
        (0, "false", 1e-3, 1e-3),
        (0, "true", 1e-3, 7e-3),
        (2e-3, "true", 2e-3, 14e-3),
    ):
        machine = load_machine(write(tmp_path, text.format(interval=interval, each=each)))
        assert machine.pointwise_seconds(0, 0, "f32") == pytest.approx(one)
        assert machine.pointwise_seconds(0, 0, "f32", 7) == pytest.approx(seven)
        assert machine.matmul_seconds(0, 0, "f32") == pytest.approx(one)


def test_axes_in_any_order() -> None:
    machine = load_machine("a100x8", axes={"data": 4, "model": 8})
    for kind in COLLECTIVE_KINDS:
        one = machine.collective_seconds(kind, 1e8, ("data", "model"))
        assert machine.collective_seconds(kind, 1e8, ("model", "data")) == one


def test_measured_groups_and_groups_between_them(tmp_path: Path) -> None:
    more = "".join(
        f'[[links.bus.collectives]]\nkind = "all-reduce"\ngroup = {group}\nlatency = {latency}\n'
        'bandwidth = 2e9\nsource = "fitted to a test"\n'
        for group, latency in ((2, 1e-3), (8, 3e-3))
    )
    path = write(tmp_path, machine_text(group="16", more=more))

    def seconds(group: int, kind: str, nbytes: float = 1e6) -> float:
        return load_machine(path, axes={"d": group}).collective_seconds(kind, nbytes, ("d",))

    assert seconds(2, "all-reduce") == pytest.approx(1e-3 + 1e6 / 2e9)
    assert seconds(8, "all-reduce") == pytest.approx(3e-3 + 1.75e6 / 2e9)
    between = (seconds(2, "all-reduce") + seconds(8, "all-reduce")) / 2
    assert seconds(4, "all-reduce") == pytest.approx(between)
    # A ring all-reduce is a reduce-scatter and an all-gather.
    assert seconds(4, "all-gather") == pytest.approx(between / 2)
    # Larger groups were not measured.
    assert seconds(16, "all-reduce") == pytest.approx(1e-5 + 7e-6 + 2 * 15 / 16 * 1e-3)


def test_tables(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("# a comment\nbytes,time(us)\n1000,10\n3000,20\n2000,16\n"
                                        "2000,14\n", encoding="utf-8")  # fmt: skip
    more = (
        '[[links.bus.collectives]]\nkind = "all-gather"\ngroup = 4\nfile = "times.csv"\n'
        'source = "a test"\n'
    )
    machine = load_machine(write(tmp_path, machine_text(more=more)), axes={"d": 4})
    for nbytes, seconds in (
        (500, 10),
        (1000, 10),
        (1500, 12.5),
        (2000, 15),
        (3000, 20),
        (6000, 40),
    ):
        time = machine.collective_seconds("all-gather", nbytes, ("d",))
        assert time == pytest.approx(seconds * 1e-6)


def test_rings_of_a_torus_send_in_both_directions() -> None:
    machine = load_machine("tpu-v5p", axes={"data": 16, "model": 4})
    speed = 90e9 * 0.993
    seconds = machine.collective_seconds("all-gather", 1e9, ("model",))
    assert seconds == pytest.approx(12e-6 + 1e-6 + 0.75e9 / (2 * speed))
    # Two dimensions.
    seconds = machine.collective_seconds("all-gather", 1e9, ("data",))
    assert seconds == pytest.approx(12e-6 + 3e-6 + 15 / 16 * 1e9 / (4 * speed))


def test_ironwood_all_gathers() -> None:
    """Four chips in a square: the measured bandwidth counts three quarters of the result."""
    machine = load_machine("tpu-v7", axes={"x": 4})
    for nbytes, bandwidth in ((0.001572864e9, 71.77e9), (0.402653184e9, 178.77e9)):
        seconds = machine.collective_seconds("all-gather", nbytes * 4 / 3, ("x",))
        assert seconds == pytest.approx(nbytes / bandwidth, rel=0.02)


def test_virtual_devices_share_the_processor(tmp_path: Path) -> None:
    text = (
        "devices_share_processor = true\n"
        '[memory]\nbandwidth = 1e9\nefficiency = 1\nsource = "test"\n'
        '[launch]\nseconds = 1e-6\nsource = "test"\n'
        '[pointwise.default]\nflops_per_second = 1e9\nefficiency = 1\nsource = "test"\n'
    )
    path = write(tmp_path, text + machine_text())
    one, eight = load_machine(path), load_machine(path, axes={"a": 4, "b": 2})
    assert one.pointwise_seconds(1e6, 0, "f32") == pytest.approx(1e-3 + 1e-6)
    assert eight.pointwise_seconds(1e6, 0, "f32") == pytest.approx(8e-3 + 1e-6)
    alone = load_machine(path, axes={"b": 2}).collective_seconds("all-reduce", 1e6, ("b",))
    assert eight.collective_seconds("all-reduce", 1e6, ("b",)) == pytest.approx(4 * alone)


@pytest.mark.parametrize(
    ("name", "group", "megabytes", "microseconds"),
    [
        ("a100x8", 2, [1, 4, 16, 64, 256, 1024], [44, 61, 132, 405, 1456, 5443]),
        ("a100x8", 4, [1, 4, 16, 64, 256, 1024], [51, 77, 180, 544, 1929, 7259]),
        ("a100x8", 8, [1, 4, 16, 64, 256, 1024], [93, 96, 232, 580, 2162, 8193]),
        ("v100x8", 2, [1, 4, 16, 64, 256, 1024], [70, 209, 764, 2999, 11915, 47610]),
        ("v100x8", 4, [1, 4, 16, 64, 256, 1024], [67, 142, 324, 1202, 4714, 18869]),
        ("v100x8", 8, [1, 4, 16, 64, 256, 1024], [80, 151, 274, 911, 3527, 13969]),
        ("h100x8", 8, [1, 8, 64, 512, 2048], [28, 85, 382, 2666, 10495]),
    ],
)
def test_published_all_reduces(
    name: str, group: int, megabytes: list[int], microseconds: list[float]
) -> None:
    machine = load_machine(name, axes={"x": group})
    predicted = [machine.collective_seconds("all-reduce", n * 2**20, ("x",)) for n in megabytes]
    assert np.mean(np.abs(np.array(predicted) / microseconds * 1e6 - 1)) < MEAN_ERROR


@pytest.mark.parametrize(
    ("amount", "shown"), [(-1, "-1"), (math.nan, "nan"), ("x", "'x'"), (10**400, "too large")]
)
def test_amounts_that_are_not_finite_or_negative(amount: Any, shown: str) -> None:
    machine = load_machine("a100x8", axes={"data": 8})
    calls: dict[str, Callable[[], float]] = {
        "bytes_per_device": lambda: machine.collective_seconds("all-reduce", amount, ("data",)),
        "flops": lambda: machine.matmul_seconds(amount, 1, "f32"),
        "bytes_moved": lambda: machine.pointwise_seconds(1, amount, "f32"),
    }
    for what, call in calls.items():
        with pytest.raises(MachineError) as caught:
            call()
        assert str(caught.value) == f"{what} is {shown}; use a finite number that is not negative"
