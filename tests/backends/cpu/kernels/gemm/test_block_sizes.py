"""Block sizes of matrix products: fit the caches, give even tasks, and pack little data twice."""

from dataclasses import replace

import pytest

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.codegen.tile_instructions import TILE_INSTRUCTIONS
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER, BufferView
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.matrix_product import MatrixProduct, matrix_product_of
from shardir.backends.cpu.kernels.gemm.packed_kernel import common_gemm_kernel
from shardir.backends.cpu.kernels.gemm.skinny_dispatch import (
    max_cached_rhs_bytes,
    should_prefetch_rows,
)
from shardir.backends.cpu.kernels.gemm.task_grid import TaskGrid, choose_task_grid
from shardir.backends.cpu.kernels.gemm.tuning import (
    CACHED_RHS_BYTES,
    MAX_BLOCK_LINES,
    MAX_TILE_PART_STEPS,
    PACKED_LHS_BYTES,
    PACKED_RHS_BYTES,
    STAGING_BYTES,
)
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import TensorType
from shardir.ops import dot
from tests.backends.cpu.machine_descriptions import MACHINES, SAPPHIRE_RAPIDS, ZEN_5
from tests.backends.cpu.phase_runner import make_op, selected_kernel_names


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "i8", "c64", "c128"])
@pytest.mark.parametrize("columns", [10, 1000])
@pytest.mark.parametrize("caches", [(32, 256), (32, 512), (48, 2048), (64, 1024), (128, 12288)])
def test_blocks_fit_the_caches(dtype: str, columns: int, caches: tuple[int, int]) -> None:
    l1_size, l2_size = (kilobytes << 10 for kilobytes in caches)
    machine = replace(host_machine(), l1_bytes=l1_size, l2_bytes=l2_size)
    numbers = arithmetic_of(dtype)
    found = BlockSizes.of(numbers, columns, machine)
    step = found.steps * numbers.size
    assert 256 <= found.steps <= 512
    assert step * found.rows <= PACKED_LHS_BYTES
    assert step * found.columns <= PACKED_RHS_BYTES
    least = step * (found.tile.height + found.tile.columns)
    assert step * (found.rows + found.stripe) <= max(l2_size, least)
    assert found.staged * numbers.size <= STAGING_BYTES


