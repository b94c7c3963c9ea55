"""Which products of fused products multiply pairs of bf16."""

from dataclasses import replace
from typing import Any

import pytest

from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView, row_major_strides
from shardir.backends.cpu.kernels.fused_products.bf16_pairs import (
    PairedProducts,
    find_paired_products,
)
from shardir.backends.cpu.kernels.fused_products.score_passes import plan_score_passes, score_steps
from shardir.ir.module import Value
from shardir.ops.control_flow.fused_products import build_product_nest, fused_products
from tests.backends.cpu.kernels.fused_products.attention_programs import (
    attention_module,
    fuse_products,
    random_attention,
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
        ({"machine": SAPPHIRE_RAPIDS}, False, False),
        ({"machine": replace(ZEN_5, vector_bytes=32)}, False, False),
    ],
)
def test_other_products_have_no_pairs(given: dict[str, Any], products: bool, sums: bool) -> None:
    assert paired(**given) == [PairedProducts((products,), (sums,))]
