"""Transposes that stream whole cache lines, joined from transposed lines."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.data_movement.copy import copy_phases, plan_copy
from shardir.backends.cpu.kernels.data_movement.streamed_transpose import (
    StreamedItems,
    block_columns,
    has_line_permutation,
    run_rows,
)
from tests.backends.cpu.kernels.random_layouts import integer_array
from tests.backends.cpu.machine_descriptions import NEOVERSE, SAPPHIRE_RAPIDS, ZEN_3
from tests.backends.cpu.phase_runner import RuleHarness

Array = npt.NDArray[Any]
ITEM_BYTES = {"u1": 1, "i2": 2, "f4": 4, "f8": 8, "c16": 16}
STREAMING = replace(host_machine(), shared_cache_bytes=1 << 12)
"""The host, with caches that all arrays of these tests exceed."""
needs_permutations = pytest.mark.skipif(
    not has_line_permutation(StreamedItems(1, 1), host_machine()),
    reason="the processor has no permutations of two vectors of bytes (AVX512-VBMI)",
)


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


@needs_permutations
@pytest.mark.parametrize("dtype", ITEM_BYTES)
@settings(max_examples=25)
@given(st.data())
def test_rows_of_any_length_and_alignment_are_transposed(dtype: str, data: st.DataObject) -> None:
    per_line = 64 // ITEM_BYTES[dtype]
    columns = data.draw(st.integers(8 * per_line, 12 * per_line + 3), "columns")
    rows = data.draw(st.integers(per_line, 3 * per_line + 1), "rows")
    offset = data.draw(st.integers(0, per_line - 1), "offset")
    width = columns + data.draw(st.integers(0, per_line), "more columns")
    x = integer_array((columns, rows), dtype)
    name = transpose(x, width, offset)
    is_whole = columns % per_line == 0 and width % per_line == 0
    if not is_whole or width * x.itemsize % 1024:
        assert name == f"stream_lines{x.itemsize}{'' if is_whole else '_joined'}"


@needs_permutations
@pytest.mark.parametrize("dtype", ITEM_BYTES)
@pytest.mark.parametrize("more", [0, 1])
def test_all_blocks_of_rows_and_columns_are_transposed(dtype: str, more: int) -> None:
    nbytes = ITEM_BYTES[dtype]
    rows = run_rows(nbytes) + 64 // nbytes + more
    columns = (3 * 8192 + 64) // nbytes + 40 * more
    x = integer_array((columns, 80), dtype)
    assert transpose(x, columns, 0).startswith("stream_lines")
    x = integer_array((8 * 64 // nbytes + more, rows), dtype)
    assert transpose(x, x.shape[0], 0).startswith("stream_lines")


@needs_permutations
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


@needs_permutations
def test_batches_and_reversed_columns_are_transposed() -> None:
    x = integer_array((3, 150, 37), "f4")
    assert transpose(x, 150, 0) == "stream_lines4_joined"
    assert transpose(x[:, ::-1], 151, 3) == "stream_lines4_joined"


@needs_permutations
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


def planned_name(shape: tuple[int, int], dtype: str, machine: HostDescription) -> str:
    harness = RuleHarness(1, machine)
    x, out = np.zeros(shape, dtype), np.zeros(shape[::-1], dtype)
    return plan_copy(harness.view(x.T), harness.view(out), machine).name


@pytest.mark.parametrize(
    ("shape", "dtype", "name"),
    [
        ((4001, 999), "f4", "stream_lines4_joined"),
        ((4016, 1000), "f4", "stream_lines4"),
        ((4096, 1024), "f4", "copy_tiles4_row_by_row_streaming"),
        ((4096, 1025), "f4", "stream_lines4"),
        ((4096, 1024), "i2", "stream_lines2"),
        ((100, 40000), "f4", "copy_tiles4"),
        ((40000, 15), "f4", "copy_tiles4_of_8"),
        ((4001, 999), "u1", "copy_tiles1"),
    ],
)
def test_large_transposes_stream_lines(shape: tuple[int, int], dtype: str, name: str) -> None:
    """This processor lacks permutations of bytes. Conflicting rows of whole lines are written
    several lines at a time, and rows of few lines are not streamed."""
    machine = replace(SAPPHIRE_RAPIDS, shared_cache_bytes=1 << 20)
    assert planned_name(shape, dtype, machine) == name


@pytest.mark.parametrize("machine", [ZEN_3, NEOVERSE])
def test_lines_are_joined_with_avx512_only(machine: HostDescription) -> None:
    small = replace(machine, shared_cache_bytes=1 << 20)
    assert planned_name((4001, 999), "f4", small) == "copy_tiles4"


def test_blocks_have_about_as_many_columns() -> None:
    items = StreamedItems(4, 4)
    assert [block_columns(items, n) for n in (100, 2048, 4097, 6200)] == [112, 2048, 2064, 2080]


def test_a_transpose_of_small_arrays_is_not_streamed() -> None:
    machine = replace(SAPPHIRE_RAPIDS, shared_cache_bytes=64 << 20)
    assert planned_name((1001, 999), "f4", machine) == "copy_tiles4"
