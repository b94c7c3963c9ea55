"""Decide which products of fused products multiply pairs of bf16 (`BF16_PAIRS`).

Score products of bf16 matrices multiply pairs of features. Column sums of scores that are rounded
to bf16, such as the weights of attention, multiply pairs of columns. The sums are f32 in any case.
"""

from collections.abc import Callable
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import BF16_PAIRS
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.fused_products.score_passes import PassPlan, ScoreSteps
from shardir.ir.module import Op, Value
from shardir.ops.control_flow.fused_products import ProductNest
from shardir.ops.control_flow.loop_unification import non_unit_dims


class PairedProducts(NamedTuple):
    """Flags of the score products and of the sums, which are true for those that multiply pairs."""

    products: tuple[bool, ...]
    sums: tuple[bool, ...]


def find_paired_products(
    nest: ProductNest,
    steps: ScoreSteps,
    plan: PassPlan,
    view_of: Callable[[Value], BufferView],
    machine: HostDescription,
) -> PairedProducts:
    """Return the products and sums that multiply pairs on a machine; `view_of` returns the view of
    a parameter of the nest."""
    if not BF16_PAIRS.is_fast_on(machine):
        return PairedProducts((False,) * steps.products, (False,) * len(nest.sums))
    products = tuple(_has_feature_pairs(nest, op, view_of) for op in nest.score_products)
    loaded = {step for each in plan.passes for step, _ in each.loads}
    stored = {step for each in plan.passes for step, _ in each.stores}
    can_pair = [
        step in stored - loaded and _has_column_pairs(nest, op)
        for step, op in zip(steps.sums, nest.sums, strict=True)
    ]
    # Scores have one layout for all of their sums.
    others = {step for step, is_pair in zip(steps.sums, can_pair, strict=True) if not is_pair}
    return PairedProducts(products, tuple(step not in others for step in steps.sums))


def _has_feature_pairs(nest: ProductNest, op: Op, view_of: Callable[[Value], BufferView]) -> bool:
    """Return whether a product is of matrices of bf16 with pairs of features, which are contiguous
    in the rows."""
    rows, columns = nest.row_and_column_matrix(op)
    feature = nest.feature_loop(rows)
    dims = dict(zip(nest.mappings[rows], non_unit_dims(rows.type), strict=True))
    view = view_of(rows)
    return (
        rows.type.dtype == columns.type.dtype == "bf16"
        and nest.extents[feature] % 2 == 0
        and view.strides[dims[feature]] == view.itemsize
    )


def _has_column_pairs(nest: ProductNest, op: Op) -> bool:
    """Return whether a sum multiplies scores and a matrix of bf16 over pairs of columns."""
    scores, matrix = nest.scores_and_matrix(op)
    is_bf16 = scores.type.dtype == matrix.type.dtype == "bf16"
    return is_bf16 and nest.is_column_sum(op) and nest.extents[nest.column_loop] % 2 == 0
