"""Transposes that stream whole cache lines, joined from transposed lines."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases, plan_copy
from shardir.backends.cpu.kernels.data_movement.line_transpose import (
    LineItems,
    LineStores,
    block_shape,
    has_line_permutation,
    run_rows,
    strip_lines,
)
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.backends.cpu.kernels.random_layouts import integer_array
from tests.backends.cpu.machine_descriptions import NEOVERSE, SAPPHIRE_RAPIDS, ZEN_3
from tests.backends.cpu.phase_runner import RuleHarness

Array = npt.NDArray[Any]
ITEM_BYTES = {"u1": 1, "i2": 2, "f4": 4, "f8": 8, "c16": 16}
STREAMING = replace(host_machine(), shared_cache_bytes=1 << 12)
"""The host, with caches that all arrays of these tests exceed."""
LINE_ITEMS = [
    (dtype, vector_bytes)
    for dtype, nbytes in ITEM_BYTES.items()
    for vector_bytes in (16, 32, 64)
    if nbytes < vector_bytes
]
"""Items that are smaller than the vectors of a processor."""


def transpose(x: Array, width: int, offset: int, machine: HostDescription = STREAMING) -> str:
    """Transpose into rows of `width` items, `offset` items after a cache line; compare the result
    and the items around it, and return the name of the kernel."""
    rows, columns = x.shape[-1], x.shape[-2]
    shape = (*x.shape[:-2], rows, width)
    memory = np.full(int(np.prod(shape)) + offset + 128, 9, x.dtype)
    start = -memory.ctypes.data % 64 // x.itemsize + offset
    out = memory[start : start + int(np.prod(shape))].reshape(shape)
    expected = memory.copy()
    expected[start : start + out.size].reshape(shape)[..., :columns] = np.swapaxes(x, -1, -2)
    harness = RuleHarness(1, machine)
    phases = copy_phases(
        harness.view(np.swapaxes(x, -1, -2)), harness.view(out[..., :columns]), harness
    )
    harness.run(phases)
    np.testing.assert_array_equal(memory, expected)
    (phase,) = phases
    return phase.kernel.name.removeprefix("moves_")


@pytest.mark.parametrize(("dtype", "vector_bytes"), LINE_ITEMS)
@settings(max_examples=12)
@given(st.data())
def test_rows_of_any_length_and_alignment_are_transposed(
    dtype: str, vector_bytes: int, data: st.DataObject
) -> None:
    machine = replace(STREAMING, vector_bytes=vector_bytes)
    per_line = 64 // ITEM_BYTES[dtype]
    columns = data.draw(st.integers(8 * per_line, 12 * per_line + 3), "columns")
    rows = data.draw(st.integers(per_line, 3 * per_line + 1), "rows")
    offset = data.draw(st.integers(0, per_line - 1), "offset")
    width = columns + data.draw(st.integers(0, per_line), "more columns")
    x = copy_before_guard_page(integer_array((columns, rows), dtype))
    name = transpose(x, width, offset, machine)
    if columns % per_line or width % per_line:
        assert name == f"stream_lines{x.itemsize}_joined"
    else:
        assert name == f"stream_lines{x.itemsize}"


@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("more", [0, 1])
def test_all_blocks_of_rows_and_columns_are_transposed(
    dtype: str, more: int, vector_bytes: int
) -> None:
    machine = replace(STREAMING, vector_bytes=vector_bytes)
    nbytes = ITEM_BYTES[dtype]
    rows = run_rows(nbytes) + 64 // nbytes + more
    columns = (3 * 8192 + 64) // nbytes + 40 * more
    x = integer_array((columns, 80), dtype)
    assert transpose(x, columns, 0, machine).startswith("stream_lines")
    x = integer_array((8 * 64 // nbytes + more, rows), dtype)
    assert transpose(x, x.shape[0], 0, machine).startswith("stream_lines")


@pytest.mark.parametrize(("dtype", "name"), [("u1", "stream_lines2_of_1_joined"),
                                             ("f4", "stream_lines8_of_4_joined")])  # fmt: skip
@pytest.mark.parametrize("offset", [0, 1, 5])
def test_items_of_several_elements_are_aligned_to_elements(
    dtype: str, name: str, offset: int
) -> None:
    x = integer_array((301, 70, 2), dtype)
    memory = np.zeros(70 * 301 * 2 + 128, dtype)
    start = -memory.ctypes.data % 64 // x.itemsize + offset
    out = memory[start : start + x.size].reshape(70, 301, 2)
    harness = RuleHarness(1, STREAMING)
    phases = copy_phases(harness.view(x.transpose(1, 0, 2)), harness.view(out), harness)
    harness.run(phases)
    np.testing.assert_array_equal(out, x.transpose(1, 0, 2))
    assert [phase.kernel.name for phase in phases] == [f"moves_{name}"]


def test_batches_and_reversed_columns_are_transposed() -> None:
    x = integer_array((3, 150, 37), "f4")
    assert transpose(x, 150, 0) == "stream_lines4_joined"
    assert transpose(x[:, ::-1], 151, 3) == "stream_lines4_joined"


def test_whole_lines_of_memory_that_begins_at_no_line_are_transposed() -> None:
    """A view of an argument states no alignment; only the address at run time does."""
    x = integer_array((192, 80), "f4")
    memory = np.zeros(192 * 80 + 32, "f4")
    start = -memory.ctypes.data % 64 // 4 + 3
    out = memory[start : start + x.size].reshape(80, 192)
    harness = RuleHarness(1, STREAMING)
    phases = copy_phases(harness.view(x.T), harness.view(out), harness)
    harness.run(phases)
    np.testing.assert_array_equal(out, x.T)
    assert [phase.kernel.name for phase in phases] == ["moves_stream_lines4"]


@pytest.mark.parametrize(("dtype", "vector_bytes"), LINE_ITEMS)
@pytest.mark.parametrize("lines", [1, 2, 7])
@pytest.mark.parametrize("more", [0, 3])
def test_whole_lines_are_transposed(dtype: str, vector_bytes: int, lines: int, more: int) -> None:
    """Columns of one or more strips and lines that fill no strip, which begin at cache lines or
    not."""
    per_line = 64 // ITEM_BYTES[dtype]
    machine = replace(STREAMING, vector_bytes=vector_bytes)
    x = integer_array((40 * lines // 8 * per_line + per_line, 8 * per_line + more), dtype)
    assert transpose(x, x.shape[0], 0, machine) == f"stream_lines{x.itemsize}"


@pytest.mark.parametrize(("dtype", "vector_bytes"), LINE_ITEMS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_conflicting_lines_in_the_caches_are_transposed(
    dtype: str, vector_bytes: int, more: int
) -> None:
    """Rows at a distance near a multiple of 1,024 bytes, of any length and alignment; the rest of
    the target is unchanged."""
    nbytes = ITEM_BYTES[dtype]
    more = 0 if nbytes > 8 else more
    machine = replace(host_machine(), vector_bytes=vector_bytes, shared_cache_bytes=1 << 30)
    memory = integer_array((700 // nbytes, 1024 // nbytes + more), dtype)
    x = memory[:, 1 : 650 // nbytes]
    name = transpose(x, 1024 // nbytes + more, 3, machine)
    assert name == f"copy_lines{nbytes}"


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("pitch", [0, 1])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("columns", [8, 11, 12, 280])
def test_columns_of_8_bytes_that_begin_at_lines_or_not_are_transposed(
    columns: int, start: int, pitch: int, vector_bytes: int
) -> None:
    """If all columns begin at lines, tiles are transposed in registers; rows of 11 items are stored
    without streaming, and overlap."""
    width = 128 + pitch
    memory = np.zeros(columns * width + 16, "f8")
    first = -memory.ctypes.data % 64 // 8 + start
    whole = memory[first : first + columns * width].reshape(columns, width)
    whole[:] = integer_array(whole.shape, "f8")
    machine = replace(STREAMING, vector_bytes=vector_bytes)
    name = "stream_lines8" if columns % 8 == 0 else "copy_lines8"
    assert transpose(whole[:, :20], 128 * (1 + columns // 128), 0, machine) == name


def planned_name(shape: tuple[int, int], dtype: str, machine: HostDescription) -> str:
    harness = RuleHarness(1, machine)
    x, out = np.zeros(shape, dtype), np.zeros(shape[::-1], dtype)
    return plan_copy(harness.view(x.T), harness.view(out), machine).name


@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [
        ((4001, 999), "f4", "stream_lines4_joined"),
        ((4016, 1000), "f4", "stream_lines4"),
        ((4016, 1008), "f4", "stream_lines4"),
        ((4096, 1024), "f4", "stream_lines4"),
        ((4096, 1025), "f4", "stream_lines4"),
        ((4096, 1024), "i2", "stream_lines2"),
        ((100, 40000), "f4", "copy_tiles4"),
        ((40000, 15), "f4", "copy_tiles4_of_8"),
        ((4001, 999), "u1", "stream_lines1_joined"),
    ],
)
def test_large_transposes_stream_lines(shape: tuple[int, int], dtype: str, name: str) -> None:
    """Rows of few lines are not streamed."""
    machine = replace(SAPPHIRE_RAPIDS, shared_cache_bytes=1 << 20)
    assert planned_name(shape, dtype, machine) == name


@pytest.mark.parametrize("machine", [ZEN_3, NEOVERSE])
def test_lines_are_joined_without_avx512(machine: HostDescription) -> None:
    small = replace(machine, shared_cache_bytes=1 << 20)
    assert planned_name((4001, 999), "f4", small) == "stream_lines4_joined"


def test_permutations_need_features_of_the_processor() -> None:
    """This processor lacks permutations of bytes; vectors of 32 bytes hold half of a line."""
    items = [LineItems(n, min(n, 8)) for n in (1, 2, 4, 8, 16)]
    found = [has_line_permutation(each, SAPPHIRE_RAPIDS) for each in items]
    assert found == [False, True, True, True, True]
    for machine in (ZEN_3, replace(SAPPHIRE_RAPIDS, vector_bytes=32)):
        assert not any(has_line_permutation(each, machine) for each in items)


def test_blocks_of_joined_lines_have_about_as_many_columns() -> None:
    items = LineItems(4, 4)
    found = [block_shape(items, LineStores.JOINED, n) for n in (100, 2048, 4097, 6200)]
    assert found == [(2048, 112), (2048, 2048), (2048, 2064), (2048, 2080)]


@pytest.mark.parametrize(("nbytes", "rows"), [(1, 2048), (4, 2048), (8, 1024), (16, 512)])
def test_blocks_of_arrays_in_the_caches_have_fewer_rows(nbytes: int, rows: int) -> None:
    items = LineItems(nbytes, min(nbytes, 8))
    assert block_shape(items, LineStores.STREAMED, 4096) == (rows, 256)
    assert block_shape(items, LineStores.ORDINARY, 4096) == (512, 256)


@pytest.mark.parametrize("stores", LineStores)
def test_strips_of_joined_rows_of_small_items_fill_fewer_lines(stores: LineStores) -> None:
    lines = [strip_lines(LineItems(n, min(n, 8)), stores) for n in (1, 2, 4, 8, 16)]
    assert lines == ([2, 2, 4, 4, 4] if stores is LineStores.JOINED else [4] * 5)


def test_a_transpose_of_small_arrays_is_not_streamed() -> None:
    machine = replace(SAPPHIRE_RAPIDS, shared_cache_bytes=64 << 20)
    assert planned_name((1001, 999), "f4", machine) == "copy_tiles4"
