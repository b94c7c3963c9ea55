"""Copies between any two layouts of a shape."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.data_movement import transpose_tiles
from shardir.backends.cpu.kernels.data_movement.block_grid import DynamicStart
from shardir.backends.cpu.kernels.data_movement.copy import (
    copy_phases,
    dynamic_copy_phases,
    plan_copy,
)
from tests.backends.cpu.kernels.random_layouts import integer_array, random_layout
from tests.backends.cpu.phase_runner import RuleHarness

Array = npt.NDArray[Any]
DTYPES = ("u1", "i2", "f4", "f8", "c16")


def copy_and_compare(
    x: Array, out: Array, workers: int = 2, machine: HostDescription | None = None
) -> list[str]:
    """Copy and compare; return the names of the kernels."""
    harness = RuleHarness(workers, machine)
    phases = copy_phases(harness.view(x), harness.view(out), harness)
    harness.run(phases)
    np.testing.assert_array_equal(out, x)
    return [phase.kernel.name.removeprefix("moves_") for phase in phases]


@given(st.data())
def test_copies_between_any_strides_are_correct(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 40]), max_size=4), "shape")
    dtype = data.draw(st.sampled_from(DTYPES), "dtype")
    x = data.draw(random_layout(integer_array(shape, dtype), repeated=True), "from")
    out = data.draw(random_layout(np.zeros(shape, dtype)), "to")
    copy_and_compare(x, out, data.draw(st.sampled_from([1, 3])))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(64, 64), (33, 130), (130, 31), (3, 100), (2, 70, 67)])
def test_transposing_copies_are_correct(dtype: str, shape: tuple[int, ...]) -> None:
    x = integer_array(shape, dtype)
    copy_and_compare(np.swapaxes(x, -1, -2), np.zeros_like(np.swapaxes(x, -1, -2), order="C"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [0, 1, 5])
@settings(max_examples=20)
@given(st.integers(1, 700))
def test_row_copies_write_only_their_elements(dtype: str, shift: int, count: int) -> None:
    x = integer_array((3, count + shift), dtype)[:, shift:]
    surroundings = np.full((3, count + 6), 9, dtype)
    copy_and_compare(x, surroundings[:, 3 : 3 + count])
    assert (surroundings[:, :3] == 9).all()
    assert (surroundings[:, 3 + count :] == 9).all()


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda x: x, "copy_rows_streaming"),
        (lambda x: x.T, "stream_lines4"),
        (lambda x: np.broadcast_to(x[:, :1], x.shape), "fill_rows4_streaming"),
        (lambda x: x[:, ::-1], "reverse_rows4"),
    ],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_large_copies_use_streaming_stores(make: Any, kernel: str, shift: int) -> None:
    """The target memory is aligned to vectors, or not aligned."""
    machine = replace(host_machine(), vector_bytes=64, shared_cache_bytes=1 << 16)
    memory = np.zeros((512 * 512 + 32) * 4, np.uint8)
    start = -memory.ctypes.data % 64 + 4 * shift
    out = memory[start : start + 512 * 512 * 4].view(np.float32).reshape(512, 512)
    assert copy_and_compare(make(integer_array((512, 512), "f4")), out, machine=machine) == [kernel]


def swap_ends(x: Array) -> Array:
    return np.swapaxes(x, 0, -1)


def repeat_items(x: Array, times: int) -> Array:
    return np.broadcast_to(x[..., None], (*x.shape, times))


LARGE = np.zeros((1024, 512), "f4")
PAIRS = np.broadcast_to(np.zeros((64, 1, 2), "f4"), (64, 512, 2))
PLANS: dict[str, tuple[Array, Array | None, str]] = {
    "large rows": (LARGE, None, "copy_rows_streaming"),
    "small rows": (LARGE[:4, :300], np.zeros((4, 301), "f4")[:, :300], "copy_rows"),
    "large, of short rows": (LARGE[:, :250], None, "copy_rows"),
    "large fill": (np.broadcast_to(LARGE[:, :1], LARGE.shape), None, "fill_rows4_streaming"),
    "small fill": (np.broadcast_to(LARGE[:4, :1], (4, 512)), None, "fill_rows4"),
    "fill of short rows": (np.broadcast_to(LARGE[:, :1], (1024, 250)), None, "fill_rows4"),
    "fill with pairs": (PAIRS, None, "fill_rows8"),
    "fill with complex": (repeat_items(np.zeros(64, "c16"), 512), None, "fill_rows16"),
    "few repeats": (repeat_items(LARGE, 3), None, "repeat_rows4_3"),
    "many repeats": (repeat_items(LARGE, 100), None, "fill_rows4"),
    "repeats of complex": (repeat_items(np.zeros(64, "c16"), 3), None, "fill_rows16"),
    "reversed rows": (LARGE[:, 8::-1], None, "reverse_rows4"),
    "reversed short rows": (LARGE[:, 6::-1], None, "copy_items4"),
    "large transpose": (LARGE.T, None, "stream_lines4"),
    "rows of two loops": (swap_ends(np.zeros((64, 100, 9), "f4")), None, "copy_split_tiles4"),
    "whole tiles": (swap_ends(np.zeros((33, 10, 16), "f4")), None, "copy_tiles4"),
    "few columns": (swap_ends(np.zeros((12, 10, 9), "f4")), None, "copy_tiles4"),
    "few rows": (swap_ends(np.zeros((64, 2, 3), "f4")), None, "copy_tiles4_of_2"),
    "short conflicting rows": (
        np.zeros((12, 1024), "f4").T,
        np.zeros((1024, 1024), "f4")[:, :12],
        "copy_tiles4",
    ),
}
"""Copies: the source, the target (contiguous if there is none), and the kernel."""


@pytest.mark.parametrize("name", PLANS)
def test_the_layouts_determine_the_kernel(name: str) -> None:
    source, target, kernel = PLANS[name]
    machine = replace(host_machine(), vector_bytes=32, shared_cache_bytes=1 << 16)
    views = (
        RuleHarness().view(source),
        RuleHarness().view(np.empty(source.shape, source.dtype) if target is None else target),
    )
    assert plan_copy(*views, machine).name == kernel
    assert "stream" not in plan_copy(*views, machine, may_stream=False).name


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("count", [1024, 1025, 1087, 1100, 1151, 1500])
@pytest.mark.parametrize("shift", [0, 1, 33, 63])
def test_streaming_stores_write_only_the_bytes_of_each_row(
    vector_bytes: int, count: int, shift: int
) -> None:
    """Rows begin and end at any byte of a cache line."""
    machine = replace(host_machine(), vector_bytes=vector_bytes, shared_cache_bytes=1 << 14)
    x, memory = integer_array((9, count), "u1"), np.full(9 * (count + 3) + 128, 9, "u1")
    start = -memory.ctypes.data % 64 + shift
    surroundings = memory[start : start + 9 * (count + 3)].reshape(9, count + 3)
    found = copy_and_compare(x, surroundings[:, :count], machine=machine)
    assert found == ["copy_rows_streaming"]
    assert (surroundings[:, count:] == 9).all()
    assert (memory[:start] == 9).all()
    assert (memory[start + surroundings.size :] == 9).all()


@pytest.mark.parametrize(("more_rows", "kernel"), [(0, "copy_tiles4"), (16, "stream_lines4")])
def test_transposes_of_a_quarter_of_the_shared_cache_use_streaming_stores(
    more_rows: int, kernel: str
) -> None:
    machine = replace(host_machine(), vector_bytes=32, shared_cache_bytes=2 << 20)
    rows = machine.shared_cache_bytes // 4 // (4 * 1008) // 16 * 16 + more_rows
    x, surroundings = integer_array((1008, rows), "f4"), np.zeros(rows * 1008 + 16, "f4")
    start = -surroundings.ctypes.data % 64 // 4
    out = surroundings[start : start + rows * 1008].reshape(rows, 1008)
    assert copy_and_compare(x.T, out, machine=machine) == [kernel]


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize(
    ("shape", "kernel", "order"),
    [
        ((1024, 1024), "copy_lines4", ()),
        ((512, 1026), "copy_lines4", ()),
        ((1022, 1024), "copy_lines4", ()),
        ((1020, 1024), "copy_tiles4", (0,)),
        ((1024, 1008), "copy_tiles4", (1,)),
        ((1008, 1024), "copy_tiles4", (0,)),
    ],
)
def test_conflicting_rows_are_transposed_in_another_order(
    shape: tuple[int, int], kernel: str, order: tuple[int, ...], vector_bytes: int
) -> None:
    """Whole cache lines are transposed if the lines of the source and of the target conflict. If
    only those of the target do, several lines of a row are written at a time."""
    machine = replace(host_machine(), vector_bytes=vector_bytes, shared_cache_bytes=1 << 30)
    x, out = integer_array(shape, "f4").T, np.zeros(shape[::-1], "f4")
    assert copy_and_compare(x, out, machine=machine) == [kernel]
    harness = RuleHarness(1, machine)
    assert plan_copy(harness.view(x), harness.view(out), machine).extra == order


@settings(max_examples=30)
@given(st.sampled_from(["f2", "f4", "f8", "c16"]), st.integers(1, 300), st.integers(1, 700))
def test_transposes_into_strided_rows_are_correct(dtype: str, rows: int, columns: int) -> None:
    out = np.zeros((rows, 1024), dtype)[:, :columns]
    copy_and_compare(integer_array((columns, rows), dtype).T, out)


@pytest.mark.parametrize("side", [2, 3, 4, 7, 9, 15])
def test_transposes_of_few_rows_or_columns_use_smaller_tiles(side: int) -> None:
    """Filters of 3x3 positions and images of three channels have such sizes."""
    kernel = f"copy_tiles4_of_{1 << side.bit_length() - 1}"
    if side >= transpose_tiles.tile_side(4, host_machine()):
        kernel = "copy_tiles4"
    for shape in ((side, 300), (300, side)):
        x = integer_array(shape, "f4")
        assert copy_and_compare(x.T, np.zeros(shape[::-1], "f4")) == [kernel]


@pytest.mark.parametrize("machine", [None, replace(host_machine(), vector_bytes=16)])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
@pytest.mark.parametrize(
    "shape", [(70, 40, 9), (65, 7, 3), (64, 100, 5), (100, 300, 17), (66, 2, 9), (2, 80, 30, 3)]
)
def test_rows_of_two_loops_are_transposed_together(
    shape: tuple[int, ...], dtype: str, machine: HostDescription | None
) -> None:
    """Filters become such that their features are contiguous; the last tiles of rows and of columns
    overlap the ones before them."""
    x = integer_array(shape, dtype)
    turned = np.swapaxes(x, -1, -3)
    (name,) = copy_and_compare(turned, np.zeros(turned.shape, dtype), machine=machine)
    side = transpose_tiles.tile_side(x.itemsize, machine or host_machine())
    is_split = shape[-1] % side and shape[-1] <= 2 * side and shape[-1] * shape[-2] >= side
    assert (name == f"copy_split_tiles{x.itemsize}") == bool(is_split)


@pytest.mark.parametrize("workers", [1, 3])
def test_blocks_of_two_loops_write_only_their_elements(workers: int) -> None:
    x = integer_array((530, 200, 9), "i2")
    surroundings = np.full((9, 200, 600), 7, "i2")
    copy_and_compare(np.swapaxes(x, 0, 2), surroundings[:, :, :530], workers)
    assert (surroundings[:, :, 530:] == 7).all()


@pytest.mark.parametrize("moved", [0, 1])
def test_rows_of_two_loops_begin_at_an_index_of_run_time(moved: int) -> None:
    x, out = integer_array((300, 40, 9), "i2").transpose(2, 1, 0), np.zeros((9, 40, 300), "i2")
    harness, parts = RuleHarness(2), [x, out]
    parts[moved] = parts[moved][:, :30]
    parts[1 - moved] = parts[1 - moved][:, 4:34]
    start = DynamicStart(harness.view(np.array(4, np.int32)), 10, (x, out)[moved].strides[1])
    phases = dynamic_copy_phases(
        harness.view(parts[0]), harness.view(parts[1]), moved, [start], harness
    )
    harness.run(phases)
    np.testing.assert_array_equal(out[:, 4:34], x[:, 4:34])
    end = ("from", "to")[moved]
    assert [phase.kernel.name for phase in phases] == [f"moves_copy_split_tiles2_{end}_i32"]


@pytest.mark.parametrize("shape", [(40, 1, 9), (31, 3, 3)])
def test_few_rows_or_columns_of_two_loops_are_copied(shape: tuple[int, int, int]) -> None:
    x = integer_array((3, *shape), "u1")[:, :, :, ::-1]
    turned = x.transpose(3, 2, 0, 1)
    copy_and_compare(turned, np.zeros(turned.shape, "u1"))


def test_rows_of_two_elements_are_copied_as_single_items() -> None:
    x = integer_array((50, 60, 2), "f4")
    assert copy_and_compare(x.transpose(1, 0, 2), np.zeros((60, 50, 2), "f4")) == ["copy_tiles8"]


def test_empty_and_identical_copies_have_no_phase() -> None:
    harness = RuleHarness()
    empty, some = harness.view(np.zeros((0, 3))), harness.view(np.zeros(4))
    assert copy_phases(empty, empty, harness) == []
    assert copy_phases(some, some, harness) == []
    start = DynamicStart(harness.view(np.array(0, np.int32)), 0, 24)
    assert dynamic_copy_phases(empty, empty, 0, [start], harness) == []


def test_large_copies_are_divided_between_workers() -> None:
    x = integer_array((1 << 20,), "f8")
    harness = RuleHarness(workers=2)
    (phase,) = copy_phases(harness.view(x), harness.view(np.zeros_like(x)), harness)
    assert phase.tasks == 8
    assert phase.cost > 100_000
