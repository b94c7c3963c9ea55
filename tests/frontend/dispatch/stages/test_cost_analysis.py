"""Costs of compiled programs, and the tables of their communication."""

import re
from typing import Any

import numpy as np
import pytest

import shardir
import shardir.numpy as np_
from shardir import PartitionSpec as P


@pytest.fixture
def compiled() -> Any:
    def loss(w1: Any, w2: Any, x: Any) -> Any:
        return np_.maximum(x @ w1, 0) @ w2

    with shardir.cpu_devices(8):
        mesh = shardir.make_mesh((4, 2), ("data", "model"))
        specs = (P(None, "model"), P("model", None), P("data", None))
        places = tuple(shardir.NamedSharding(mesh, spec) for spec in specs)
        args = [np.ones(shape, np.float32) for shape in [(64, 128), (128, 32), (256, 64)]]
        yield shardir.jit(loss, in_shardings=places).lower(*args).compile()


def test_costs_are_per_device(compiled: Any) -> None:
    cost = compiled.cost_analysis()
    products = 2 * 64 * 64 * 64 + 2 * 64 * 64 * 32
    relu = 64 * 64
    assert cost["flops"] - products - relu == 0
    assert cost["bytes sent"] == 64 * 32 * 4
    assert cost["bytes sent by kind"] == {"all-reduce": 64 * 32 * 4}
    assert cost["bytes sent by axes"] == {"model": 64 * 32 * 4}
    assert cost["bytes accessed"] > 0


def test_memory_is_per_device(compiled: Any) -> None:
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 4 * (64 * 64 + 64 * 32 + 64 * 64)
    assert memory.output_size_in_bytes == 4 * 64 * 32
    assert memory.peak_memory_in_bytes == (
        memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    )


def test_communication_is_shown_as_tables(compiled: Any) -> None:
    """Column widths depend on the length of this file's name, so the test compares with single
    spaces.
    """
    text = re.sub(r"\S*test_cost_analysis.py:\d+", "here", str(compiled.communication()))
    assert re.sub(r"(?<=\S) +", " ", text).splitlines() == [
        "1 collective, 8.0 KiB sent by each device in one run",
        "",
        "by kind count result sent",
        "  all-reduce 1 8.0 KiB 8.0 KiB",
        "",
        "over count result sent",
        "  model 1 8.0 KiB 8.0 KiB",
        "",
        "by line count result sent",
        "  here 1 8.0 KiB 8.0 KiB",
        "",
        "value collective result why line",
        "  %3 all-reduce over model 8.0 KiB sum over 'i' of %3 = dot here",
    ]


def test_a_program_without_communication_has_a_table_that_states_it() -> None:
    compiled = shardir.jit(lambda x: x + 1).lower(np.ones(3, np.float32)).compile()
    assert str(compiled.communication()) == "no communication"
    assert compiled.cost_analysis()["bytes sent by kind"] == {}
