"""Right operands that are packed panels as they are, and are read in place."""

import numpy as np
import pytest

from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.gemm.block_sizes import BlockSizes
from shardir.backends.cpu.kernels.gemm.element_arithmetic import arithmetic_of
from shardir.backends.cpu.kernels.gemm.product_record import RECORD_FIELDS
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.types import NUMPY_DTYPES, TensorType
from shardir.ops import dot
from tests.backends.cpu.kernels.gemm.test_dot import Array, assert_product, random_elements
from tests.backends.cpu.machine_descriptions import ZEN_3, ZEN_5
from tests.backends.cpu.phase_runner import RuleHarness, lower_and_run, make_op

ROWS, STEPS = 27, 16421
"""A product of few rows that is split along K, with a remainder."""
RHS_SLOT = 2


def packed_slots(y: Array, dtype: str, machine: HostDescription, steps: str = "k") -> set[int]:
    """Return the slots of the packed right operands of a product with y; 0: tasks pack it."""
    x = np.zeros((ROWS, *y.shape[: len(steps)]), y.dtype)
    dims = f"m{steps},{steps}n->mn"
    op = make_op(dot, TensorType(x.shape, dtype), TensorType(y.shape, dtype), dims=dims)
    harness = RuleHarness(1, machine)
    operands = [harness.view(x, dtype), harness.view(y, dtype)]
    result = harness.view(np.zeros((ROWS, y.shape[-1]), y.dtype), dtype)
    phases = RULES["dot"](op, operands, [result], harness)
    assert phases is not None
    return {
        phase.record[RECORD_FIELDS.index("packed_slot")]
        for phase in phases
        if phase.kernel.name.startswith("packed_gemm") and not phase.record[0]
    }


@pytest.mark.parametrize(
    ("machine", "dtype", "columns"),
    [(ZEN_5, "f32", 32), (ZEN_5, "f64", 16), (ZEN_5, "i32", 32), (ZEN_3, "f32", 16)],
)
def test_rows_that_fill_a_tile_are_not_packed(
    machine: HostDescription, dtype: str, columns: int
) -> None:
    y = np.zeros((STEPS, columns), NUMPY_DTYPES[dtype])
    assert packed_slots(y, dtype, machine) == {RHS_SLOT}


@pytest.mark.parametrize("columns", [24, 31, 33, 64])
def test_rows_that_do_not_fill_a_tile_are_packed(columns: int) -> None:
    y = np.zeros((STEPS, columns), np.float32)
    assert RHS_SLOT not in packed_slots(y, "f32", ZEN_5)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "c64"])
def test_rows_of_other_elements_than_those_of_panels_are_packed(dtype: str) -> None:
    """Halves are converted to f32, groups of bf16 are copied, and panels of complex numbers have
    their real and imaginary parts apart."""
    columns = 16 if dtype == "c64" else 32
    y = np.zeros((STEPS, columns), NUMPY_DTYPES[dtype])
    assert RHS_SLOT not in packed_slots(y, dtype, ZEN_5)


def test_rows_that_are_not_contiguous_are_packed() -> None:
    wide = np.zeros((STEPS, 64), np.float32)
    assert RHS_SLOT not in packed_slots(wide[:, :32], "f32", ZEN_5)
    assert RHS_SLOT not in packed_slots(wide[:, ::2], "f32", ZEN_5)
    tall = np.zeros((2 * STEPS, 32), np.float32)
    assert RHS_SLOT not in packed_slots(tall[::2], "f32", ZEN_5)
    assert RHS_SLOT not in packed_slots(tall[STEPS:][::-1], "f32", ZEN_5)


def test_rows_in_the_order_of_two_loops_are_not_packed() -> None:
    """The K steps of both loops are contiguous, but those of the inner loop alone may have a gap
    after them."""
    y = np.zeros((128, 129, 32), np.float32)
    assert packed_slots(y, "f32", ZEN_5, "jk") == {RHS_SLOT}
    assert RHS_SLOT not in packed_slots(y[:, :128], "f32", ZEN_5, "jk")


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_products_with_rows_that_fill_a_tile_match_the_reference(dtype: str, isa: str) -> None:
    machine = host_machine().limited_to(isa)
    tile = BlockSizes.of(arithmetic_of(dtype), 1024, machine).tile
    rng = np.random.default_rng(0)
    x = random_elements(rng, (ROWS, STEPS), dtype)
    y = random_elements(rng, (STEPS, tile.columns), dtype)
    types = TensorType(x.shape, dtype), TensorType(y.shape, dtype)
    op = make_op(dot, *types, dims="mk,kn->mn")
    out = np.full(op.result.type.shape, np.nan, x.dtype)
    lower_and_run(RULES["dot"], op, [x, y], [out], machine=machine)
    assert_product(out, x, y, "mk,kn->mn", op.result.type)
