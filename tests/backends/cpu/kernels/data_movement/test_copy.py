"""Copies between any two layouts of a shape."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import MachineDescription, host_machine
from shardir.backends.cpu.kernels.data_movement import transpose_tiles
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases
from tests.backends.cpu.kernels.random_layouts import integer_array, random_layout
from tests.backends.cpu.phase_runner import RuleHarness

Array = npt.NDArray[Any]
DTYPES = ("u1", "i2", "f4", "f8", "c16")


def copied(
    x: Array, out: Array, workers: int = 2, machine: MachineDescription | None = None
) -> list[str]:
    """Copy and compare; returns the names of the kernels."""
    bench = RuleHarness(workers, machine)
    phases = copy_phases(bench.view(x), bench.view(out), bench)
    bench.run(phases)
    np.testing.assert_array_equal(out, x)
    return [phase.kernel.name.removeprefix("moves_") for phase in phases]


@given(st.data())
def test_any_strides_to_any_strides(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 40]), max_size=4), "shape")
    dtype = data.draw(st.sampled_from(DTYPES), "dtype")
    x = data.draw(random_layout(integer_array(shape, dtype), repeated=True), "from")
    out = data.draw(random_layout(np.zeros(shape, dtype)), "to")
    copied(x, out, data.draw(st.sampled_from([1, 3])))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 64), (33, 130), (130, 31), (3, 100), (2, 70, 67)])
def test_transposes(dtype: str, shape: tuple[int, ...]) -> None:
    x = integer_array(shape, dtype)
    copied(np.swapaxes(x, -1, -2), np.zeros_like(np.swapaxes(x, -1, -2), order="C"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [0, 1, 5])
@settings(max_examples=20)
@given(st.integers(1, 700))
def test_rows_of_every_length(dtype: str, shift: int, count: int) -> None:
    x = integer_array((3, count + shift), dtype)[:, shift:]
    whole = np.full((3, count + 6), 9, dtype)
    copied(x, whole[:, 3 : 3 + count])
    assert (whole[:, :3] == 9).all()
    assert (whole[:, 3 + count :] == 9).all()


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda x: x, "copy_rows_streaming"),
        (lambda x: x.T, "copy_tiles4_streaming"),
        (lambda x: np.broadcast_to(x[:, :1], x.shape), "fill_rows4_streaming"),
        (lambda x: x[:, ::-1], "reverse_rows4"),
    ],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_large_copies_go_past_the_caches(make: Any, kernel: str, shift: int) -> None:
    """Into memory that is aligned to vectors, and into memory that is not."""
    machine = replace(host_machine(), shared_cache_bytes=1 << 16)
    memory = np.zeros((512 * 512 + 32) * 4, np.uint8)
    start = -memory.ctypes.data % 64 + 4 * shift
    out = memory[start : start + 512 * 512 * 4].view(np.float32).reshape(512, 512)
    assert copied(make(integer_array((512, 512), "f4")), out, machine=machine) == [kernel]


@pytest.mark.parametrize("extent", [1024, 1008])
def test_rows_far_apart_are_turned_past_the_caches_sooner(extent: int) -> None:
    """Those whose lines share places in the caches, where the result is larger than two of those
    that a core has."""
    machine = replace(host_machine(), l2_bytes=256 << 10, shared_cache_bytes=32 << 20)
    rows = 2 * machine.l2_bytes // (4 * 1008) // 16 * 16 + 16
    x, whole = integer_array((extent, rows), "f4"), np.zeros(rows * extent + 16, "f4")
    start = -whole.ctypes.data % 64 // 4
    out = whole[start : start + rows * extent].reshape(rows, extent)
    kernel = "copy_tiles4_streaming" if extent == 1024 else "copy_tiles4"
    assert copied(x.T, out, machine=machine) == [kernel]


@settings(max_examples=30)
@given(st.sampled_from(["f2", "f4", "f8", "c16"]), st.integers(1, 300), st.integers(1, 700))
def test_rows_far_apart_are_turned_whole(dtype: str, rows: int, columns: int) -> None:
    out = np.zeros((rows, 1024), dtype)[:, :columns]
    copied(integer_array((columns, rows), dtype).T, out)


@pytest.mark.parametrize("few", [2, 3, 4, 7, 9, 15])
def test_few_rows_and_few_columns_are_turned_in_smaller_tiles(few: int) -> None:
    """As filters of nine places, or images of three features, have them."""
    kernel = f"copy_tiles4_of_{1 << few.bit_length() - 1}"
    if few >= transpose_tiles.tile_side(4, host_machine()):
        kernel = "copy_tiles4"
    for shape in ((few, 300), (300, few)):
        x = integer_array(shape, "f4")
        assert copied(x.T, np.zeros(shape[::-1], "f4")) == [kernel]


def test_short_rows_are_items_of_their_own() -> None:
    x = integer_array((50, 60, 2), "f4")
    assert copied(x.transpose(1, 0, 2), np.zeros((60, 50, 2), "f4")) == ["copy_tiles8"]


def test_nothing_to_copy_is_no_phase() -> None:
    bench = RuleHarness()
    empty, some = bench.view(np.zeros((0, 3))), bench.view(np.zeros(4))
    assert copy_phases(empty, empty, bench) == []
    assert copy_phases(some, some, bench) == []


def test_large_copies_are_shared_by_the_workers() -> None:
    x = integer_array((1 << 20,), "f8")
    bench = RuleHarness(workers=2)
    (phase,) = copy_phases(bench.view(x), bench.view(np.zeros_like(x)), bench)
    assert phase.tasks == 8
    assert phase.cost > 100_000
