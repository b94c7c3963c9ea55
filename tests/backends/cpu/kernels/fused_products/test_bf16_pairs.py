"""Which products of fused products multiply pairs of bf16."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as jnp
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.fused_products.bf16_pairs import (
    PairedProducts,
    find_paired_products,
)
from shardir.backends.cpu.kernels.fused_products.score_passes import plan_score_passes, score_steps
from shardir.interpret.interpreter import evaluate
from shardir.ir.module import Module, Value
from shardir.ir.types import NUMPY_DTYPES
from shardir.ops.control_flow.fused_products import build_product_nest, fused_products
from shardir.passes.pipeline import Pipeline
from tests.backends.cpu.kernels.fused_products.attention_programs import (
    attention_module,
    fuse_products,
    random_attention,
    run_with_kernels,
)
from tests.backends.cpu.machine_descriptions import SAPPHIRE_RAPIDS, ZEN_3, ZEN_5

SIZES = {"batch": 1, "rows": 37, "columns": 64, "heads": 2, "groups": 1, "features": 24}


def paired(
    dtype: str = "bf16",
    machine: HostDescription = ZEN_5,
    gradient: bool = False,
    is_reversed: bool = False,
    **sizes: int,
) -> list[PairedProducts]:
    """Return the products with pairs of each operation of attention; `is_reversed` reverses the
    last dimension of all operands in memory."""
    arrays = random_attention(1, dtype, {**SIZES, **sizes})
    module = fuse_products(attention_module(arrays, gradient))
    return paired_products_of(module, machine, is_reversed)


def paired_products_of(
    module: Module, machine: HostDescription = ZEN_5, is_reversed: bool = False
) -> list[PairedProducts]:
    """Return the products with pairs of each operation of fused products."""

    def view_of(value: Value) -> BufferView:
        strides = row_major_strides(value.type)
        if is_reversed:
            strides = (*strides[:-1], -strides[-1])
        return BufferView(1, 0, value.type.shape, strides, value.type.dtype)

    found = []
    for op in module.main.body.ops:
        if op.spec is fused_products:
            nest = build_product_nest(op.blocks[0])
            steps = score_steps(nest)
            plan = plan_score_passes(steps)
            found.append(find_paired_products(nest, steps, plan, view_of, machine))
    return found


def test_scores_and_weights_of_attention_are_pairs() -> None:
    assert paired() == [PairedProducts((True,), (True,))]


@pytest.mark.parametrize(
    ("given", "products", "sums"),
    [
        ({"columns": 63}, True, False),
        ({"features": 23}, False, True),
        ({"is_reversed": True}, False, True),
        ({"dtype": "f16"}, False, False),
        ({"dtype": "f32"}, False, False),
        ({"machine": ZEN_3}, False, False),
        ({"machine": SAPPHIRE_RAPIDS.limited_to("avx512")}, False, False),
        ({"machine": replace(SAPPHIRE_RAPIDS, vector_bytes=32)}, False, False),
        ({"machine": replace(ZEN_5, vector_bytes=32)}, False, False),
    ],
)
def test_other_products_have_no_pairs(given: dict[str, Any], products: bool, sums: bool) -> None:
    assert paired(**given) == [PairedProducts((products,), (sums,))]


def test_sums_over_rows_have_no_pairs() -> None:
    """Neither have the sums of f32 in the gradients of queries and keys."""
    forward, backward = paired(gradient=True)
    assert forward == PairedProducts((True,), (True,))
    assert backward == PairedProducts((True, True), (False, False, False))


@pytest.mark.parametrize("given", [{}, {"columns": 63}, {"features": 23}, {"is_reversed": True}])
def test_tiles_multiply_all_products_of_bf16(given: dict[str, Any]) -> None:
    """The weights of the gradient of values are also bf16, but not the other scores."""
    tiles: dict[str, Any] = {"machine": SAPPHIRE_RAPIDS, **given}
    forward, backward = paired(gradient=True, **tiles)
    assert forward == PairedProducts((True,), (True,), True)
    assert backward == PairedProducts((True, True), (True, False, False), True)
    assert paired("f16", **tiles) == [PairedProducts((False,), (False,))]
    assert paired("f32", **tiles) == [PairedProducts((False,), (False,))]


def test_scores_that_a_later_pass_reads_are_not_stored_as_pairs() -> None:
    """The largest weight of a row is known when all weights have been stored."""

    def program(x: Any) -> Any:
        scores = jnp.matmul(x, x.T, preferred_element_type="float32")
        weights = sd.nn.softmax(scores).astype("bfloat16")
        wide = weights.astype("float32")
        largest = jnp.max(wide, axis=1, keepdims=True)
        return weights @ x, (wide / largest).astype("bfloat16") @ x

    x = np.random.default_rng(0).normal(size=(64, 24)).astype(NUMPY_DTYPES["bf16"])
    module = sd.parse(sd.jit(program).lower(x).as_text())
    module = Pipeline.parse("cse,dce,fold-views,simplify,cse,dce")(module)
    fused = fuse_products(module)
    assert paired_products_of(fused) == [PairedProducts((True,), (False, True))]
    for expected, got in zip(evaluate(module.main, [x]), run_with_kernels(fused, [x]), strict=True):
        expected, got = (np.asarray(each, np.float64) for each in (expected, got))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-2 * np.abs(expected).max())
