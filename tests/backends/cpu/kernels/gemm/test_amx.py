"""Products with the tile registers of AMX."""

from itertools import product
from typing import Any

import llvmlite.binding as binding
import numpy as np
import numpy.typing as npt
import pytest

from shardir.backends.cpu.codegen.emission import make_target_machine
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernels.rules import RULES
from shardir.ir.module import Op
from shardir.ir.types import TensorType
from shardir.ops import convolution, dot
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.backends.cpu.kernels.conv.test_convolution import assert_convolution, attributes
from tests.backends.cpu.kernels.gemm.test_dot import random_elements, selected_kernels
from tests.backends.cpu.kernels.gemm.test_grouped_steps import strided
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_5
from tests.backends.cpu.phase_runner import (
    RuleHarness,
    lower_and_run,
    make_op,
    run_rule,
    selected_kernel_names,
)
from tests.backends.cpu.tile_emulation import machine_with_tiles

Array = npt.NDArray[Any]
SIZES = {"a": 40, "b": 70, "k": 72, "l": 10, "z": 3}
RESULTS = {"bf16": "bf16", "i8": "i32", "u8": "i32"}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> HostDescription:
    """A machine with tile registers: this host, or an emulation of them on it."""
    return machine_with_tiles(monkeypatch)


def product_of(dims: str, dtype: str, sizes: dict[str, int], result: str = "") -> Op:
    """Return a product with operands of one type."""
    left, right, output = dims.replace("->", ",").split(",")
    x, y, out = (
        TensorType(tuple(sizes[c] for c in term), each)
        for term, each in ((left, dtype), (right, dtype), (output, result or RESULTS[dtype]))
    )
    return make_op(dot, x, y, dims=dims, result=out)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["bf16", "i8", "u8"])
@pytest.mark.parametrize(
    ("dims", "copies"),
    [
        ("ak,bk->ab", 0), ("ak,kb->ab", 0), ("ka,bk->ab", 1), ("ka,kb->ab", 1),
        ("zak,zkb->zab", 0), ("azk,bzk->zab", 0), ("akz,kbz->zab", 2), ("alk,lkb->ab", 0),
    ],
)  # fmt: skip
def test_tiles_read_rows_whose_k_steps_are_contiguous(dims: str, copies: int, dtype: str) -> None:
    """Other left operands are copied, and right ones if neither K steps nor columns are
    contiguous."""
    found = selected_kernel_names(RULES["dot"], product_of(dims, dtype, SIZES), SAPPHIRE_RAPIDS)
    assert sum(name.startswith("moves_") for name in found) == copies
    assert found[copies:]
    assert all(f"_groups_{dtype}_amx_" in name for name in found[copies:])


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        ("bf16", {"m": 8, "k": 64, "n": 100}), ("bf16", {"m": 100, "k": 64, "n": 8}),
        ("bf16", {"m": 100, "k": 65, "n": 100}), ("i8", {"m": 100, "k": 66, "n": 100}),
        ("bf16", {"m": 100, "k": 14, "n": 100}), ("i8", {"m": 100, "k": 28, "n": 100}),
        ("i16", {"m": 100, "k": 64, "n": 100}), ("f32", {"m": 100, "k": 64, "n": 100}),
    ],
)  # fmt: skip
def test_small_products_and_other_types_have_no_tiles(dtype: str, sizes: dict[str, int]) -> None:
    found = selected_kernels(SAPPHIRE_RAPIDS, "mk,kn->mn", dtype, **sizes)
    assert not any("_amx_" in name for name in found)


def test_other_machines_have_no_tiles() -> None:
    for dtype, machine in (
        ("bf16", ZEN_5), ("i8", ZEN_5), ("i8", SAPPHIRE_RAPIDS.limited_to("avx512")),
    ):  # fmt: skip
        op = product_of("mk,kn->mn", dtype, {"m": 100, "k": 64, "n": 100})
        found = selected_kernel_names(RULES["dot"], op, machine)
        assert any(f"_groups_{dtype}_" in name for name in found)
        assert not any("_amx_" in name for name in found)


@pytest.mark.parametrize(
    ("dtype", "instruction"), [("bf16", "tdpbf16ps"), ("i8", "tdpbssd"), ("u8", "tdpbuud")]
)
def test_kernels_contain_the_instructions_of_tiles(dtype: str, instruction: str) -> None:
    """The tiles are configured before, and released after all others."""
    harness = RuleHarness(machine=SAPPHIRE_RAPIDS)
    op = product_of("mk,nk->mn", dtype, {"m": 200, "k": 96, "n": 200})
    types = (*(value.type for value in op.operands), op.result.type)
    views = [harness.view(np.empty(each.shape, each.numpy), each.dtype) for each in types]
    phases = RULES["dot"](op, views[:2], views[2:], harness)
    assert phases
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    parsed = binding.parse_assembly(phases[-1].kernel.text(SAPPHIRE_RAPIDS))
    parsed.triple = SAPPHIRE_RAPIDS.triple
    parsed.verify()
    assembly = make_target_machine(SAPPHIRE_RAPIDS).emit_assembly(parsed)
    found = [line.split()[0] for line in assembly.splitlines() if line.strip()]
    # Tiles of 32 by 32, 32 by 16, 16 by 32 and 16 by 16 sums.
    assert found.count(instruction) == 4 + 2 + 2 + 1
    assert (found.count("ldtilecfg"), found.count("tilerelease")) == (1, 1)


