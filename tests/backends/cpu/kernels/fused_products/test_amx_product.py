"""Fused products with the tile registers of AMX, which hosts without them emulate."""

from typing import Any

import llvmlite.binding as binding
import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.codegen.emission import make_target_machine
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.kernels.fused_products.fused_products_rule import fused_products_rule
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Module
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused_products import fused_products
from shardir.passes.pipeline import Pipeline
from tests.backends.cpu import phase_runner
from tests.backends.cpu.guard_pages import copy_before_guard_page
from tests.backends.cpu.kernels.fused_products.attention_programs import (
    attention_module,
    fuse_products,
    random_attention,
    run_with_kernels,
)
from tests.backends.cpu.kernels.random_layouts import Array
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS
from tests.backends.cpu.phase_runner import RuleHarness, selected_kernels
from tests.backends.cpu.tile_emulation import machine_with_tiles

TOLERANCE = 1e-2
SIZES = {"batch": 1, "rows": 37, "columns": 83, "heads": 4, "groups": 2, "features": 24}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> HostDescription:
    """A machine with tile registers; memory that phases have not written is NaN."""
    if host_machine().vector_bytes < 32:
        pytest.skip("LLVM compiles the vectors of 64 bytes for those of 16 bytes in minutes")
    monkeypatch.setattr(phase_runner, "GARBAGE_BYTE", 0xFF)
    return machine_with_tiles(monkeypatch)


def check(machine: HostDescription, module: Module, arrays: list[Any]) -> list[Array]:
    """Compare kernels with the interpreter, and return their results."""
    fused = fuse_products(module)
    assert fused_products in [op.spec for op in fused.main.body.ops]
    given = [array for array in arrays if array is not None]
    made = run_with_kernels(fused, given, machine=machine)
    for expected, got in zip(evaluate(module.main, given), made, strict=True):
        expected, got = (np.asarray(each, np.float64) for each in (expected, got))
        is_finite = np.isfinite(expected)
        atol = TOLERANCE * np.abs(expected[is_finite]).max(initial=0)
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)
    return made


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("sizes", "given", "options"),
    [
        ({}, {}, {"is_causal": True}),
        ({"rows": 64, "columns": 128, "features": 64}, {}, {}),
        ({"rows": 99, "columns": 98, "features": 32}, {}, {"is_causal": True}),
        ({"rows": 70, "columns": 161, "features": 33, "groups": 4}, {"masked": True}, {}),
        ({"rows": 161, "columns": 129, "features": 5}, {}, {"local_window_size": (5, 2)}),
        ({"rows": 17, "columns": 16, "features": 70, "groups": 1}, {"biased": True}, {}),
    ],
)
def test_attention_with_tiles_equals_the_program_without_fusion(
    machine: HostDescription,
    sizes: dict[str, int],
    given: dict[str, bool],
    options: dict[str, Any],
    gradient: bool,
) -> None:
    """Rows, columns and features are not multiples of tiles, and columns of a block begin and end
    at any number."""
    arrays = random_attention(1, "bf16", {**SIZES, **sizes}, **given)
    check(machine, attention_module(arrays, gradient, **options), arrays)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize(
    ("rows", "columns", "features", "options"),
    [
        (40, 64, 32, {}),
        (40, 65, 32, {}),
        (40, 65, 34, {}),
        (128, 128, 32, {"local_window_size": (5, 2)}),
    ],
)
def test_elements_after_matrices_are_not_accessed(
    machine: HostDescription,
    rows: int,
    columns: int,
    features: int,
    options: dict[str, Any],
    gradient: bool,
) -> None:
    """Each array ends before a page that cannot be accessed; keys of one head are read in place.
    The columns of a window begin at a multiple of a tile, so that they end with the last one."""
    sizes = {**SIZES, "rows": rows, "columns": columns, "features": features}
    arrays = random_attention(2, "bf16", {**sizes, "heads": 1, "groups": 1})
    guarded = [None if each is None else copy_before_guard_page(each) for each in arrays]
    check(machine, attention_module(arrays, gradient, **options), guarded)


@pytest.mark.parametrize("gradient", [False, True])
def test_matrices_may_have_any_strides(machine: HostDescription, gradient: bool) -> None:
    arrays = random_attention(7, "bf16", {**SIZES, "columns": 64, "features": 32})
    strided = [None if each is None else np.asfortranarray(each) for each in arrays]
    check(machine, attention_module(arrays, gradient), strided)


def test_results_do_not_depend_on_the_number_of_workers(machine: HostDescription) -> None:
    arrays = random_attention(3, "bf16", {**SIZES, "rows": 150})
    module = fuse_products(attention_module(arrays, True, is_causal=True))
    found = [run_with_kernels(module, arrays[:3], workers, machine) for workers in (1, 2, 7)]
    for others in found[1:]:
        for first, other in zip(found[0], others, strict=True):
            assert first.tobytes() == other.tobytes()


