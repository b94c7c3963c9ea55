"""Decide which products of fused products multiply pairs of bf16, and with which instruction.

Score products of bf16 matrices multiply pairs of features. Column sums of scores that are rounded
to bf16, such as the weights of attention, multiply pairs of columns. With tile registers, row sums
of such scores multiply pairs of rows, and zeros extend odd extents. The sums are f32 in any case.
"""

from collections.abc import Callable
from typing import NamedTuple

from shardir.backends.cpu.codegen.dot_product_instructions import (
    GROUP_INSTRUCTIONS,
    DotProductInstruction,
    MatrixInstruction,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.codegen.tile_instructions import TileInstruction
from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.fused_products.score_passes import PassPlan, ScoreSteps
from shardir.ir.module import Op, Value
from shardir.ops.control_flow.fused_products import ProductNest
from shardir.ops.control_flow.loop_unification import non_unit_dims


class PairedProducts(NamedTuple):
    """Flags of the score products and of the sums, which are true for those that multiply pairs;
    `has_tiles` states whether they use tile registers."""

    products: tuple[bool, ...]
    sums: tuple[bool, ...]
    has_tiles: bool = False


def pair_instruction(machine: HostDescription) -> DotProductInstruction | TileInstruction | None:
    """Return the fastest instruction of a machine for vectors or tiles of pairs of bf16, if any."""
    if machine.vector_bytes != 64:
        return None
    for each in GROUP_INSTRUCTIONS["bf16"]:
        if isinstance(each, MatrixInstruction):
            continue
        if each.is_fast_on(machine):
            return each
    return None


def find_paired_products(
    nest: ProductNest,
    steps: ScoreSteps,
    plan: PassPlan,
    view_of: Callable[[Value], BufferView],
    machine: HostDescription,
) -> PairedProducts:
    """Return the products and sums that multiply pairs on a machine; `view_of` returns the view of
    a parameter of the nest."""
    instruction = pair_instruction(machine)
    if instruction is None:
        return PairedProducts((False,) * steps.products, (False,) * len(nest.sums))
    has_tiles = isinstance(instruction, TileInstruction)
    products = tuple(
        _is_bf16_product(nest, op) and (has_tiles or _has_feature_pairs(nest, op, view_of))
        for op in nest.score_products
    )
    loaded = {step for each in plan.passes for step, _ in each.loads}
    stored = {step for each in plan.passes for step, _ in each.stores}
    can_pair = [
        step in stored - loaded
        and _is_bf16_sum(nest, op)
        and (has_tiles or _has_column_pairs(nest, op))
        for step, op in zip(steps.sums, nest.sums, strict=True)
    ]
    layouts: dict[int, set[tuple[bool, bool]]] = {}
    for step, is_pair, op in zip(steps.sums, can_pair, nest.sums, strict=True):
        layouts.setdefault(step, set()).add((is_pair, nest.is_column_sum(op)))
    # Scores have one layout for all of their sums.
    sums = tuple(
        is_pair and len(layouts[step]) == 1
        for step, is_pair in zip(steps.sums, can_pair, strict=True)
    )
    return PairedProducts(products, sums, has_tiles and any((*products, *sums)))


def _is_bf16_product(nest: ProductNest, op: Op) -> bool:
    """Return whether a product is of matrices of bf16."""
    return {value.type.dtype for value in nest.row_and_column_matrix(op)} == {"bf16"}


def _is_bf16_sum(nest: ProductNest, op: Op) -> bool:
    """Return whether a sum multiplies scores and a matrix of bf16."""
    return {value.type.dtype for value in nest.scores_and_matrix(op)} == {"bf16"}


def _has_feature_pairs(nest: ProductNest, op: Op, view_of: Callable[[Value], BufferView]) -> bool:
    """Return whether a product has pairs of features, which are contiguous in the rows."""
    rows, _ = nest.row_and_column_matrix(op)
    feature = nest.feature_loop(rows)
    dims = dict(zip(nest.mappings[rows], non_unit_dims(rows.type), strict=True))
    view = view_of(rows)
    return nest.extents[feature] % 2 == 0 and view.strides[dims[feature]] == view.itemsize


def _has_column_pairs(nest: ProductNest, op: Op) -> bool:
    """Return whether a sum is over pairs of columns."""
    return nest.is_column_sum(op) and nest.extents[nest.column_loop] % 2 == 0