def random_sizes(rng: np.random.Generator, dtype: str) -> dict[str, int]:
    sizes = {c: int(rng.integers(9, 150)) for c in "ab"}
    steps = 2 if dtype == "bf16" else 4
    return sizes | {"k": steps * int(rng.integers(8, 400)), "l": 3, "z": 2}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", ["bf16", "i8", "u8"])
def test_tiles_match_the_reference_for_any_strides(
    machine: HostDescription, dtype: str, seed: int
) -> None:
    """Rows, columns and K steps are not multiples of tiles, and follow each other in any order."""
    rng = np.random.default_rng(seed)
    dims = str(
        rng.choice(["ak,kb->ab", "zak,zbk->zab", "akz,kbz->abz", "alk,bkl->ba", "alk,lkb->ab"])
    )
    op = product_of(dims, dtype, random_sizes(rng, dtype))
    assert any("_amx_" in n for n in selected_kernel_names(RULES["dot"], op, machine))
    x, y = (random_elements(rng, value.type.shape, dtype) for value in op.operands)
    out = strided(rng, np.zeros(op.result.type.shape, op.result.type.numpy))
    lower_and_run(RULES["dot"], op, [strided(rng, x), strided(rng, y)], [out], machine=machine)
    if dtype != "bf16":
        expected = np.einsum(dims, x.astype(np.int32), y.astype(np.int32))
        np.testing.assert_array_equal(out, expected)
        return
    left, right = (each.astype(np.float64) for each in (x, y))
    scale = np.einsum(dims, np.abs(left), np.abs(right))
    error = np.abs(out.astype(np.float64) - np.einsum(dims, left, right))
    assert (error <= 2.0**-8 * np.abs(out.astype(np.float64)) + 1e-6 * scale).all()


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
@pytest.mark.parametrize("step", [-1, -2])
def test_k_steps_in_reverse_order_match_those_of_a_copy(
    machine: HostDescription, dtype: str, step: int
) -> None:
    """Packing reads rows of the right operand backwards."""
    rng = np.random.default_rng(0)
    op = product_of("mk,kn->mn", dtype, {"m": 40, "k": 72, "n": 50})
    x, y = random_elements(rng, (40, 72), dtype), random_elements(rng, (200, 50), dtype)
    y = y[::step][:72]
    results = np.zeros((2, 40, 50), op.result.type.numpy)
    for out, rhs in zip(results, (y, y.copy()), strict=True):
        lower_and_run(RULES["dot"], op, [x, rhs], [out], machine=machine)
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_results_do_not_depend_on_the_number_of_workers(
    machine: HostDescription, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    op = product_of(
        "mk,kn->mn", dtype, {"m": 330, "k": 1240, "n": 290}, "f32" if dtype == "bf16" else ""
    )
    arrays = [random_elements(rng, value.type.shape, dtype) for value in op.operands]
    results = []
    for workers in (1, 2, 7, 64):
        results.append(np.zeros(op.result.type.shape, op.result.type.numpy))
        lower_and_run(RULES["dot"], op, arrays, results[-1:], workers, machine)
    assert all(each.tobytes() == results[0].tobytes() for each in results)


@pytest.mark.parametrize("dims", ["ak,kb->ab", "ak,bk->ab", "ka,bk->ab"])
@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_elements_after_operands_are_not_accessed(
    machine: HostDescription, dims: str, dtype: str
) -> None:
    """Each array ends before a page that cannot be accessed."""
    rng = np.random.default_rng(0)
    for a, b in product((9, 33, 47), (17, 34, 65)):
        op = product_of(dims, dtype, {"a": a, "b": b, "k": 68})
        x, y = (
            copy_before_guard_page(random_elements(rng, value.type.shape, dtype))
            for value in op.operands
        )
        out = copy_before_guard_page(np.zeros((a, b), op.result.type.numpy))
        lower_and_run(RULES["dot"], op, [x, y], [out], machine=machine)
        wide = np.float32 if dtype == "bf16" else np.int32
        expected = np.einsum(dims, x.astype(wide), y.astype(wide))
        np.testing.assert_allclose(out.astype(wide), expected, 2e-2, 0.5)


def test_infinities_and_nan_stay_in_their_rows_and_columns(machine: HostDescription) -> None:
    """Padding of K steps, rows and columns adds nothing."""
    rng = np.random.default_rng(0)
    op = product_of("ak,bk->ab", "bf16", {"a": 37, "b": 45, "k": 70}, "f32")
    x, y = (random_elements(rng, value.type.shape, "bf16") for value in op.operands)
    x[36, 69], y[44, 69] = np.inf, np.nan
    out = np.zeros((37, 45), np.float32)
    lower_and_run(RULES["dot"], op, [x, y], [out], machine=machine)
    assert np.isfinite(out[:36, :44]).all()
    assert np.isinf(out[36, :44]).all()
    assert np.isnan(out[:, 44]).all()


@pytest.mark.parametrize(
    ("dims", "image", "filter", "padding", "has_tiles"),
    [
        ("b01f,01io->b01f", (2, 9, 9, 34), (3, 3, 34, 40), 1, True),
        ("b01f,01io->b01f", (2, 9, 9, 64), (3, 3, 64, 70), 1, True),
        ("b01f,01oi->b01f", (2, 9, 9, 34), (3, 3, 40, 34), 0, True),
        ("bf01,oi01->bf01", (2, 34, 9, 9), (40, 34, 1, 1), 0, True),
        ("bf01,io01->bf01", (2, 34, 9, 9), (34, 40, 1, 1), 0, True),
        ("bf01,oi01->bf01", (2, 3, 40, 40), (40, 3, 3, 3), 1, False),
    ],
)
@pytest.mark.parametrize("result", ["bf16", "f32"])
def test_convolutions_with_contiguous_channels_have_tiles(
    dims: str, image: tuple[int, ...], filter: tuple[int, ...], padding: int, has_tiles: bool,
    result: str, machine: HostDescription,
) -> None:  # fmt: skip
    """Runs of channels need not fill blocks of K steps."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, dims, padding=((padding, padding),) * 2)
    types = [TensorType(shape, "bf16") for shape in (image, filter)]
    shape = make_op(convolution, *types, **attrs).result.type.shape
    op = make_op(convolution, *types, **attrs, result=TensorType(shape, result))
    found = selected_kernel_names(RULES["convolution"], op, SAPPHIRE_RAPIDS)
    assert any("_amx_" in name for name in found) == has_tiles
    x, w = (random_elements(rng, shape, "bf16") for shape in (image, filter))
    (got,) = run_rule(RULES["convolution"], op, [x, w], machine=machine)
    assert_convolution(got, x, w, op.result.type, attrs)


@pytest.mark.parametrize(
    ("dims", "image", "grad", "copies", "has_tiles"),
    [
        ("f01b,i01o->01bf", (2, 9, 9, 18), (2, 9, 9, 33), 2, True),
        ("f01b,i01o->01bf", (3, 20, 24, 7), (3, 20, 24, 70), 2, True),
        ("fb01,io01->bf01", (4, 18, 13, 15), (4, 33, 13, 15), 1, True),
        ("fb01,io01->bf01", (4, 18, 13, 15), (4, 9, 13, 15), 1, True),
        ("fb01,io01->bf01", (4, 1, 13, 14), (4, 33, 13, 14), 0, True),
        ("fb01,io01->bf01", (4, 18, 13, 15), (4, 8, 13, 15), 0, False),
        ("f01b,i01o->01bf", (1, 9, 9, 18), (1, 9, 9, 33), 0, False),
    ],
)
def test_packing_makes_groups_of_patches_for_tiles(
    dims: str,
    image: tuple[int, ...],
    grad: tuple[int, ...],
    copies: int,
    has_tiles: bool,
    machine: HostDescription,
) -> None:
    """Gradients of filters copy their left operand if its K steps are not contiguous, and their
    result if its columns are not."""
    rng = np.random.default_rng(0)
    attrs = attributes(2, dims, padding=((1, 1), (1, 1)))
    op = make_op(convolution, TensorType(image, "bf16"), TensorType(grad, "bf16"), **attrs)
    found = selected_kernel_names(RULES["convolution"], op, SAPPHIRE_RAPIDS)
    assert any("_amx_packed_" in name for name in found) == has_tiles
    if has_tiles:
        assert sum(name.startswith("moves_") for name in found) == copies
    x, w = (copy_before_guard_page(random_elements(rng, shape, "bf16")) for shape in (image, grad))
    out = copy_before_guard_page(np.zeros(op.result.type.shape, x.dtype))
    for workers in (1, 3):
        lower_and_run(RULES["convolution"], op, [x, w], [out], workers, machine)
        assert_convolution(out, x, w, op.result.type, attrs)