@pytest.mark.parametrize("gradient", [False, True])
def test_memory_is_linear_in_the_length(gradient: bool) -> None:
    def temporary_bytes(length: int) -> int:
        sizes = {**SIZES, "rows": length, "columns": length - 1}
        arrays = random_attention(8, "bf16", sizes)
        module = fuse_products(attention_module(arrays, gradient, is_causal=True))
        op = [op for op in module.main.body.ops if op.spec is fused_products][-1]
        harness = RuleHarness(2, SAPPHIRE_RAPIDS)
        types = [value.type for value in (*op.operands, *op.results)]
        views = [harness.view(np.empty(each.shape, each.numpy), each.dtype) for each in types]
        count = len(op.operands)
        assert fused_products_rule(op, views[:count], views[count:], harness)
        return sum(each.nbytes for each in harness.buffers)

    assert temporary_bytes(4096) <= 4.2 * temporary_bytes(1024)


def test_nan_and_infinities_stay_in_their_features_and_rows(machine: HostDescription) -> None:
    """Neither reaches the zeros that extend matrices."""
    arrays = random_attention(4, "bf16", {**SIZES, "groups": 4, "features": 33})
    arrays[0][0, 36, 3, 32] = np.nan
    arrays[2][0, 82, 2, 32] = np.inf
    (got,) = check(machine, attention_module(arrays, False), arrays)
    finite = np.isfinite(got.astype(np.float32)).reshape(37, 4, 33)
    assert not finite[36, 3].any()
    assert not finite[:, 2, 32].any()
    finite[36, 3], finite[:, 2, 32] = True, True
    assert finite.all()


def pipeline_input(function: Any, *arrays: Array) -> Module:
    """Return the program of a function before fusion."""
    module = sd.parse(sd.jit(function).lower(*arrays).as_text())
    return Pipeline.parse("cse,dce,fold-views,simplify,cse,dce")(module)


def test_infinite_weights_of_the_last_row_are_multiplied_by_that_row_only(
    machine: HostDescription,
) -> None:
    """A block of rows extends the last one, by rows whose weights are zero."""

    def program(x: Any, y: Any, z: Any) -> Any:
        scores = jnp.matmul(x, y.T, preferred_element_type="float32")
        total = jnp.sum(scores, axis=1, keepdims=True)
        weights = jnp.exp(scores + 0 * total).astype("bfloat16")
        return total, jnp.matmul(weights.T, z, preferred_element_type="float32")

    rng = np.random.default_rng(5)
    x, y, z = (
        rng.uniform(0.1, 1, (rows, 16)).astype(NUMPY_DTYPES["bf16"]) for rows in (33, 50, 33)
    )
    x[32] = 100
    made = check(machine, pipeline_input(program, x, y, z), [x, y, z])
    assert np.isposinf(made[1]).all()


def test_scores_of_a_column_sum_and_a_row_sum_are_no_pairs(machine: HostDescription) -> None:
    """Both sums read one array of scores, in f32."""

    def program(x: Any, y: Any, z: Any) -> Any:
        scores = jnp.matmul(x, y.T, preferred_element_type="float32")
        weights = sd.nn.softmax(scores).astype("bfloat16")
        return weights @ y, weights.T @ z

    rng = np.random.default_rng(6)
    x, y, z = (rng.normal(size=(rows, 16)).astype(NUMPY_DTYPES["bf16"]) for rows in (40, 50, 40))
    check(machine, pipeline_input(program, x, y, z), [x, y, z])


@pytest.mark.parametrize(("gradient", "sums"), [(False, 1), (True, 3)])
def test_kernels_contain_the_instructions_of_tiles(gradient: bool, sums: int) -> None:
    """All products of pairs of a kernel share a function."""
    arrays = random_attention(1, "bf16", SIZES)
    module = fuse_products(attention_module(arrays, gradient))
    op = [op for op in module.main.body.ops if op.spec is fused_products][-1]
    assert len(op.results) == sums
    kernels = selected_kernels(fused_products_rule, op, SAPPHIRE_RAPIDS)
    (kernel,) = (each for each in kernels if each.name.startswith("fused_products_"))
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    parsed = binding.parse_assembly(kernel.text(SAPPHIRE_RAPIDS))
    parsed.triple = SAPPHIRE_RAPIDS.triple
    parsed.verify()
    assembly = make_target_machine(SAPPHIRE_RAPIDS).emit_assembly(parsed)
    found = [line.split()[0] for line in assembly.splitlines() if line.strip()]
    assert found.count("tdpbf16ps") == 4
    assert (found.count("ldtilecfg"), found.count("tilerelease")) == (1, 1)
    without = SAPPHIRE_RAPIDS.limited_to("avx512")
    for each in selected_kernels(fused_products_rule, op, without):
        assert "tdpbf16ps" not in each.text(without)