@pytest.mark.parametrize("rows", [1, 128, 1000])
@pytest.mark.parametrize(
    ("inner", "parts"), [(32, 1), (512, 1), (513, 1), (1024, 1), (1025, 2), (4096, 4)]
)
def test_tile_registers_add_whole_sums_of_up_to_1024_groups(
    inner: int, parts: int, rows: int
) -> None:
    """Packed rows and columns fit the scratch memory."""
    numbers = arithmetic_of("f32")._replace(grouped=TILE_INSTRUCTIONS["bf16"])
    found = BlockSizes.of(numbers, 1000, SAPPHIRE_RAPIDS, rows, inner)
    step = found.steps * numbers.size
    assert step * found.rows <= PACKED_LHS_BYTES
    assert step * found.columns <= PACKED_RHS_BYTES
    if rows != 128:
        assert -(-inner // found.steps) == parts


@pytest.mark.parametrize("rows", [1, 200, 256, 384, 385, 1000])
def test_all_rows_of_a_task_are_packed_at_once_if_steps_suffice(rows: int) -> None:
    numbers = arithmetic_of("f32")
    plain = BlockSizes.of(numbers, 1000, ZEN_5)
    found = BlockSizes.of(numbers, 1000, ZEN_5, rows)
    assert found.steps >= 256
    assert found.steps * numbers.size * found.rows <= PACKED_LHS_BYTES
    if found != plain:
        assert plain.rows < rows <= found.rows
    else:
        assert rows <= plain.rows or 256 * numbers.size * rows > PACKED_LHS_BYTES - 12 * 1024


def test_scratch_memory_holds_all_buffers_of_a_task() -> None:
    tables = (
        5 * 8 * MAX_BLOCK_LINES + 2 * MAX_TILE_PART_STEPS * (16 + 8 * 3) + 3 * 8 * MAX_BLOCK_LINES
    )
    assert (
        PACKED_LHS_BYTES + 4096 + PACKED_RHS_BYTES + STAGING_BYTES + tables
        <= SCRATCH_BYTES_PER_WORKER
    )


def grid(rows: int, columns: int, inner: int, dtype: str = "f32", batch: int = 1) -> TaskGrid:
    numbers = arithmetic_of(dtype)
    sizes = BlockSizes.of(numbers, columns, ZEN_5)
    return choose_task_grid(
        batch, rows, columns, inner, sizes, numbers.size, False, False, 2, 448.0 / numbers.size
    )


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("size", [512, 1000, 1024])
def test_rows_of_large_products_are_packed_once(size: int, dtype: str) -> None:
    found = grid(size, size, size, dtype)
    assert found.packed
    assert found.columns == size
    assert size / found.rows >= 4


@pytest.mark.parametrize(
    ("rows", "rows_of_task"), [(512, 128), (1000, 100), (1024, 128), (1536, 192), (2048, 128)]
)
def test_tasks_have_equal_numbers_of_rows(rows: int, rows_of_task: int) -> None:
    """All tasks have as many rows, and there are several tasks for each of the two workers."""
    assert grid(rows, 1024, 1024).rows == rows_of_task
    assert rows % rows_of_task == 0


def matrices(
    rows: int, inner: int, columns: int, machine: HostDescription = ZEN_5
) -> MatrixProduct:
    lhs, rhs, out = (
        BufferView(slot, 0, shape, (4 * shape[1], 4), "f32")
        for slot, shape in enumerate([(rows, inner), (inner, columns), (rows, columns)], 1)
    )
    return matrix_product_of("mk,kn->mn", lhs, rhs, out, machine)


@pytest.mark.parametrize("l2_size", [256, 1024, 12288])
def test_many_rows_read_an_unpacked_right_operand_from_the_l2_cache(l2_size: int) -> None:
    """The right operand is packed if few rows use it, or if its rows are on separate pages."""
    machine = replace(ZEN_5, l2_bytes=l2_size << 10)
    expected = min(1 << 20, max(CACHED_RHS_BYTES, l2_size * 768))
    assert max_cached_rhs_bytes(matrices(1000, 512, 256, machine)) == expected
    assert max_cached_rhs_bytes(matrices(500, 512, 256, machine)) == CACHED_RHS_BYTES
    assert max_cached_rhs_bytes(matrices(4000, 128, 1024, machine)) == CACHED_RHS_BYTES


def test_rows_are_prefetched_without_cache_conflicts() -> None:
    """Cache lines at a distance of a large power of two would evict each other."""

    def prefetches(rows: int, inner: int, columns: int) -> bool:
        return should_prefetch_rows(matrices(rows, inner, columns), 8)

    assert prefetches(1000, 256, 64)
    assert prefetches(1000, 1040, 64)
    assert not prefetches(1000, 8192, 64)
    assert not prefetches(1000, 256, 300)
    assert not prefetches(8, 256, 64)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("dims", ["ak,kb->ab", "ka,kb->ab", "ak,bk->ab"])
def test_the_common_kernel_computes_large_products(name: str, dims: str) -> None:
    sizes = {"a": 1024, "k": 784, "b": 1024}
    lhs, rhs = (tuple(sizes[each] for each in term) for term in dims[:5].split(","))
    op = make_op(dot, TensorType(lhs, "f32"), TensorType(rhs, "f32"), dims=dims,
                 result=TensorType((1024, 1024), "f32"))  # fmt: skip
    found = selected_kernel_names(RULES["dot"], op, MACHINES[name])
    assert set(found) == {common_gemm_kernel(MACHINES[name]).name}
