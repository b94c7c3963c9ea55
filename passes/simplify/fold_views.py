"""Defer reshapes, transposes and broadcasts so that operations read and write existing layouts.

before: `%x.shards = reshape(%x) : f32[4, 4, 8]`
        `%h = dot(%x.shards, %w, dims="abi,ih->abh") : f32[4, 4, 4]`
        `%y = reshape(%h) : f32[16, 4]`
after:  `%h = dot(%x, %w, dims="bi,ih->bh") : f32[16, 4]`

Reshapes, transposes and broadcasts are views of their operands. An operation computes in the
dimensions of the underlying values as far as its operands agree on them, and its result is a view
in the dimensions of the program. Values do not change, except that a contraction may add in another
order.
"""

from dataclasses import dataclass, replace

from shardir.ir.builder import Builder
from shardir.ir.module import Function, Module
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import used_names
from shardir.passes.simplify.view_folding import (
    contraction,
    control_flow,
    data_movement,
    dynamic_slices,
    gather_scatter,
    pointwise_and_reductions,
)
from shardir.passes.simplify.view_folding.folder import FoldingRule, ViewFolder

RULES: dict[str, FoldingRule] = {
    **data_movement.DATA_MOVEMENT_RULES,
    **pointwise_and_reductions.POINTWISE_AND_REDUCTION_RULES,
    **contraction.CONTRACTION_RULES,
    **control_flow.CONTROL_FLOW_RULES,
    **gather_scatter.GATHER_SCATTER_RULES,
    **dynamic_slices.DYNAMIC_SLICE_RULES,
}


@dataclass(frozen=True)
class FoldViews(Pass, name="fold-views"):
    """Compute in the dimensions of the values that views refer to."""

    def __call__(self, module: Module) -> Module:
        return replace(module, functions=tuple(map(_fold_function, module.functions)))


def _fold_function(function: Function) -> Function:
    body = function.body
    folder = ViewFolder(Builder(used_names(function)), RULES)
    folder.run(body.ops)
    returns = [folder.materialize_value(value) for value in body.returns]
    return replace(function, body=folder.b.block(body.params, returns))
