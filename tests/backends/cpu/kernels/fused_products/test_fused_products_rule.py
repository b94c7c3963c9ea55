"""Kernels of fused products against the interpreter, which runs the program without fusion."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.kernels.fused_products.fused_products_rule import (
    choose_block_rows,
    fused_products_rule,
)
from shardir.backends.cpu.kernels.fused_products.score_passes import (
    plan_score_passes,
    score_steps,
)
from shardir.backends.cpu.kernels.fused_products.tile_product import tile_shape
from shardir.backends.cpu.kernels.fused_products.visible_columns import find_visible_columns
from shardir.backends.cpu.threads.workers import workers
from shardir.interpret.interpreter import evaluate
from shardir.ops.control_flow.fused_products import build_product_nest, fused_products
from shardir.passes.pipeline import Pipeline
from tests.backends.cpu.kernels.fused_products.attention_programs import (
    attention_module,
    fuse_products,
    random_attention,
    run_with_kernels,
)
from tests.backends.cpu.machine_descriptions import MACHINES, SAPPHIRE_RAPIDS, ZEN_3
from tests.backends.cpu.phase_runner import selected_kernel_names

TOLERANCES = {"f32": 2e-6, "f64": 1e-14, "f16": 2e-3, "bf16": 1e-2}
SIZES = {"batch": 2, "rows": 37, "columns": 83, "heads": 4, "groups": 2, "features": 24}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "causal": ("f32", {}, {"is_causal": True}),
    "window": ("f32", {"masked": True}, {"local_window_size": (5, 3)}),
    "bias": ("f32", {"biased": True}, {"is_causal": True, "scale": 0.5}),
    "f64": ("f64", {"masked": True}, {"is_causal": True}),
    "f16": ("f16", {"biased": True}, {}),
    "bf16": ("bf16", {}, {"is_causal": True}),
}


def check(
    arrays: list[Any], tolerance: float, gradient: bool, operations: int, **options: Any
) -> list[Any]:
    """Compare the kernels of attention with the interpreter; return the results."""
    module = attention_module(arrays, gradient, **options)
    fused = fuse_products(module)
    assert [op.spec for op in fused.main.body.ops].count(fused_products) == operations
    given = [array for array in arrays if array is not None]
    made = run_with_kernels(fused, given)
    for expected, got in zip(evaluate(module.main, given), made, strict=True):
        expected, got = (np.asarray(each, np.float64) for each in (expected, got))
        scale = np.nanmax(np.abs(expected))
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * scale)
    return made


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_attention_equals_the_program_without_fusion(case: str, gradient: bool) -> None:
    dtype, given, options = CASES[case]
    arrays = random_attention(1, dtype, SIZES, **given)
    check(arrays, TOLERANCES[dtype], gradient, 1 + gradient, **options)


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("options", [{"is_causal": True}, {"local_window_size": (5, 2)}])
def test_attention_of_pairs_equals_the_program_without_fusion(
    options: dict[str, Any], gradient: bool
) -> None:
    """The visible columns of a block begin and end at odd numbers, also in the middle of a pair."""
    arrays = random_attention(1, "bf16", {**SIZES, "rows": 99, "columns": 98})
    check(arrays, TOLERANCES["bf16"], gradient, 1 + gradient, **options)


@pytest.mark.parametrize(("rows", "columns"), [(16, 129), (150, 16), (65, 64)])
def test_blocks_of_rows_and_chunks_of_columns_may_be_partial(rows: int, columns: int) -> None:
    sizes = {**SIZES, "rows": rows, "columns": columns, "features": 5}
    arrays = random_attention(2, "f32", sizes)
    check(arrays, TOLERANCES["f32"], True, 2, is_causal=True)


@pytest.mark.parametrize("gradient", [False, True])
def test_causal_kernels_exclude_columns(gradient: bool) -> None:
    arrays = random_attention(1, "f32", SIZES)
    module = fuse_products(attention_module(arrays, gradient, is_causal=True))
    found = [op for op in module.main.body.ops if op.spec is fused_products]
    for op in found:
        steps = score_steps(build_product_nest(op.blocks[0]))
        assert find_visible_columns(steps, plan_score_passes(steps)) is not None


def test_rows_without_visible_columns_are_the_mean_of_all_values() -> None:
    arrays = random_attention(3, "f32", SIZES)
    mask = np.ones((2, 1, 37, 83), bool)
    mask[:, :, [0, 20, 36]] = False
    arrays[3] = mask
    for gradient in (False, True):
        made = check(arrays, TOLERANCES["f32"], gradient, 1 + gradient, is_causal=True)
        if not gradient:
            mean = np.mean(arrays[2], axis=1)
            np.testing.assert_allclose(made[0].reshape(2, 37, 4, 24)[:, 20, 1], mean[:, 0], 1e-5)


def test_rows_of_minus_infinity_are_nan() -> None:
    arrays = random_attention(4, "f32", SIZES, biased=True)
    arrays[4][:, :, 7] = -np.inf
    made = check(arrays, TOLERANCES["f32"], False, 1)
    is_nan = np.isnan(made[0].reshape(2, 37, -1)).any(axis=(0, 2))
    assert list(np.flatnonzero(is_nan)) == [7]


def test_excluded_columns_are_computed_if_they_count() -> None:
    """In the first rows, all visible scores are lower than the score of excluded columns."""
    arrays = random_attention(5, "f32", SIZES, biased=True)
    arrays[4][...] = 0
    arrays[4][:, :, :3] = -3e38
    check(arrays, TOLERANCES["f32"], False, 1, is_causal=True)


POSITIONS = 200


def check_scores(function: Callable[..., Any], dtype: str = "int32") -> None:
    """Compare a function of a matrix, its scores, and positions along rows and columns, with the
    interpreter."""

    def program(x: Any) -> Any:
        at = jnp.arange(POSITIONS).astype(dtype)
        return function(x, x @ x.T, at[:, None], at[None])

    (x,) = np.random.default_rng(8).uniform(0.1, 1, (1, POSITIONS, 16)).astype(np.float32)
    module = sd.parse(sd.jit(program).lower(x).as_text())
    module = Pipeline.parse("cse,dce,fold-views,simplify,cse,dce")(module)
    fused = fuse_products(module)
    assert fused_products in [op.spec for op in fused.main.body.ops]
    results = zip(evaluate(module.main, [x]), run_with_kernels(fused, [x]), strict=True)
    for expected, got in results:
        np.testing.assert_allclose(got, np.asarray(expected), rtol=2e-5)


def weigh(visible: Any, scores: Any) -> Any:
    return sd.nn.softmax(jnp.where(visible, scores, -1e30), axis=1)


MASKS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    # The index 200 is -56 in i8; 2,147,483,600 + 100 is negative in i32.
    "i8 that wraps around": ("int8", lambda i, j: i >= j),
    "i32 that wraps around": ("int32", lambda i, j: i - 2147483600 - 100 >= j),
    "either of two bounds": ("int32", lambda i, j: (i >= j) | (j < 7)),
    "not both of two bounds": ("int32", lambda i, j: ~((i < j) & (j > 7))),
    "two columns for each row": ("int32", lambda i, j: j + j >= i),
}


@pytest.mark.parametrize("mask", MASKS)
def test_columns_of_a_mask(mask: str) -> None:
    dtype, is_visible = MASKS[mask]
    check_scores(lambda x, scores, i, j: weigh(is_visible(i, j), scores) @ x, dtype)


def divide_by_sum(weights: Any) -> Any:
    return weights / jnp.sum(weights, axis=1, keepdims=True)


def exponentials(scores: Any, i: Any, j: Any) -> Any:
    return jnp.where(i >= j, jnp.exp(scores), 0)


def largest(scores: Any, i: Any, j: Any) -> Any:
    return jnp.max(jnp.where(i >= j, scores, -1e30), axis=1, keepdims=True)


def unsigned_fill(i: Any, j: Any) -> Any:
    """Return a number that is 2**32 - 1 in excluded columns."""
    return (-jnp.where(i >= j, 0, 1).astype("uint32")).astype("float32")


COUNTED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a constant": lambda s, i, j: jnp.where(i >= j, weigh(i >= j, s), 0.5),
    "the minimum of the fill value": lambda s, i, j: (
        weigh(i >= j, s)
        * jnp.tanh(1e-30 * jnp.min(jnp.where(i >= j, s, -1e30), axis=1, keepdims=True))
    ),
    "the maximum of the fill value": lambda s, i, j: (
        jnp.where(i >= j, s, 0) / jnp.max(jnp.where(i >= j, s, 50), axis=1, keepdims=True)
    ),
    "a fill value near the scores": lambda s, i, j: sd.nn.softmax(jnp.where(i >= j, s, 2), axis=1),
    "a sum of ones": lambda s, i, j: (
        exponentials(s, i, j) / jnp.sum(jnp.where(i >= j, jnp.exp(s), 1), axis=1, keepdims=True)
    ),
    "columns of another mask": lambda s, i, j: weigh(j % 3 == 0, s) * jnp.where(i >= j, 2, 1),
    "differences of scores": lambda s, i, j: divide_by_sum(
        jnp.exp(jnp.where(i >= j, s, -1e30) - jnp.where((j % 3 == 0) & (j > i), -1e30, 0))
    ),
    "an unsigned fill value": lambda s, i, j: sd.nn.softmax(
        jnp.where(i >= j, s, 1e9 * unsigned_fill(i, j)), axis=1
    ),
    "zero times infinity of a score": lambda s, i, j: weigh(i >= j, s) * jnp.exp(9.0 * (j - i)),
    "zero times infinity of a row": lambda s, i, j: (
        weigh(i >= j, s) * jnp.exp(900 * largest(s, i, j))
    ),
    "zero times a quotient by zero": lambda s, i, j: weigh(i >= j, s) * (s / (j - i - 5)),
    "zero divided by zero": lambda s, i, j: divide_by_sum(weigh(i >= j, s)) / (j - i - 5),
    "zero divided by the constant zero": lambda s, i, j: (
        weigh(i >= j, s) / jnp.where(i >= j, 1.0, 0.0)
    ),
    "0 / 0 in blocks without visible columns": lambda s, i, j: divide_by_sum(
        exponentials(s, i, j + 150)
    ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("counted", COUNTED)
def test_excluded_columns_that_count_are_computed(counted: str) -> None:
    check_scores(lambda x, scores, i, j: COUNTED[counted](scores, i, j) @ x)


def test_sums_before_the_maximum_are_not_repeated() -> None:
    """The first rows have no visible column, so that their blocks compute all columns."""

    def sums(x: Any, scores: Any, i: Any, j: Any) -> Any:
        visible = i >= j + 150
        return jnp.where(visible, jnp.tanh(scores), 0) @ x, weigh(visible, scores) @ x

    check_scores(sums)


@pytest.mark.parametrize("heads", [1, 4])
def test_results_do_not_depend_on_the_worker_count(heads: int) -> None:
    sizes = {**SIZES, "batch": 1, "heads": heads, "groups": heads, "rows": 150}
    arrays = random_attention(6, "f32", sizes)
    fused = fuse_products(attention_module(arrays, True, is_causal=True))
    first, *others = (run_with_kernels(fused, arrays[:3], workers) for workers in (1, 2, 5))
    for results in others:
        for one, other in zip(first, results, strict=True):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_program_for_fewer_workers_does_not_write_beyond_its_scratch_memory(
    gradient: bool,
) -> None:
    def sum_attention(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(sd.nn.dot_product_attention(q, k, v) ** 2)

    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((1, 500, 2, 64)).astype("f") for _ in range(3))
    run = sd.jit(sd.grad(sum_attention) if gradient else sd.nn.dot_product_attention)
    with workers(1):
        expected = np.asarray(run(q, k, v))
    with workers(8):
        for _ in range(3):
            np.testing.assert_array_equal(run(q, k, v), expected)


@pytest.mark.parametrize("is_causal", [False, True])
def test_memory_is_linear_in_the_length(is_causal: bool) -> None:
    def loss(query: Any) -> Any:
        return jnp.sum(sd.nn.dot_product_attention(query, query, query, is_causal=is_causal) ** 2)

    def temporary_bytes(length: int) -> int:
        query = sd.ShapeDtypeStruct((1, length, 8, 64), np.float32)
        analysis = sd.jit(sd.grad(loss)).lower(query).compile().memory_analysis()
        return analysis.host_temp_size_in_bytes

    small, large = temporary_bytes(2048), temporary_bytes(8192)
    assert large <= 4.2 * small
    assert large < 8192 * 8192 * 4


def test_blocks_of_rows_fit_the_second_level_cache() -> None:
    chosen = [
        choose_block_rows(4096, columns * 4, 16, ZEN_3, has_row_sums)
        for columns, has_row_sums in [(1024, False), (4096, False), (4096, True), (65536, False)]
    ]
    assert chosen == [64, 32, 32, 16]
    assert choose_block_rows(20, 4096, 16, ZEN_3, False) == 32
    assert choose_block_rows(4096, 4 * 8192, 32, SAPPHIRE_RAPIDS, False) == 64


def test_tiles_fit_the_registers() -> None:
    assert {name: tile_shape("f32", machine) for name, machine in MACHINES.items()} == {
        "Zen 5": (12, 32),
        "Zen 3": (6, 16),
        "Sapphire Rapids": (12, 32),
        "Haswell": (6, 16),
        "SSE only": (5, 8),
        "small caches": (6, 16),
        "Neoverse": (6, 16),
        "Neoverse V1": (6, 16),
    }
    assert tile_shape("f64", ZEN_3) == (6, 8)


def test_kernels_are_shared_by_lengths_but_not_by_machines() -> None:
    names = set()
    for rows in (37, 53):
        arrays = random_attention(7, "f32", {**SIZES, "rows": rows})
        module = fuse_products(attention_module(arrays, False))
        (op,) = (op for op in module.main.body.ops if op.spec is fused_products)
        for machine in (ZEN_3, SAPPHIRE_RAPIDS):
            names.add(selected_kernel_names(fused_products_rule, op, machine)[-1])
    assert len(names) == 2
